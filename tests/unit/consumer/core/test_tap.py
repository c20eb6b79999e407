"""A look at passing messages: what is left out, and when it ends."""

from __future__ import annotations

import itertools
import threading

import pytest

from sam_pipeline.consumer.core.inbox import Delivery, Inbox
from sam_pipeline.consumer.core.tap import TapInbox, passing
from sam_pipeline.consumer.errors import SourceUnreachable
from tests.support.consumer.doubles import BROKER, FakeSession, FakeSource, delivery


class Tapped(FakeSource):
    """Delivers three messages, and is then exhausted."""

    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        assert isinstance(inbox, TapInbox)
        inbox.reached.add(self)
        inbox.put([delivery() for _ in range(3)])
        inbox.exhausted.add(self)


class Away(FakeSource):
    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        """Reaches nothing."""


def look(*sources: FakeSource) -> list[Delivery]:
    seconds = itertools.count(0.0, 0.3)
    return list(passing(sources, TapInbox(), lambda: True, 2, seconds.__next__))


def test_a_full_inbox_leaves_messages_out_instead_of_waiting() -> None:
    inbox = TapInbox(max_messages=2)
    for _ in range(5):
        inbox.put([delivery()])

    assert (len(inbox), inbox.left_out, inbox.has_room_for(BROKER)) == (2, 3, True)


def test_messages_that_are_not_wanted_take_no_room_and_those_of_a_lost_session_stay() -> None:
    choosy, inbox, session = (
        TapInbox(lambda message: False, max_messages=1),
        TapInbox(),
        FakeSession(),
    )
    choosy.put([delivery()])
    inbox.put([delivery(session)])
    inbox.discard(session)

    assert (len(choosy), choosy.left_out, len(inbox)) == (0, 0, 1)


def test_a_look_ends_when_every_source_is_exhausted_or_away() -> None:
    assert len(look(Tapped())) == len(look(Tapped(), Away("b", "b (no route)"))) == 3


def test_a_look_fails_when_no_source_could_be_read() -> None:
    with pytest.raises(SourceUnreachable, match="no route"):
        look(Away("b", "b (no route)"))
