"""Answers: documents about stored messages, and problem documents (RFC 9457)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

from sam_pipeline.consumer.core.inbox import DATABASE, MessageOutcome
from sam_pipeline.schema.identity.policy import NOT_AUTHORISED

JSON = "application/json"
PROBLEM = "application/problem+json"

OK, ACCEPTED = HTTPStatus.OK.value, HTTPStatus.ACCEPTED.value
BAD_REQUEST = HTTPStatus.BAD_REQUEST.value
UNAUTHORIZED = HTTPStatus.UNAUTHORIZED.value
FORBIDDEN = HTTPStatus.FORBIDDEN.value
NOT_FOUND = HTTPStatus.NOT_FOUND.value
METHOD_NOT_ALLOWED = HTTPStatus.METHOD_NOT_ALLOWED.value
TOO_SLOW = HTTPStatus.REQUEST_TIMEOUT.value
LENGTH_REQUIRED = HTTPStatus.LENGTH_REQUIRED.value
TOO_LARGE = HTTPStatus.REQUEST_ENTITY_TOO_LARGE.value
URI_TOO_LONG = HTTPStatus.REQUEST_URI_TOO_LONG.value
UNSUPPORTED = HTTPStatus.UNSUPPORTED_MEDIA_TYPE.value
EXPECTATION_FAILED = HTTPStatus.EXPECTATION_FAILED.value
UNREADABLE = HTTPStatus.UNPROCESSABLE_ENTITY.value
TOO_MANY = HTTPStatus.TOO_MANY_REQUESTS.value
HEAD_TOO_LARGE = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE.value
BUG = HTTPStatus.INTERNAL_SERVER_ERROR.value
UNAVAILABLE = HTTPStatus.SERVICE_UNAVAILABLE.value
TIMEOUT = HTTPStatus.GATEWAY_TIMEOUT.value

CHALLENGE = 'Bearer realm="sam-consume", Basic realm="sam-consume"'
RETRY_AFTER_S = 1
"""When a sender may repeat a message for which there was no room."""
RETRY_WHEN_BACK_S = 5
"""When a sender may repeat a message while the sink is away."""

_encoded = json.JSONEncoder(ensure_ascii=False).encode  # dumps() makes a new encoder each time


HEALTH = "/healthz"
HEALTHY = b'{"status": "alive"}'


class Reply(NamedTuple):
    """The answer to a request."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: Mapping[str, str] = {}


class HttpProblem(Exception):
    """A request, or one message of it, is not accepted; the sender keeps what it has sent."""

    def __init__(
        self,
        status: int,
        detail: str,
        headers: Mapping[str, str] | None = None,
        closes: bool = False,
        **facts: object,
    ) -> None:
        """`facts` are further members of the document; `closes`: the connection can't be used."""
        super().__init__(detail)
        self.status = status
        self.headers = headers or {}
        self.closes = closes
        self.facts = facts

    def of(self, message_id: str) -> HttpProblem:
        """This problem, for one message."""
        facts = {**self.facts, "messageId": message_id}
        return HttpProblem(self.status, str(self), self.headers, self.closes, **facts)

    def document(self) -> dict[str, object]:
        """The problem document."""
        return {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": str(self),
            **self.facts,
        }

    def reply(self) -> Reply:
        return Reply(self.status, as_json(self.document()), PROBLEM, self.headers)


def try_again(status: int, detail: str, after_s: int = RETRY_AFTER_S) -> HttpProblem:
    """A problem that is not one of the message: it may be sent again, with the same id."""
    return HttpProblem(status, detail, {"Retry-After": str(after_s)})


def unauthorized(text: str, closes: bool = False) -> HttpProblem:
    """The problem of a request whose sender is not known."""
    return HttpProblem(UNAUTHORIZED, text, {"WWW-Authenticate": CHALLENGE}, closes)


def rejection_of(outcome: MessageOutcome) -> HttpProblem:
    """The problem of a message that no broker of a relay takes."""
    (letter,) = outcome.letters
    status = FORBIDDEN if letter.reason == NOT_AUTHORISED else UNREADABLE
    return HttpProblem(status, letter.text, reason=letter.reason)


def status_of(outcome: MessageOutcome) -> int:
    """The status for a message that is stored."""
    return OK if outcome.stored == DATABASE else ACCEPTED


def document_of(message_id: str, outcome: MessageOutcome) -> dict[str, object]:
    """The outcome of a message, for its sender."""
    if outcome.stored != DATABASE:
        return {"messageId": message_id, "stored": outcome.stored}
    return {
        "messageId": message_id,
        "rows": outcome.rows,
        "duplicates": outcome.duplicates,
        "deadLetters": [letter._asdict() for letter in outcome.letters],
    }


def as_json(document: object) -> bytes:
    return _encoded(document).encode("utf-8", "backslashreplace")
