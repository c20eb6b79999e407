"""A look at passing messages: what is left out, and when it ends."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence

import pytest

from sam_pipeline.consumer.core.inbox import NO_LIMIT, Delivery, Inbox
from sam_pipeline.consumer.core.tap import TapInbox, passing
from sam_pipeline.consumer.errors import SourceUnreachable
from sam_pipeline.schema.messages.message import Message
from tests.support.builders import metric_message


class Tapped:
    """A source and session that delivers some messages, and is then exhausted or away."""

    answers = False
    batch_size = NO_LIMIT

    def __init__(self, messages: Sequence[Message] = (), is_away: bool = False) -> None:
        self.name = self.broker = "stomp://msg.example.org:61613"
        self._messages = messages
        self._is_away = is_away

    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        assert isinstance(inbox, TapInbox)
        if not self._is_away:
            inbox.reached.add(self)
            inbox.put([Delivery(message, self, "") for message in self._messages])
            inbox.exhausted.add(self)

    def missing(self) -> Sequence[str]:
        return [f"{self.name} (no route)"] if self._is_away else []

    def ack(self, tokens: Sequence[str]) -> None:
        raise AssertionError("a look acknowledges nothing")


def seconds() -> itertools.count[float]:
    return itertools.count(0.0, 0.3)


def test_a_full_inbox_leaves_messages_out_instead_of_waiting() -> None:
    inbox, session = TapInbox(max_messages=2), Tapped()

    for _ in range(5):
        inbox.put([Delivery(metric_message(), session, "")])

    assert (len(inbox), inbox.left_out) == (2, 3)
    assert inbox.has_room_for(session.broker)


def test_messages_that_are_not_wanted_take_no_room() -> None:
    inbox, session = TapInbox(lambda message: False, max_messages=1), Tapped()

    inbox.put([Delivery(metric_message(), session, "")])

    assert (len(inbox), inbox.left_out) == (0, 0)


def test_messages_of_a_lost_session_are_shown_all_the_same() -> None:
    inbox, session = TapInbox(), Tapped()
    inbox.put([Delivery(metric_message(), session, "")])

    inbox.discard(session)

    assert len(inbox) == 1


def test_a_look_ends_when_everything_there_is_was_delivered() -> None:
    messages = [metric_message() for _ in range(3)]
    sources = [Tapped(messages)]

    seen = list(passing(sources, TapInbox(), lambda: True, 10, seconds().__next__))

    assert [delivery.message for delivery in seen] == messages


def test_a_source_that_is_away_does_not_end_a_look_at_another() -> None:
    sources = [Tapped([metric_message()]), Tapped(is_away=True)]

    seen = list(passing(sources, TapInbox(), lambda: True, 2, seconds().__next__))

    assert len(seen) == 1


def test_a_look_fails_when_no_source_could_be_read() -> None:
    with pytest.raises(SourceUnreachable, match="no route"):
        list(passing([Tapped(is_away=True)], TapInbox(), lambda: True, 2, seconds().__next__))
