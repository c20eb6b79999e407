"""Identifies senders by a token or a certificate, and limits what strangers may use."""

from __future__ import annotations

import logging
import sys
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.process.listening import Listeners, is_of_a_page, is_rebound
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.sources.door.answers import (
    FORBIDDEN,
    TOO_MANY,
    HttpProblem,
    try_again,
    unauthorized,
)
from sam_pipeline.consumer.sources.signatures import SignatureCheck
from sam_pipeline.schema.errors import ConfigError, how_to_install
from sam_pipeline.schema.identity.identity import (
    ANONYMOUS,
    certificate_identity,
    identity_of,
    token_identity,
)
from sam_pipeline.schema.identity.policy import NOT_AUTHORISED, Policy, refusal_of_class
from sam_pipeline.schema.identity.tokens import Tokens, load_tokens
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.messages.message import CLASS, Message
from sam_pipeline.schema.net.certificate import is_proxy, subject_in
from sam_pipeline.schema.net.tls import server_context
from sam_pipeline.schema.program.wording import one_line, plural
from sam_pipeline.schema.records.classes import CHECK_CLASS, folded

if sys.version_info < (3, 13):
    import _ssl

if TYPE_CHECKING:
    import ssl
    from ssl import SSLContext

    from aiohttp import web


MAX_CERTIFICATES = 4096
"""Client certificates whose subjects are cached."""

MAX_BODY_BYTES = 64 * 1024
"""The limit on a body whose sender is not known yet; one of these is never inflated."""
MAX_BYTES = 1024 * 1024
"""The limit on all such bodies together."""
SHARE_OF_ADDRESS = 0.8
"""Of `max_connections`, for the strangers of one address: many nodes may be behind it."""
LOGGED = 5
"""The limit on refusals that are logged one by one in EVERY_S; then only their number is."""
EVERY_S = 60.0
LONGEST_REFUSAL = 200

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Access:
    """Identifies the senders of one door."""

    credentials: Credentials
    policy: Policy | None
    admits_anonymous: bool

    def identity_of(self, request: web.BaseRequest, token: str = "") -> str:
        """The identity of the sender of a request; raises HttpProblem if it is not accepted.

        `token` counts without a header Authorization.
        """
        if is_of_a_page(request.headers):
            raise HttpProblem(FORBIDDEN, "requests of web pages are not accepted (Origin)")
        authorization = request.headers.get("Authorization", "") or (token and f"Bearer {token}")
        secured = request.get_extra_info("ssl_object")
        certificate = secured.getpeercert(binary_form=True) if secured else None
        if certificate and _is_proxy(certificate):
            chain = verified_chain(secured)
            depth = next(number for number, one in enumerate(chain) if not is_proxy(one))
            if depth > (limit := self.credentials.proxy_depth):
                raise unauthorized(
                    f"{depth} X.509 proxies in a row; the limit is {limit} (proxy_depth)"
                )
            certificate = chain[depth]
        identity = self.identity(authorization, certificate)
        own_address = request.get_extra_info("sockname", ("",))[0]
        host = request.headers.get("Host", "")
        if identity == ANONYMOUS and is_rebound(own_address, host):
            text = f"Host {host[:80]!r} is not this machine: without an identity, send to localhost"
            raise HttpProblem(FORBIDDEN, text)
        return identity

    def identity(self, authorization: str, certificate: bytes | None) -> str:
        """The identity by the header of a request and the certificate of its connection, as DER.

        A token comes before the certificate. A wrong token is never the same as none: its sender
        would not notice. Without a `tokens_file`, the header is ignored.

        Raises:
            HttpProblem: the token is unknown, or the door requires an identity and gets none.
        """
        tokens = self.credentials.tokens
        if authorization and tokens is not None:
            name, token = _name_and_token(authorization)
            known = tokens.name_of(token)
            if known is None or name not in (None, known):
                raise unauthorized("unknown token, or the token of another user")
            return token_identity(known)
        subject = _subject(certificate) if certificate else None
        if subject:
            return certificate_identity(subject)
        if self.admits_anonymous:
            return ANONYMOUS
        ways = ["a token"] if tokens is not None else []
        if self.credentials.asks_for_certificates:
            ways.append("a client certificate with a readable subject")
        raise unauthorized(f"the door requires {' or '.join(ways)}")

    def require_permission(self, message: Message, inbox: Inbox) -> None:
        """Raises HttpProblem if the policy refuses whatever its sender says in this class.

        A refused message is counted for the publisher, or the identity that has none.
        """
        identity, message_class = identity_of(message), message.headers.get(CLASS, "")
        if self.policy is None or not self.policy.enforces:
            return
        publisher = self.policy.publisher_of(identity)
        if publisher and folded(message_class) == folded(CHECK_CLASS):
            return
        if reason := refusal_of_class(publisher, message_class, datetime.now(UTC).date()):
            name = publisher.name if publisher else identity
            inbox.count(Counts(refusals=Counter({(name, NOT_AUTHORISED): 1})))
            raise HttpProblem(FORBIDDEN, f"{identity}: {reason}")


def verified_chain(secured: ssl.SSLObject) -> Sequence[bytes]:
    """The certificates of the peer and its signers, the peer's first."""
    if sys.version_info >= (3, 13):
        return secured.get_verified_chain()
    # The same, before it had a public name.
    chain = secured._sslobj.get_verified_chain()  # type: ignore[attr-defined]
    return [certificate.public_bytes(_ssl.ENCODING_DER) for certificate in chain]


def _name_and_token(authorization: str) -> tuple[str | None, str]:
    """The token, and the user name of the scheme `Basic`, whose password it is."""
    scheme, _, credentials = authorization.partition(" ")
    credentials = credentials.strip()
    if scheme.lower() == "bearer":
        return None, credentials
    if scheme.lower() == "basic":
        try:
            name, _, token = b64decode(credentials, validate=True).decode().partition(":")
        except ValueError:
            raise unauthorized("the header Authorization is malformed") from None
        return name, token
    raise unauthorized(f"Authorization {scheme[:20]!r} is not supported (expected Bearer or Basic)")


_subject = lru_cache(maxsize=MAX_CERTIFICATES)(subject_in)
_is_proxy = lru_cache(maxsize=MAX_CERTIFICATES)(is_proxy)


@dataclass(frozen=True)
class Credentials:
    """What all doors of a consumer have read from their files; None if not configured."""

    tls: SSLContext | None = None
    tokens: Tokens | None = None
    asks_for_certificates: bool = False
    proxy_depth: int = 0


@dataclass(frozen=True)
class DoorSettings:
    """What all doors of a consumer share."""

    config: ConsumerConfig
    listeners: Listeners
    credentials: Credentials = field(default_factory=Credentials)
    signatures: SignatureCheck = field(default_factory=SignatureCheck)


def load_credentials(config: ConsumerConfig) -> Credentials:
    """The credentials; nothing is read without a door.

    Raises:
        ConfigError: the problems of all files; or the library of the doors is missing.
    """
    if not config.doors:
        return Credentials()
    if find_spec("aiohttp") is None:
        raise ConfigError(how_to_install("aiohttp"))
    door, tls, tokens = config.door, None, None
    problems: list[str] = []
    try:
        if any(broker.tls for broker in config.doors):
            tls = server_context(door.tls_files, accepts_proxies=door.proxy_depth > 0)
    except ConfigError as error:
        problems += error.problems
    try:
        if door.tokens_file:
            tokens = load_tokens(door.tokens_file)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError([f"[consumer.door] {problem}" for problem in problems])
    asks_for_certificates = bool(tls and door.client_ca_file)
    return Credentials(tls, tokens, asks_for_certificates, door.proxy_depth)


class Connection(Protocol):
    """A connection that can be ended."""

    def dismiss(self) -> None: ...


class Strangers:
    """The strangers at one door. Beyond a limit the oldest one goes, in favour of a newcomer."""

    def __init__(self, door: str, max_connections: int) -> None:
        self.reading_bytes = 0
        """The size of the bodies that are being read."""
        self._door = door
        self._limit_of_address = max(int(max_connections * SHARE_OF_ADDRESS), 1)
        self._addresses: dict[Connection, str] = {}
        self._by_address: dict[str, dict[Connection, None]] = {}
        """Both in the order of arrival."""
        self._period_began = -EVERY_S
        self._refusals = 0

    def add(self, connection: Connection, address: str) -> None:
        """A connection was accepted."""
        neighbours = self._by_address.get(address, {})
        if len(neighbours) >= self._limit_of_address:
            self._dismiss(next(iter(neighbours)))
        self._addresses[connection] = address
        self._by_address.setdefault(address, {})[connection] = None

    def dismiss_oldest(self) -> bool:
        """Make room for another connection; False without a stranger."""
        if self._addresses:
            self._dismiss(next(iter(self._addresses)))
            return True
        return False

    def remove(self, connection: Connection) -> None:
        """The sender is known now, or the connection has ended."""
        address = self._addresses.pop(connection, None)
        if address is not None:
            del self._by_address[address][connection]
            if not self._by_address[address]:
                del self._by_address[address]

    def reserve(self, count: int) -> None:
        """Count bytes of a body as being read; raises HttpProblem if there are too many."""
        self.reading_bytes += count
        if self.reading_bytes > MAX_BYTES:
            raise try_again(TOO_MANY, "too many requests of unknown senders: try again later")

    def log_refusal(self, address: str, problem: HttpProblem | str) -> None:
        """Log a refused request or TLS handshake, unless there were many lately."""
        self.look()
        if time.monotonic() >= self._period_began + EVERY_S:
            self._period_began, self._refusals = time.monotonic(), 0
        self._refusals += 1
        if self._refusals <= LOGGED:
            text = one_line(str(problem), LONGEST_REFUSAL)
            logger.warning(
                "door %s: refused %s: %s", self._door, address, text, extra={"broker": self._door}
            )

    def look(self) -> None:
        """Log the number of further refusals when the period is over."""
        if self._refusals > LOGGED and time.monotonic() >= self._period_began + EVERY_S:
            more = plural(self._refusals - LOGGED, "more refusal")
            text = "door %s: %s within %.0f s"
            logger.warning(text, self._door, more, EVERY_S, extra={"broker": self._door})
            self._refusals = 0

    def _dismiss(self, connection: Connection) -> None:
        self.remove(connection)
        connection.dismiss()
