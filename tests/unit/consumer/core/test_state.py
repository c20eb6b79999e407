"""The state that the main loop records, with a clock that the test sets."""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine

from sam_pipeline.consumer.core.histogram import Histogram
from sam_pipeline.consumer.core.inbox import Delivery, Inbox
from sam_pipeline.consumer.core.state import NOT_TRIED, State, sent_at
from sam_pipeline.consumer.core.tally import MAX_KEYS, MAX_REFUSALS, OTHERS, Tally
from sam_pipeline.consumer.monitoring.observer import Observer
from sam_pipeline.consumer.monitoring.snapshot import Snapshot
from sam_pipeline.consumer.sinks import database
from sam_pipeline.consumer.sinks.database import COUNT_EVERY_S, WATCH_EVERY_S, DatabaseSink
from sam_pipeline.schema.messages.message import MESSAGE_ID, Message, new_message
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.database.version import upgrade
from sam_pipeline.sql.errors import DatabaseAway, SchemaMismatch, SqlError, StatementFailed

NOON = 1_795_262_400.0
"""Seconds since the epoch."""
BROKER = "stomp://a:61613"


class Scene:
    """A state whose clock starts at noon."""

    def __init__(self) -> None:
        self.now = NOON
        self.state = State(lambda: moment(self.now))

    def commit(self, batch: Sequence[Delivery], rows: int | None = None) -> None:
        self.state.taken(batch)
        self.state.committed(batch, loaded(len(batch) if rows is None else rows))

    def snapshot(self) -> Snapshot:
        return Observer("site-a", self.state, Inbox(10), [SilentSource()], {}).snapshot()


class SilentSource:
    """A source that delivers nothing."""

    name = BROKER

    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        raise NotImplementedError

    def missing(self) -> Sequence[str]:
        return []


class Connection:
    broker = BROKER

    answers = False

    def ack(self, tokens: Sequence[object]) -> None:
        raise NotImplementedError


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def loaded(rows: int, ignored: Mapping[str, int] | None = None) -> Tally:
    return Tally(
        rows_by_class=Counter({"metricOutput": rows}),
        dead_letters=Counter({"bad-status": 1}),
        ignored_keys=Counter(ignored),
    )


def delivery(sent: float | None = None, body: bytes = b"12345") -> Delivery:
    headers = {} if sent is None else {MESSAGE_ID: f"{int(sent * 1e6):014x}-ab12"}
    return Delivery(Message(headers, body), Connection(), None)


def test_the_time_of_sending_is_in_our_message_ids() -> None:
    assert sent_at({MESSAGE_ID: f"{int(NOON * 1e6):014x}-{'0' * 18}"}) == NOON


def test_the_time_of_sending_of_foreign_messages_comes_from_their_broker() -> None:
    assert sent_at({"timestamp": str(int(NOON * 1000))}) == NOON
    assert sent_at({MESSAGE_ID: "their-own", "timestamp": str(int(NOON * 1000))}) == NOON


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"timestamp": "yesterday"},
        {"timestamp": "0"},
        {"timestamp": "99999999999999999999"},
        {MESSAGE_ID: "ffffffffffffff-00"},
        {MESSAGE_ID: "nothexatall---00"},
        {MESSAGE_ID: ""},
    ],
)
def test_an_invalid_time_of_sending_is_ignored(headers: Mapping[str, str]) -> None:
    assert sent_at(headers) is None


def test_the_lag_is_that_of_the_newest_message_of_the_last_commit() -> None:
    scene = Scene()

    scene.commit([delivery(NOON - 5), delivery(NOON - 2), delivery(None)])

    assert scene.state.lag_s() == pytest.approx(2)


def test_the_lag_grows_while_a_batch_is_being_loaded() -> None:
    scene = Scene()
    scene.commit([delivery(NOON - 1)])

    scene.state.taken([delivery(NOON - 1)])
    scene.now += 60

    assert scene.state.lag_s() == pytest.approx(61)


def test_a_quiet_daemon_does_not_lag() -> None:
    scene = Scene()
    scene.commit([delivery(NOON - 7200)])
    assert scene.state.lag_s() == pytest.approx(7200)

    scene.now += 60

    assert scene.state.lag_s() == 0


def test_a_clock_ahead_of_ours_does_not_make_the_lag_negative() -> None:
    scene = Scene()

    scene.commit([delivery(NOON + 30)])

    assert scene.state.lag_s() == 0


def test_the_lag_of_messages_without_a_time_of_sending_is_unknown() -> None:
    scene = Scene()

    scene.commit([delivery(None)])

    assert scene.state.lag_s() is None


def test_messages_are_held_until_they_are_committed() -> None:
    scene = Scene()
    batch = [delivery(), delivery(body=b"123")]

    scene.state.taken(batch)
    held = scene.snapshot()
    scene.state.committed(batch, loaded(2))
    done = scene.snapshot()

    assert (held.held_messages, held.brokers[0].held, held.held_bytes) == (2, 2, 8)
    assert (held.behind_since, held.last_commit) == (moment(NOON), None)
    assert (done.held_messages, done.brokers[0].held, done.held_bytes) == (0, 0, 0)
    assert (done.behind_since, done.last_commit) == (None, moment(NOON))


def test_a_batch_may_be_committed_in_parts() -> None:
    scene = Scene()
    first, second = [delivery()], [delivery(), delivery()]
    scene.state.taken([*first, *second])

    scene.now += 3
    scene.state.committed(first, loaded(1))

    snapshot = scene.snapshot()
    assert (snapshot.brokers[0].held, snapshot.behind_since) == (2, moment(NOON + 3))


def test_rates_are_those_of_the_last_minute() -> None:
    scene = Scene()
    for _ in range(60):
        scene.commit([delivery()] * 15, rows=30)
        scene.now += 1
    assert scene.state.rates() == pytest.approx((15, 30), rel=0.05)

    scene.now += 60

    assert scene.state.rates() == (0, 0)


def test_rates_of_a_young_process_are_those_of_its_life() -> None:
    scene = Scene()
    scene.now += 10
    scene.commit([delivery()] * 100)

    assert scene.state.rates()[0] == pytest.approx(10)


def test_a_wait_for_the_database_has_the_time_of_the_first_failure_and_the_last_reason() -> None:
    scene = Scene()
    assert scene.state.waiting_since
    scene.state.can_commit()
    assert (scene.state.waiting_since, scene.state.waiting_for) == (None, "")

    scene.now += 5
    scene.state.cannot_commit("connection refused")
    scene.now += 5
    scene.state.cannot_commit("starting up")

    assert scene.state.waiting_since == moment(NOON + 5)
    assert scene.state.waiting_for == "starting up"


def test_at_first_the_database_was_not_reached_yet() -> None:
    state = State()

    assert (state.waiting_since, state.waiting_for) == (state.since, NOT_TRIED)


def test_a_pause_turns_the_loop_and_ends_in_time() -> None:
    state = State()

    assert state.pause(threading.Event(), 0.01) is False
    assert state.turns > 0


def test_a_pause_ends_on_a_stop() -> None:
    stop = threading.Event()
    stop.set()

    assert State().pause(stop, 3600) is True


def test_ignored_keys_are_counted_by_the_names_of_their_senders() -> None:
    tally = Tally()

    tally.add([], loaded(0, {"colour": 2, "a\ud800b\0c": 1}))
    tally.add([], loaded(0, {"colour": 3}))

    assert tally.ignored_keys == {"colour": 5, r"a\ud800b\x00c": 1}


def test_only_a_limited_number_of_ignored_keys_is_counted_by_name() -> None:
    tally = Tally()

    tally.add([], loaded(0, {f"key{number}": 1 for number in range(1000)}))
    tally.add([], loaded(0, {"key0": 1, "late": 1}))

    assert len(tally.ignored_keys) == MAX_KEYS + 1
    assert tally.ignored_keys[OTHERS] == 1000 - MAX_KEYS + 1
    assert tally.ignored_keys["key0"] == 2


def test_refusals_are_counted_by_a_limited_number_of_publishers() -> None:
    tally = Tally()
    senders = [f"broker:stomp://mb1:61613/user{number}" for number in range(3 * MAX_REFUSALS)]

    for sender in senders:
        tally.add([], Tally(refusals=Counter({(sender, "not-authorised"): 1})))
    tally.add([], Tally(refusals=Counter({(senders[0], "not-authorised"): 2})))

    counts = tally.refusals_by_publisher
    assert counts[senders[0]] == {"not-authorised": 3}
    assert counts[OTHERS] == {"not-authorised": 2 * MAX_REFUSALS}


def test_rows_are_counted_by_class() -> None:
    tally = Tally()

    outcome = Tally(
        rows_by_class=Counter({"metricOutput": 2, "downtime": 1}),
        duplicates_by_class=Counter({"metricOutput": 1}),
    )
    tally.add([delivery()], outcome)

    assert tally.as_json()["classes"] == [
        {"class": "metricOutput", "rows": 2, "duplicates": 1},
        {"class": "downtime", "rows": 1, "duplicates": 0},
    ]


def test_the_edges_of_a_histogram_are_inclusive() -> None:
    histogram = Histogram((1, 10))

    histogram.add([0.5, 1, 2, 10, 11])
    histogram.add([100])
    histogram.add([])

    assert (histogram.cumulative(), histogram.total) == ([2, 4, 6], pytest.approx(124.5))


def test_the_lags_of_a_large_batch_are_sampled() -> None:
    scene = Scene()

    scene.commit([delivery(NOON - 3)] * 1000)

    lags = scene.snapshot().lags
    assert lags.cumulative()[-1] == pytest.approx(1000, rel=0.05)
    assert lags.total == pytest.approx(3000, rel=0.05)


class Counting:
    """A sink whose open dead letters are scripted, and its clock."""

    def __init__(
        self,
        directory: Path,
        monkeypatch: pytest.MonkeyPatch,
        *answers: Mapping[str, int] | SqlError,
    ) -> None:
        self.answers = list(answers)
        self.now = 0.0
        self.state = State()
        engine = make_engine(f"sqlite:///{directory}/sam.db", create=True)
        upgrade(engine)
        limits = (Limits(), self.state, 1000, 20_000_000)
        self.sink = DatabaseSink(engine, "site-a", *limits, lambda: self.now)
        monkeypatch.setattr(database, "open_by_reason", self._count)

    def upkeep(self) -> None:
        self.sink.upkeep(news=False)

    def _count(self, engine: Engine) -> Mapping[str, int]:
        answer = self.answers.pop(0)
        if isinstance(answer, SqlError):
            raise answer
        return answer


def open_letters(counting: Counting) -> Mapping[str, int]:
    return +Counter(counting.state.open_dead_letters)


def test_open_dead_letters_are_counted_every_half_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting(tmp_path, monkeypatch, {"bad-status": 1}, {"bad-status": 2})
    for _ in range(100):
        counting.upkeep()
    assert open_letters(counting) == {"bad-status": 1}

    counting.now += WATCH_EVERY_S
    counting.upkeep()

    assert open_letters(counting) == {"bad-status": 2}
    assert dict(counting.state.open_dead_letters or {})["too-old"] == 0


def test_an_idle_daemon_notices_that_the_database_fails_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting(tmp_path, monkeypatch, {}, DatabaseAway("connection refused"), {})
    counting.upkeep()
    assert counting.state.waiting_since is None

    counting.now += WATCH_EVERY_S
    counting.upkeep()
    assert counting.state.waiting_since is not None

    counting.now += WATCH_EVERY_S
    counting.upkeep()
    assert counting.state.waiting_since is None


def test_new_dead_letters_are_counted_within_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting(tmp_path, monkeypatch, {}, {"not-text": 1})
    counting.upkeep()
    garbage = delivery()._replace(message=new_message("metricOutput", "garbage"))

    counting.sink.load([garbage], (), nullcontext)
    counting.upkeep()
    assert open_letters(counting) == {}
    counting.now += COUNT_EVERY_S
    counting.upkeep()

    assert open_letters(counting) == {"not-text": 1}


def test_a_database_that_was_upgraded_meanwhile_ends_an_idle_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting(tmp_path, monkeypatch, {})
    counting.upkeep()
    with sqlite3.connect(tmp_path / "sam.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")

    counting.now += WATCH_EVERY_S
    with pytest.raises(SchemaMismatch, match="newer than this program"):
        counting.upkeep()


def test_a_failure_to_count_dead_letters_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = StatementFailed("no such table: dead_letter")
    counting = Counting(tmp_path, monkeypatch, failure)

    counting.upkeep()

    assert counting.state.open_dead_letters is None


def test_dead_letters_count_for_an_hour() -> None:
    scene = Scene()
    scene.commit([delivery()])
    scene.now += 1800
    scene.commit([delivery()])
    assert scene.snapshot().dead_letters_last_hour == 2

    scene.now += 1801
    assert scene.snapshot().dead_letters_last_hour == 1
    scene.now += 1801
    assert scene.snapshot().dead_letters_last_hour == 0
    assert scene.snapshot().dead_letters == {"bad-status": 2}


def test_the_newest_message_of_each_broker_and_the_last_records_of_each_class_are_known() -> None:
    scene = Scene()
    scene.commit([delivery(NOON - 60), delivery(NOON - 30), delivery(NOON - 90)])

    assert scene.state.newest == {BROKER: (moment(NOON), moment(NOON - 30))}
    assert scene.state.received == {"metricOutput": moment(NOON)}
