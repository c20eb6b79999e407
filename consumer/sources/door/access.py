"""Who sends a request, by a token or a certificate, and whether the policy lets it send at all."""

from __future__ import annotations

from base64 import b64decode
from datetime import UTC, datetime
from functools import lru_cache

from aiohttp import web

from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.sources.door.answers import FORBIDDEN, UNAUTHORIZED, HttpProblem
from sam_pipeline.consumer.sources.door.credentials import Credentials
from sam_pipeline.schema.identity.identity import (
    ANONYMOUS,
    certificate_identity,
    identity_of,
    token_identity,
)
from sam_pipeline.schema.identity.policy import NOT_AUTHORISED, Policy, refusal_of_class
from sam_pipeline.schema.messages.message import CLASS, Message
from sam_pipeline.schema.net.subject import subject_in
from sam_pipeline.schema.records.classes import CHECK_CLASS, folded

CHALLENGE = 'Bearer realm="sam-consume", Basic realm="sam-consume"'
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

        `token` counts if there is no header Authorization.
        """
        authorization = request.headers.get("Authorization", "") or (token and f"Bearer {token}")
        secured = request.get_extra_info("ssl_object")
        certificate = secured.getpeercert(binary_form=True) if secured else None
        return self.identity(authorization, certificate)

    def identity(self, authorization: str, certificate: bytes | None) -> str:
        """The identity by the header of a request and the certificate of its connection, as DER.

        A token comes before the certificate. A wrong token is never the same as none: its sender
        would not notice. Without a `tokens_file`, the header is ignored.

        Raises:
            HttpProblem: the token is unknown, or there is no identity and the door wants one.
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
        raise _unknown(f"the door requires {' or '.join(ways)}")

    def identity_of_token(self, name: str | None, token: str) -> str:
        """The identity of a token, which must have the name if one is given; raises HttpProblem."""
        known = self._credentials.tokens.name_of(token) if self._credentials.tokens else None
        if known is None or name not in (None, known):
            raise _unknown("unknown token, or the token of another user")
        return token_identity(known)

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
            inbox.count_refusal(publisher.name if publisher else identity, NOT_AUTHORISED)
            raise HttpProblem(FORBIDDEN, f"{identity}: {reason}")


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
            raise _unknown("the header Authorization is malformed") from None
        return name, token
    raise _unknown(f"Authorization {scheme[:20]!r} is not supported (expected Bearer or Basic)")


def _unknown(text: str) -> HttpProblem:
    return HttpProblem(UNAUTHORIZED, text, {"WWW-Authenticate": CHALLENGE})


_subject = lru_cache(maxsize=MAX_CERTIFICATES)(subject_in)
