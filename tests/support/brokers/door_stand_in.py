"""A stand-in for the HTTP door: requests of many messages, an answer line for each of them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.element import parse
from tests.support.brokers.http_stand_in import Asked, HttpStandIn, reply
from tests.support.brokers.stand_in import HOST

TOKEN = "door-token-4711"
PROBLEM = "application/problem+json"

Outcome = dict[str, Any]


def stored(message: Message, **more: object) -> Outcome:
    return {"messageId": message.message_id, "status": 200, "rows": 1, "duplicates": 0, **more}


def problem(status: int, detail: str = "", **more: object) -> Outcome:
    return {"type": "about:blank", "title": "Title", "status": status, "detail": detail, **more}


def problem_reply(status: int, detail: str = "", **headers: str) -> bytes:
    body = json.dumps(problem(status, detail)).encode()
    return reply(status, body, Content_Type=PROBLEM, **headers)


@dataclass
class DoorStandIn(HttpStandIn):
    """A door that stores all messages, unless `outcome_of` says otherwise for one."""

    outcome_of: Callable[[Message], Outcome] = stored
    token: str | None = None
    """Required of every request."""
    max_lines: int | None = None
    """Answers 413 to a request of more messages."""
    room: int | None = None
    """The messages of a request that are stored; the others get 429."""
    max_answers: int | None = None
    """Reads and answers only so many messages of a request."""
    stored: list[Message] = field(default_factory=list)
    requests: list[list[Message]] = field(default_factory=list)
    """The messages of each request that was read."""

    def __post_init__(self) -> None:
        self.answer = self._answer

    @property
    def url(self) -> str:
        return f"sam+{'https' if self.context else 'http'}://{HOST}:{self.port}"

    def _answer(self, asked: Asked) -> bytes:
        if self.token and asked.headers.get("authorization") != f"Bearer {self.token}":
            return problem_reply(401, "a token is required")
        if asked.target.partition("/v1/")[2] != "messages":
            return problem_reply(404, "no such path")
        is_packed = asked.headers.get("content-encoding") == "gzip"
        body = zlib.decompress(asked.body, wbits=31) if is_packed else asked.body
        messages = [parse(line) for line in body.splitlines()]
        if self.max_lines and len(messages) > self.max_lines:
            return problem_reply(413, "too many messages")
        self.requests.append(messages)
        messages = messages[: self.max_answers]
        outcomes = [self.outcome_of(message) for message in messages]
        if self.room:
            outcomes[self.room :] = [problem(429, "full")] * len(outcomes[self.room :])
        self.stored += [
            message
            for message, outcome in zip(messages, outcomes, strict=True)
            if outcome["status"] in (200, 202)
        ]
        lines = [json.dumps(outcome) for outcome in outcomes]
        return reply(200, "".join(f"{line}\n" for line in lines).encode())
