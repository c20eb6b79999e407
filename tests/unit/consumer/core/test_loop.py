"""Take, load, commit, then ack, with a scripted loader and without real delays."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from itertools import count, repeat
from pathlib import Path

import pytest

from sam_pipeline.consumer.core.attempts import Attempts
from sam_pipeline.consumer.core.backoff import growing_delays
from sam_pipeline.consumer.core.inbox import NO_LIMIT, BatchRule, Delivery, Inbox, answering
from sam_pipeline.consumer.core.loop import Loop, Patience, Stopped
from sam_pipeline.consumer.core.outcome import DATABASE, MessageOutcome
from sam_pipeline.consumer.core.sink import Decoding
from sam_pipeline.consumer.core.state import NOT_TRIED, State
from sam_pipeline.consumer.core.tally import Tally
from sam_pipeline.consumer.errors import SinkAway
from sam_pipeline.sql.errors import DatabaseAway, DatabaseRefused, SchemaMismatch
from tests.support.builders import metric_message

AWAY = SinkAway(DatabaseAway("connection refused"))


class Connection:
    def __init__(self, broker: str, events: list[str]) -> None:
        self.broker = broker
        self.batch_size = NO_LIMIT
        self.answers = False
        self._events = events

    def ack(self, tokens: Sequence[int]) -> None:
        self._events += [f"ack {token}" for token in tokens]

    def answer(self, outcomes: Sequence[tuple[int, MessageOutcome]]) -> None:
        self._events += [f"answer {token}: {outcome.rows}" for token, outcome in outcomes]


class Scene:
    """A loop over `size` deliveries, and its sink, with failures scripted.

    `events` is what happened; `on_failure` is called before a failure is raised.
    """

    def __init__(self, directory: Path, size: int, batch_size: int = 1000) -> None:
        self.events: list[str] = []
        self.sessions = [Connection(name, self.events) for name in ("spool:///in", "stomp://a:1")]
        self.failures: list[Exception] = []
        self.pauses: dict[str, float] = {}
        self.stop = threading.Event()
        self.inbox = Inbox(max(size, 1))
        for number in range(size):
            self.inbox.put([self._delivery(number)])
        self.state = State()
        self.on_failure: Callable[[], object] = lambda: None
        patience = Patience(self.stop, lambda: repeat(0.0), self.state)
        rule = BatchRule(batch_size, age_s=1.0)
        attempts = Attempts(directory / "attempts")
        self.loop = Loop(self.inbox, rule, self, patience, attempts, self.state)

    def run(self) -> None:
        """Run the loop until the inbox is empty."""
        self.loop.run(self.stop, should_continue=lambda news: news)

    def prepare(self) -> None:
        raise NotImplementedError

    def upkeep(self, news: bool) -> None:
        """Does nothing."""

    def finish(self) -> None:
        raise NotImplementedError

    def _delivery(self, number: int) -> Delivery:
        session = self.sessions[number % 2]
        return Delivery(metric_message(), session, number)

    def load(self, batch: Sequence[Delivery], poison: Collection[str], decoding: Decoding) -> Tally:
        if self.failures:
            self.events.append("fail")
            self.on_failure()
            raise self.failures.pop(0)
        self.events.append(f"commit {len(batch)}")
        return Tally(
            rows_by_class=Counter({"metricOutput": len(batch) - 1}),
            dead_letters=Counter({"bad-status": 1}),
            ignored_keys=Counter({"colour": 2}),
            pauses=self.pauses,
            outcomes={
                at: MessageOutcome(DATABASE, rows=batch[at].token) for at in answering(batch)
            },
        )


def test_every_delivery_is_acked_in_order_after_the_commit_of_its_batch(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 3, batch_size=2)

    scene.run()

    assert scene.events == ["commit 2", "ack 0", "ack 1", "commit 1", "ack 2"]


def test_who_is_too_fast_is_paused_before_the_answer(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 1)
    scene.pauses = {"token:a": 60.0}
    scene.inbox.pause = lambda name, pause_s: scene.events.append(f"pause {name}")  # type: ignore[method-assign]

    scene.run()

    assert scene.events == ["commit 1", "pause token:a", "ack 0"]


def test_what_sources_refuse_is_counted_without_any_message(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 0)
    scene.inbox.count_refusal("a", "not-authorised")

    scene.run()

    assert scene.state.tally.refusals == {("a", "not-authorised"): 1}


def test_senders_that_wait_are_answered_after_the_commit_of_their_batch(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 3, batch_size=2)
    scene.sessions[1].answers = True
    scene.failures = [AWAY]

    scene.run()

    assert scene.events == ["fail", "commit 2", "ack 0", "answer 1: 1", "commit 1", "ack 2"]


def test_nothing_is_acked_while_the_database_is_unavailable(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 2)
    scene.failures = [AWAY, AWAY, AWAY]

    scene.run()

    assert scene.events == ["fail", "fail", "fail", "commit 2", "ack 0", "ack 1"]


def test_nothing_is_acked_when_stopped_while_the_database_is_unavailable(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 2)
    scene.failures = [AWAY] * 100
    scene.on_failure = scene.stop.set

    with pytest.raises(Stopped):
        scene.run()

    assert scene.events == ["fail"]


def test_any_other_error_ends_the_loop_without_an_ack(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 2)
    scene.failures = [SchemaMismatch("newer", version="2", wanted="1")]

    with pytest.raises(SchemaMismatch):
        scene.run()
    assert scene.events == ["fail"]


def test_a_source_that_fails_while_the_database_is_unavailable_ends_the_loop(
    tmp_path: Path,
) -> None:
    scene = Scene(tmp_path, 1)
    scene.failures = [AWAY]
    scene.on_failure = lambda: scene.inbox.fail(OSError("too many open files"))

    with pytest.raises(OSError, match="open files"):
        scene.run()
    assert scene.events == ["fail"]


def test_a_loop_waits_for_the_messages_of_a_broker_that_the_sink_pauses(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 1)
    scene.pauses = {"stomp://a:1": 0.3}
    pauses = []

    def should_continue(news: bool) -> bool:
        pauses.append(scene.inbox.any_paused)
        return news

    scene.loop.run(scene.stop, should_continue)

    assert pauses[:2] == [False, True]
    assert pauses[-1] is False  # it went on until the pause was over


def test_a_stopped_loop_takes_no_more_messages(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 2)
    scene.stop.set()

    scene.run()

    assert scene.events == []


def test_the_tally_counts_by_broker_and_reason(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 3)

    scene.run()

    assert scene.state.tally.as_json() == {
        "messages": 3,
        "rows": 2,
        "duplicates": 0,
        "dead_letters": {"bad-status": 1},
        "repeated_dead_letters": 0,
        "summarised_dead_letters": 0,
        "checks": 0,
        "ignored_keys": {"colour": 2},
        "refusals": {},
        "damaged_elements": 0,
        "rejected_messages": 0,
        "brokers": [
            {"broker": "spool:///in", "messages": 2},
            {"broker": "stomp://a:1", "messages": 1},
        ],
        "classes": [{"class": "metricOutput", "rows": 2, "duplicates": 0}],
    }
    assert not scene.state.tally.all_loaded


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


def test_patience_waits_for_ever_by_default() -> None:
    patience = Patience(threading.Event(), lambda: repeat(0.0), State(), clock=clock(3600))

    assert patience.until_done(failing(1000)) == "done"


def test_patience_of_a_drain_ends_after_its_timeout() -> None:
    def patience() -> Patience:
        return Patience(threading.Event(), lambda: repeat(0.0), State(), 60, clock(25))

    with pytest.raises(SinkAway):
        patience().until_done(failing(1000))
    assert patience().until_done(failing(2))


def test_the_state_has_the_start_and_the_reason_of_a_wait() -> None:
    state = State()
    states: list[tuple[datetime | None, str]] = []
    fails_twice = failing(2)

    def action() -> str:
        states.append((state.waiting_since, state.waiting_for))
        return fails_twice()

    Patience(threading.Event(), lambda: repeat(0.0), state).until_done(action)

    assert states == [(state.since, NOT_TRIED), (state.since, str(AWAY)), (state.since, str(AWAY))]
    assert state.waiting_since is None
    assert state.turns == 2


def test_a_batch_is_pending_until_it_is_acked(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 3)
    scene.failures = [SchemaMismatch("newer", version="2", wanted="1")]
    with pytest.raises(SchemaMismatch):
        scene.run()
    brokers = [delivery.session.broker for delivery in scene.state.pending]
    assert sorted(brokers) == ["spool:///in", "spool:///in", "stomp://a:1"]

    scene = Scene(tmp_path, 3)
    scene.run()
    assert not scene.state.pending


def test_patience_ends_on_a_stop() -> None:
    stop = threading.Event()
    stop.set()

    with pytest.raises(Stopped):
        Patience(stop, lambda: repeat(3600.0), State()).until_done(failing(1))


def test_patience_logs_each_reason_once_and_those_for_the_operator_as_errors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("WARNING")
    denied = SinkAway(DatabaseRefused("password authentication failed"), needs_action=True)
    failures: list[Exception] = [AWAY, AWAY, denied, denied, AWAY]
    patience = Patience(threading.Event(), lambda: repeat(0.0), State())

    def action() -> str:
        if failures:
            raise failures.pop(0)
        return "done"

    patience.until_done(action)

    assert [
        (record.levelname, record.getMessage().partition(";")[0]) for record in caplog.records
    ] == [
        ("WARNING", str(AWAY)),
        ("ERROR", str(denied)),
        ("WARNING", str(AWAY)),
    ]


def test_delays_grow_to_a_cap_and_differ_between_consumers() -> None:
    shortest = growing_delays(1, 8, uniform=lambda low, high: low)
    longest = growing_delays(1, 8, uniform=lambda low, high: high)

    assert [next(shortest) for _ in range(6)] == [0.5, 1, 2, 4, 4, 4]
    assert [next(longest) for _ in range(6)] == [1, 2, 4, 8, 8, 8]
