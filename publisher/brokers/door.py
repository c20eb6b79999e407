"""The HTTP door of `sam-consume`: many messages per request, and an answer for each of them.

A request has one message per line, in the format of a spool element. The answers are lines as well,
in the same order: a status of 2xx for a message that is stored, else a problem (RFC 9457).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from sam_pipeline.publisher.brokers.connection import usable
from sam_pipeline.publisher.brokers.http import (
    MAX_QUOTED,
    NOT_NOW,
    EncodedMessage,
    HttpAnswer,
    HttpRequest,
    HttpTransport,
)
from sam_pipeline.publisher.brokers.tokens import door_token
from sam_pipeline.publisher.errors import BrokerUnavailable, MessageRejected
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.messages.message import Message, chunks
from sam_pipeline.schema.net.broker import Broker, Target
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.program.wording import one_line, plural
from sam_pipeline.schema.spool.element import serialise

PATH = "/v1/messages"
LINES = {"Content-Type": "application/x-ndjson"}
TOKEN = "Authorization"

MAX_BATCH = 1000
MAX_BATCH_BYTES = 1_000_000
"""The limits of a request; a larger message is sent alone, and the door decides."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""An answer lists every bad record."""
MIN_COMPRESSED_BYTES = 4096
"""A shorter request fits into a few packets as it is."""
FASTEST = 1
GZIP = 31
"""The format for zlib."""

logger = lazy_logger(__name__)


class Door(HttpTransport):
    """Remembers refusals, so that no refused message is sent again."""

    def __init__(self, target: Target, deadline: Deadline) -> None:
        super().__init__(target, deadline)
        self._session.max_answer_bytes = MAX_ANSWER_BYTES
        self._session.permits_cut = True  # the messages of its complete lines are stored
        self.stored_in = ""
        """Where the door stored the last message: `database`, `broker` or `spool`."""
        self._refused: dict[str, str] = {}
        """The reason, by message id."""
        self._failure = ""
        """Why the door did not take the remaining messages."""

    @classmethod
    def secrets(cls, target: Target) -> dict[str, str]:
        token = usable(target, lambda: door_token(target))
        return {TOKEN: f"Bearer {token}"} if token else {}

    secrets_shown = secrets

    @classmethod
    def request_of(cls, broker: Broker, message: Message) -> HttpRequest:
        """The request before it is compressed, which a long one is."""
        return _request([_line_of(message)])

    def prove(self, message: Message, deadline: Deadline) -> str:
        """Nothing can be read through a door: proves that it stores a check message, and where."""
        list(self.send([message], deadline))
        return f"confirmed: stored in the {self.stored_in}"

    def send(self, messages: Sequence[Message], deadline: Deadline) -> Iterator[int]:
        for position, message in enumerate(messages if self._refused else ()):
            if reason := self._refused.get(message.message_id):
                raise MessageRejected(self._target, position, reason)
        lines = (
            EncodedMessage(position, message.message_id, _line_of(message))
            for position, message in enumerate(messages)
        )
        for batch in chunks(lines, lambda line: len(line.text), MAX_BATCH, MAX_BATCH_BYTES):
            if not self._failure:
                yield from self._post(batch, deadline)
            for line in batch:
                if reason := self._refused.get(line.message_id):
                    raise MessageRejected(self._target, line.position, reason)
            if self._failure:
                failure, self._failure = self._failure, ""
                raise BrokerUnavailable(self._target, failure)

    def _post(self, batch: Sequence[EncodedMessage], deadline: Deadline) -> Iterator[int]:
        """The positions of the messages that are stored; records why others are not."""
        while batch and not self._failure:
            request = _request([line.text for line in batch], compressed=True)
            self._session.meanwhile = self.meanwhile
            answer = self._session.request(request, deadline)
            if answer.status == 200:
                batch = yield from self._stored(batch, answer)
            elif answer.status == 403:
                self._refused.update((line.message_id, str(answer)) for line in batch)
                return
            elif answer.status not in (400, 413, 422):
                hint = " (no HTTP door of sam-consume there)" if answer.status in (404, 405) else ""
                raise BrokerUnavailable(self._target, f"{answer}{hint}")
            elif len(batch) == 1:
                self._refused[batch[0].message_id] = str(answer)
                return
            else:  # halve the batch to find the message to blame; sending an id twice is harmless
                middle = len(batch) // 2
                yield from self._post(batch[:middle], deadline)
                batch = batch[middle:]

    def _stored(
        self, batch: Sequence[EncodedMessage], answer: HttpAnswer
    ) -> Generator[int, None, Sequence[EncodedMessage]]:
        """Like `_post`, from the lines of the answer; returns the messages to send again now.

        These are the messages for which there was no room or no answer. If no other was stored or
        refused, the door is unavailable: sending them again would not help.
        """
        complete = answer.body.rpartition(b"\n")[0] if answer.cut else answer.body
        outcomes = complete.splitlines()
        again: list[EncodedMessage] = []
        reason = f"answered for {len(outcomes)} of {plural(len(batch), 'message')}"
        for line, text in zip(batch, outcomes):
            try:
                outcome = json.loads(text)
            except (ValueError, RecursionError):
                outcome = None
            if not isinstance(outcome, dict):
                outcome = {"detail": "its answer is not a JSON object"}
            status = outcome.get("status")
            if status in (200, 202) and outcome.get("messageId") == line.message_id:
                self.stored_in = str(outcome.get("stored") or "database")
                _log_dead_letters(line.message_id, outcome.get("deadLetters"))
                yield line.position
            elif status in (200, 202):
                self._failure = f"answered for another message than {line.message_id}"
            elif status == 429:
                again.append(line)
                reason = _problem(outcome)
            elif isinstance(status, int) and 400 <= status < 500 and status not in NOT_NOW:
                self._refused[line.message_id] = _problem(outcome)
            else:
                self._failure = _problem(outcome)
        again += batch[len(outcomes) :]
        if answer.cut or len(again) == len(batch):
            self._failure = self._failure or answer.cut or reason
        return again


def _line_of(message: Message) -> bytes:
    return serialise(message) + b"\n"


def _request(lines: Sequence[bytes], compressed: bool = False) -> HttpRequest:
    body = b"".join(lines)
    if not compressed or len(body) < MIN_COMPRESSED_BYTES:
        return HttpRequest("POST", PATH, LINES, body)
    packer = zlib.compressobj(FASTEST, wbits=GZIP)
    packed = packer.compress(body) + packer.flush()
    return HttpRequest("POST", PATH, {**LINES, "Content-Encoding": "gzip"}, packed)


def _problem(outcome: Mapping[str, Any]) -> str:
    """`422 title: detail` of a problem, as far as it has them."""
    status = " ".join(str(outcome[key]) for key in ("status", "title") if key in outcome)
    return one_line(": ".join(filter(None, (status, str(outcome.get("detail", ""))))), MAX_QUOTED)


def _log_dead_letters(message_id: str, letters: object) -> None:
    """Warn of records that the door's database can't take: a sender can correct them."""
    if not isinstance(letters, list) or not letters:
        return
    first = letters[0] if isinstance(letters[0], dict) else {}
    reason = one_line(f"{first.get('reason')}: {first.get('text')}", MAX_QUOTED)
    logger.warning(
        "message %s: %s, the first because of %s",
        message_id,
        plural(len(letters), "dead letter"),
        reason,
        extra={"message_id": message_id},
    )
