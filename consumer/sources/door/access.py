"""Who sends a request, by a token or a certificate, and whether the policy lets it send at all."""

from __future__ import annotations

import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

from aiohttp import web

from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.process.listening import is_of_a_page, is_rebound
from sam_pipeline.consumer.sources.door.answers import FORBIDDEN, HttpProblem, unauthorized
from sam_pipeline.consumer.sources.door.credentials import Credentials
from sam_pipeline.schema.identity.identity import (
    ANONYMOUS,
    certificate_identity,
    identity_of,
    token_identity,
)
from sam_pipeline.schema.identity.policy import NOT_AUTHORISED, Policy, refusal_of_class
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.messages.message import CLASS, Message
from sam_pipeline.schema.net.certificate import is_proxy, subject_in
from sam_pipeline.schema.records.classes import CHECK_CLASS, folded

if TYPE_CHECKING:
    import ssl

MAX_CERTIFICATES = 4096
"""Client certificates whose subjects are cached."""


class Access:
    """Identifies the senders of one door."""

    def __init__(
        self, credentials: Credentials, policy: Policy | None, admits_anonymous: bool
    ) -> None:
        self._credentials = credentials
        self._policy = policy
        self._admits_anonymous = admits_anonymous

    def identity_of(self, request: web.BaseRequest, token: str = "") -> str:
        """The identity of the sender of a request; raises HttpProblem if that is not enough.

        `token` counts without a header Authorization.
        """
        if is_of_a_page(request.headers):
            raise HttpProblem(FORBIDDEN, "requests of web pages are not accepted (Origin)")
        authorization = request.headers.get("Authorization", "") or (token and f"Bearer {token}")
        secured = request.get_extra_info("ssl_object")
        certificate = secured.getpeercert(binary_form=True) if secured else None
        if certificate and _is_proxy(certificate):
            certificate = self._user_certificate(verified_chain(secured))
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
        if authorization and self._credentials.tokens is not None:
            return self.identity_of_token(*_name_and_token(authorization))
        subject = _subject(certificate) if certificate else None
        if subject:
            return certificate_identity(subject)
        if self._admits_anonymous:
            return ANONYMOUS
        ways = ["a token"] if self._credentials.tokens is not None else []
        if self._credentials.asks_for_certificates:
            ways.append("a client certificate with a readable subject")
        raise unauthorized(f"the door requires {' or '.join(ways)}")

    def identity_of_token(self, name: str | None, token: str) -> str:
        """The identity of a token, which must have the name if one is given; raises HttpProblem."""
        known = self._credentials.tokens.name_of(token) if self._credentials.tokens else None
        if known is None or name not in (None, known):
            raise unauthorized("unknown token, or the token of another user")
        return token_identity(known)

    def _user_certificate(self, chain: Sequence[bytes]) -> bytes:
        """The first certificate of a chain that is not a proxy; raises HttpProblem."""
        depth = next(
            number for number, certificate in enumerate(chain) if not is_proxy(certificate)
        )
        if depth > self._credentials.proxy_depth:
            limit = self._credentials.proxy_depth
            raise unauthorized(
                f"{depth} X.509 proxies in a row; the limit is {limit} (proxy_depth)"
            )
        return chain[depth]

    def require_permission(self, message: Message, inbox: Inbox) -> None:
        """Raises HttpProblem if the policy refuses whatever its sender says in this class.

        A refused message is counted for the publisher, or the identity that has none.
        """
        identity, message_class = identity_of(message), message.headers.get(CLASS, "")
        policy = self._policy
        if policy is None or not policy.enforces:
            return
        publisher = policy.publisher_of(identity)
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
    import _ssl  # the same, before it had a public name

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
