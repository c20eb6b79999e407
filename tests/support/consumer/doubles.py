"""Stand-ins for sources and sessions, and deliveries of theirs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from sam_pipeline.consumer.core.inbox import NO_LIMIT, Delivery, Inbox, MessageOutcome, Session
from sam_pipeline.schema.messages.message import Message
from tests.support.builders import metric_message

BROKER = "stomp://a:61613"


class FakeSession:
    """`acked` has the tokens, `answered` the outcomes by token of each call."""

    def __init__(self, broker: str = BROKER, answers: bool = False) -> None:
        self.broker = broker
        self.answers = answers
        self.batch_size = NO_LIMIT
        self.acked: list[Any] = []
        self.given_back: list[Any] = []
        self.answered: list[dict[Any, MessageOutcome]] = []

    def ack(self, tokens: Sequence[Any]) -> None:
        self.acked += tokens

    def give_back(self, tokens: Sequence[Any]) -> None:
        self.given_back += tokens

    def answer(self, outcomes: Sequence[tuple[Any, MessageOutcome]]) -> None:
        self.answered.append(dict(outcomes))


class FakeSource:
    """Delivers nothing; the test sets its `problems`."""

    def __init__(self, name: str = BROKER, *problems: str) -> None:
        self.name = name
        self.problems: Sequence[str] = problems

    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        raise NotImplementedError

    def missing(self) -> Sequence[str]:
        return self.problems


def delivery(
    session: Session | None = None, token: object = None, message: Message | None = None
) -> Delivery:
    return Delivery(message or metric_message(), session or FakeSession(), token)


def sized(size: int, headers: int = 0) -> Delivery:
    """A delivery with a body of `size` bytes, and this number of empty headers."""
    names = {str(number): "" for number in range(headers)}
    return delivery(message=Message(names, b"x" * size))
