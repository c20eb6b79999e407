"""The state that the main loop records, with a clock that the test sets."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sam_pipeline.consumer.core.inbox import Delivery, Inbox
from sam_pipeline.consumer.core.state import NOT_TRIED, State, sent_at
from sam_pipeline.consumer.monitoring.observer import Observer
from sam_pipeline.consumer.monitoring.snapshot import Snapshot
from sam_pipeline.consumer.sinks import database
from sam_pipeline.consumer.sinks.database import COUNT_EVERY_S, WATCH_EVERY_S
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.messages.message import MESSAGE_ID, Message, new_message
from sam_pipeline.sql.errors import DatabaseAway, SchemaMismatch, SqlError, StatementFailed
from tests.support.consumer import doubles
from tests.support.consumer.database_sink import sink_into
from tests.support.consumer.doubles import BROKER, FakeSource
from tests.support.database.with_schema import with_schema

NOON = 1_795_262_400.0
"""Seconds since the epoch."""


class Scene:
    """A state whose clock starts at noon."""

    def __init__(self) -> None:
        self.now = NOON
        self.state = State(lambda: moment(self.now))
        self.inbox = Inbox(10)

    def commit(self, batch: Sequence[Delivery], rows: int | None = None) -> None:
        self.state.taken(batch)
        self.state.committed(batch, loaded(len(batch) if rows is None else rows))

    def snapshot(self) -> Snapshot:
        return Observer("site-a", self.state, self.inbox, [FakeSource()], {}).snapshot()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def loaded(rows: int) -> Counts:
    return Counts(
        rows_by_class=Counter({"metricOutput": rows}),
        dead_letters=Counter({"bad-status": 1}),
    )


def delivery(sent: float | None = None, body: bytes = b"12345") -> Delivery:
    headers = {} if sent is None else {MESSAGE_ID: f"{int(sent * 1e6):014x}-ab12"}
    return doubles.delivery(message=Message(headers, body))


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({MESSAGE_ID: f"{int(NOON * 1e6):014x}-{'0' * 18}"}, NOON),
        ({MESSAGE_ID: "their-own", "timestamp": str(int(NOON * 1000))}, NOON),
        ({}, None),
        *(({"timestamp": text}, None) for text in ("yesterday", "0", "99999999999999999999")),
        *(({MESSAGE_ID: text}, None) for text in ("ffffffffffffff-00", "nothexatall---00")),
    ],
)
def test_the_time_of_sending_is_in_our_message_ids_or_a_header_of_the_broker(
    headers: Mapping[str, str], expected: float | None
) -> None:
    assert sent_at(headers) == expected


@pytest.mark.parametrize(
    ("sent", "lag_s"),
    [
        ([NOON - 5, NOON - 2, None], 2),
        ([NOON - 7200], 7200),
        ([NOON + 30], 0),
        ([None], None),
    ],
    ids=["the newest message counts", "a backlog", "a clock ahead of ours", "unknown"],
)
def test_the_lag_of_the_last_commit(
    scene: Scene, sent: list[float | None], lag_s: float | None
) -> None:
    scene.commit([delivery(seconds) for seconds in sent])

    assert scene.state.lag_s() == (lag_s if lag_s is None else pytest.approx(lag_s))
    scene.now += 60
    assert scene.state.lag_s() == 0, "a quiet daemon does not lag"
    scene.state.taken([delivery(NOON - 1)])
    assert scene.state.lag_s() == pytest.approx(61), "it grows while a batch is being loaded"


def test_messages_are_held_until_they_are_committed_perhaps_in_parts(scene: Scene) -> None:
    batch = [delivery(), delivery(body=b"123"), delivery()]

    scene.state.taken(batch)
    held = scene.snapshot()
    scene.now += 3
    scene.state.committed(batch[:1], loaded(1))
    parts = scene.snapshot()
    scene.state.committed(batch[1:], loaded(2))
    done = scene.snapshot()

    numbers = [(it.held_messages, it.brokers[0].held, it.held_bytes) for it in (held, parts, done)]
    assert numbers == [(3, 3, 13), (2, 2, 8), (0, 0, 0)]
    assert (held.behind_since, held.last_commit) == (moment(NOON), None)
    assert (parts.behind_since, parts.last_commit) == (moment(NOON + 3), moment(NOON + 3))
    assert (done.behind_since, done.last_commit) == (None, moment(NOON + 3))


def test_a_wait_for_the_database_has_the_time_of_the_first_failure_and_the_last_reason(
    scene: Scene,
) -> None:
    waits = [(scene.state.waiting_since, scene.state.waiting_for)]
    scene.state.can_commit()
    waits.append((scene.state.waiting_since, scene.state.waiting_for))
    for reason in ("connection refused", "starting up"):
        scene.now += 5
        scene.state.cannot_commit(reason)
    waits.append((scene.state.waiting_since, scene.state.waiting_for))

    assert waits == [(moment(NOON), NOT_TRIED), (None, ""), (moment(NOON + 5), "starting up")]


def test_what_sources_count_is_in_the_next_snapshot(scene: Scene) -> None:
    scene.state.committed([delivery()], Counts(refusals=Counter({("a", "unsigned"): 1})))
    for reason in ("unsigned", "not-authorised"):
        scene.inbox.count(Counts(refusals=Counter({("a", reason): 1})))

    for _ in range(2):
        refusals = scene.snapshot().counts.refusals

    assert refusals == {("a", "unsigned"): 2, ("a", "not-authorised"): 1}


def test_a_class_of_which_only_duplicates_arrive_is_not_silent(scene: Scene) -> None:
    scene.state.committed([delivery()], Counts(duplicates_by_class=Counter(downtime=1)))

    assert scene.state.received == {"downtime": moment(NOON)}


def test_the_newest_message_of_each_broker_and_the_last_records_of_each_class_are_known(
    scene: Scene,
) -> None:
    scene.commit([delivery(NOON - 60), delivery(NOON - 30), delivery(NOON - 90)])

    assert scene.state.newest == {BROKER: (moment(NOON), moment(NOON - 30))}
    assert scene.state.received == {"metricOutput": moment(NOON)}


def test_dead_letters_count_for_an_hour(scene: Scene) -> None:
    scene.commit([delivery()])
    scene.now += 1800
    scene.commit([delivery()])
    numbers = []
    for scene.now in (NOON + 1800, NOON + 3599, NOON + 3600, NOON + 5399, NOON + 5400):
        numbers.append(scene.snapshot().dead_letters_last_hour)

    assert numbers == [2, 2, 1, 1, 0]
    assert scene.snapshot().counts.dead_letters == {"bad-status": 2}


def test_dead_letters_of_the_last_hour_survive_a_restart(scene: Scene) -> None:
    scene.commit([delivery()])
    by_minute = json.loads(json.dumps(scene.snapshot().dead_letters_by_minute))

    state = State(scene.state.clock)
    state.resume_letters(by_minute)

    assert state.dead_letters_last_hour() == scene.snapshot().dead_letters_last_hour == 1


class Counting:
    """A sink whose open dead letters are scripted, and its clock."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.answers: list[Mapping[str, int] | SqlError] = []
        self.now = 0.0
        self.state = State()
        engine = with_schema(f"sqlite:///{directory}/sam.db")
        self.sink = sink_into(engine, directory, self.state, clock=lambda: self.now)
        patch.setattr(database, "open_by_reason", self._count)

    def upkeep(self, after_s: float = 0.0) -> Mapping[str, int] | None:
        """The open dead letters by reason that are known afterwards."""
        self.now += after_s
        self.sink.upkeep(news=False)
        return self.state.open_dead_letters

    def _count(self, engine: object) -> Mapping[str, int]:
        answer = self.answers.pop(0)
        if isinstance(answer, SqlError):
            raise answer
        return answer


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(tmp_path, monkeypatch)


def test_open_dead_letters_are_counted_every_half_minute(counting: Counting) -> None:
    counting.answers = [{"bad-status": 1}, {"bad-status": 2}]
    before = [counting.upkeep() for _ in range(100)]

    after = counting.upkeep(WATCH_EVERY_S)

    assert {(number or {})["bad-status"] for number in before} == {1}
    assert after is not None and (after["bad-status"], after["too-old"]) == (2, 0)


def test_new_dead_letters_are_counted_within_a_second(counting: Counting) -> None:
    counting.answers = [{}, {"no-key": 1}]
    counting.upkeep()
    garbage = doubles.delivery(message=new_message("metricOutput", "garbage"))

    counting.sink.load([garbage])

    numbers = [(counting.upkeep(after_s) or {}).get("no-key", 0) for after_s in (0, COUNT_EVERY_S)]
    assert numbers == [0, 1]


def test_an_idle_daemon_notices_that_the_database_fails_recovers_and_was_upgraded(
    counting: Counting, tmp_path: Path
) -> None:
    away, failed = DatabaseAway("connection refused"), StatementFailed("no table")
    counting.answers = [{}, away, {}, failed, {}]
    waits = []
    for _ in range(4):
        counting.upkeep(WATCH_EVERY_S)
        waits.append(counting.state.waiting_since is not None)
    with sqlite3.connect(tmp_path / "sam.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")

    assert waits == [False, True, False, False], "a failure to count stops nothing"
    with pytest.raises(SchemaMismatch, match="newer"):
        counting.upkeep(WATCH_EVERY_S)
