"""Take, load, commit, then ack: with a scripted loader and delays that take no time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count, repeat

import pytest

from consumer.backoff import growing_delays
from consumer.inbox import Delivery, Inbox
from consumer.loop import BatchRule, Loop, Patience, Stopped
from consumer.state import NOT_REACHED_YET, Standing, State
from schema.message import Message
from sql.errors import DatabaseAway, SchemaMismatch
from sql.load import Loaded
from tests.builders import metric_message

AWAY = DatabaseAway("connection refused")


class Scene:
    """A loop over `size` deliveries, whose loader fails as told; `events` is what happened."""

    def __init__(self, size: int, batch_size: int = 1000) -> None:
        self.events: list[str] = []
        self.failures: list[Exception] = []
        self.stop = threading.Event()
        self.inbox = Inbox(max(size, 1))
        for number in range(size):
            self.inbox.put(self._delivery(number), 0)
        patience = Patience(self.stop, lambda: repeat(0.0))
        self.loop = Loop(self.inbox, self._load, patience, BatchRule(batch_size, 1.0), self.stop)

    def run(self) -> None:
        """As long as there is something in the inbox."""
        self.loop.run(goes_on=lambda news: news)

    def _delivery(self, number: int) -> Delivery:
        broker = "stomp://a:1" if number % 2 else "spool:///in"
        return Delivery(
            metric_message(), broker, None, ack=lambda: self.events.append(f"ack {number}")
        )

    def _load(self, messages: Sequence[Message]) -> Loaded:
        if self.failures:
            self.events.append("fail")
            raise self.failures.pop(0)
        self.events.append(f"commit {len(messages)}")
        return Loaded(len(messages) - 1, {"bad-status": 1}, 0, {"colour": 2})


def test_every_delivery_is_acked_in_order_after_the_commit_of_its_batch() -> None:
    scene = Scene(3, batch_size=2)

    scene.run()

    assert scene.events == ["commit 2", "ack 0", "ack 1", "commit 1", "ack 2"]


def test_nothing_is_acked_while_the_database_is_away() -> None:
    scene = Scene(2)
    scene.failures = [AWAY, AWAY, AWAY]

    scene.run()

    assert scene.events == ["fail", "fail", "fail", "commit 2", "ack 0", "ack 1"]


def test_nothing_is_acked_when_told_to_stop_while_the_database_is_away() -> None:
    scene = Scene(2)
    scene.failures = [AWAY] * 100
    scene.stop.set()

    with pytest.raises(Stopped):
        scene.loop._commit(scene.inbox.take(2, 0, 0, 1))

    assert scene.events == ["fail"]


def test_any_other_error_ends_the_loop_without_an_ack() -> None:
    scene = Scene(2)
    scene.failures = [SchemaMismatch("newer", found="2", wanted="1")]

    with pytest.raises(SchemaMismatch):
        scene.run()
    assert scene.events == ["fail"]


def test_a_source_that_breaks_while_the_database_is_away_ends_the_loop() -> None:
    scene = Scene(1)
    scene.failures = [AWAY]
    batch = scene.inbox.take(1, 0, 0, 1)
    scene.inbox.fail(OSError("too many open files"))

    with pytest.raises(OSError, match="open files"):
        scene.loop._commit(batch)


def test_a_stopped_loop_takes_nothing_more() -> None:
    scene = Scene(2)
    scene.stop.set()

    scene.run()

    assert scene.events == []


def test_the_tally_counts_by_broker_and_reason() -> None:
    scene = Scene(3)

    scene.run()

    assert scene.loop.state.tally.as_json() == {
        "messages": 3,
        "rows": 2,
        "dead_letters": {"bad-status": 1},
        "checks": 0,
        "ignored_keys": {"colour": 2},
        "damaged_elements": 0,
        "brokers": [
            {"broker": "spool:///in", "messages": 2},
            {"broker": "stomp://a:1", "messages": 1},
        ],
        "classes": [],
    }
    assert not scene.loop.state.tally.all_loaded


def failing(times: int) -> Callable[[], str]:
    errors = [AWAY] * times

    def action() -> str:
        if errors:
            raise errors.pop()
        return "done"

    return action


def clock(step_s: float) -> Callable[[], float]:
    ticks: Iterator[float] = count(0.0, step_s)
    return lambda: next(ticks)


def test_patience_waits_for_ever_unless_told_otherwise() -> None:
    patience = Patience(threading.Event(), lambda: repeat(0.0), clock=clock(3600))

    assert patience.until_done(failing(1000)) == "done"


def test_patience_of_a_drain_ends_after_its_timeout() -> None:
    patience = Patience(threading.Event(), lambda: repeat(0.0), 60, clock(25))

    with pytest.raises(DatabaseAway):
        patience.until_done(failing(1000))
    assert Patience(threading.Event(), lambda: repeat(0.0), 60, clock(25)).until_done(failing(2))


def test_the_state_knows_what_is_in_hand_and_since_when_the_database_is_away() -> None:
    state = State()
    seen: list[Standing] = []

    def action() -> str:
        seen.append(state.standing())
        return failing_twice()

    failing_twice = failing(2)
    Patience(threading.Event(), lambda: repeat(0.0), state=state).until_done(action)

    first, second, third = (standing.waiting for standing in seen)
    assert first and first.reason == NOT_REACHED_YET
    assert second == third and second and second.reason == str(AWAY)
    assert state.standing().waiting is None
    assert state.turns == 2


def test_a_batch_is_in_hand_while_it_is_loaded() -> None:
    scene = Scene(3)
    seen: list[int] = []
    load = scene.loop._load

    def watched(messages: Sequence[Message]) -> Loaded:
        seen.append(sum(scene.loop.state.standing().in_hand.values()))
        return load(messages)

    scene.loop._load = watched
    scene.run()

    assert seen == [3]
    assert not scene.loop.state.standing().in_hand


def test_patience_ends_when_told_to_stop() -> None:
    stop = threading.Event()
    stop.set()

    with pytest.raises(Stopped):
        Patience(stop, lambda: repeat(3600.0)).until_done(failing(1))


def test_delays_grow_to_a_cap_and_differ_between_consumers() -> None:
    shortest = growing_delays(1, 8, uniform=lambda low, high: low)
    longest = growing_delays(1, 8, uniform=lambda low, high: high)

    assert [next(shortest) for _ in range(6)] == [0.5, 1, 2, 4, 4, 4]
    assert [next(longest) for _ in range(6)] == [1, 2, 4, 8, 8, 8]
