"""The database as a sink: what it reports, its work between two batches, and the name it holds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.consumer.core.inbox import DATABASE, Delivery, MessageOutcome, Outcome
from sam_pipeline.consumer.core.silence import Coverage, nothing_covered
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.errors import SourceTaken
from sam_pipeline.consumer.sinks import database, upkeep
from sam_pipeline.consumer.sinks.database import DatabaseSink, HeldName
from sam_pipeline.consumer.sinks.upkeep import ProbeWatch, make_tasks, run_due
from sam_pipeline.schema.messages.message import CLASS, Message
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.database.partitions import partitions
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.load import Loader
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.database_sink import sink_into
from tests.support.consumer.doubles import FakeSession, delivery
from tests.support.database.dialects import only_on
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import insert


def batch(*messages: Message) -> list[Delivery]:
    """Every other one from a session that answers, the first one included."""
    sessions = FakeSession(answers=True), FakeSession()
    return [delivery(sessions[at % 2], at, message) for at, message in enumerate(messages)]


@contextmanager
def loading(
    engine: Engine, directory: Path, state: State, letters: int = 1000
) -> Iterator[DatabaseSink]:
    with acting_as("loader", engine) as loader:
        yield sink_into(loader, directory, state, letters_per_hour=letters)


def load(sink: DatabaseSink, *messages: Message) -> Outcome:
    return sink.load(batch(*messages))


def test_the_database_reports_rows_duplicates_and_dead_letters_to_sessions_that_answer(
    engine: Engine, tmp_path: Path
) -> None:
    known, bad = metric_message(), metric_result(metricStatus="FINE")
    unknown = Message({CLASS: "weatherReport"}, b"")
    with loading(engine, tmp_path, State()) as sink:
        first = load(sink, known)
        outcome = load(sink, metric_message(bad), unknown, known, Message(*known))
        again = load(sink, metric_message(bad), known, unknown)

    [letter] = outcome.answers[0].letters
    assert first.answers == {0: MessageOutcome(DATABASE, rows=1)}
    assert (letter.number, letter.reason, "FINE" in letter.text) == (1, "bad-status", True)
    assert outcome.answers == {
        0: MessageOutcome(DATABASE, letters=(letter,)),
        2: MessageOutcome(DATABASE, duplicates=1),
    }
    assert again.answers[0].letters == (letter,), "a repeated dead letter is one"
    assert [record[:2] for record in again.answers[2].letters] == [(None, "unknown-class")]


def test_each_transaction_of_a_batch_is_a_sign_of_life(engine: Engine, tmp_path: Path) -> None:
    """The watchdog measures the time between two of them, and not that of the whole batch."""
    days = [format_time(NOW - timedelta(days=n)) for n in range(120)]
    state = State()
    with loading(engine, tmp_path, state) as sink:
        outcome = load(sink, metric_message(*(metric_result(timestamp=day) for day in days)))

    assert outcome.counts.rows_by_class == {"metricOutput": 120}
    assert state.turns >= 3


@only_on("postgresql", "own_url")
@pytest.mark.parametrize(("max_future_days", "ahead"), [(0, 1), (30, 3)])
def test_partitions_of_coming_days_exist_before_any_message_needs_them(
    own_engine: Engine, max_future_days: int, ahead: int
) -> None:
    today = datetime.now(UTC).date()
    limits = Limits(future=timedelta(days=max_future_days))
    with acting_as("loader", own_engine) as loader:
        run_due(
            make_tasks(Loader(loader, Catalogue(loader), limits), State().now, print), news=True
        )

    with reading(own_engine) as connection:
        days = {partition.day for partition in partitions(connection)}
    assert {today + timedelta(days=n) for n in range(ahead + 1)} <= days
    assert len(days) <= ahead + 2  # a day may have begun meanwhile


NOW = datetime.now(UTC).replace(microsecond=0)
INTERVAL = timedelta(minutes=5)


@pytest.fixture
def reported(engine: Engine) -> Engine:
    """The database after a probe of one host has reported five times."""
    times = [format_time(NOW - INTERVAL * number) for number in (6, 5, 4, 3, 2)]
    results = (metric_result(hostName="h", timestamp=time) for time in times)
    insert(engine, "metricOutput", *results)
    fold_all(engine)
    return engine


def test_the_rights_of_a_loader_suffice_to_find_a_silent_probe(reported: Engine) -> None:
    state = State()
    state.coverage = Coverage(NOW)
    with acting_as("loader", reported) as loader:
        ProbeWatch(loader, state).turn()

    [silence] = state.probe_silences.named
    assert silence.name.startswith("h ") and silence.last == NOW - 2 * INTERVAL
    assert state.probe_silences.silent == 1


def test_probes_are_judged_by_what_was_seen_and_is_folded(
    reported: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, folded = State(), True
    monkeypatch.setattr(upkeep, "is_folded", lambda engine, number: folded)
    fresh = ProbeWatch(reported, state)
    for coverage in (None, nothing_covered(NOW)):  # a daemon that has just started
        state.coverage = coverage
        fresh.turn()
        assert state.probe_silences.silent == 0

    folded = False
    state.coverage = Coverage(NOW)
    watch = ProbeWatch(reported, state)
    watch.turn()
    assert state.probe_silences.silent == 0
    state.coverage = Coverage(NOW - timedelta(days=1))  # judged is what was noted before
    folded = True
    watch.turn()

    assert state.probe_silences.silent == 1


NAME, STRANGER = "site-a", "reader"
LOCK = f"sam consumer {NAME}"
END_SESSIONS = text("""
    SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'sam-%'
""")

Hosts = Callable[..., HeldName]


@pytest.fixture
def on_host(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    """`on_host("one", shared=False)` is the name as a process of that host holds it."""
    monkeypatch.setattr(database, "GRACE_S", 0.2)
    with ExitStack() as stack:
        loader = stack.enter_context(acting_as("loader", engine))

        def make(host: str, shared: bool = False) -> HeldName:
            return stack.enter_context(closing(HeldName(loader, NAME, shared, host)))

        yield make


@only_on("postgresql")
def test_the_first_host_to_return_after_a_restart_of_the_server_holds_the_name(
    on_host: Hosts, engine: Engine
) -> None:
    first, second = on_host("one"), on_host("two")
    first.hold()
    first.close()
    second.hold()
    for holder, other in ((second, first), (first, second)):
        with writing(engine) as connection:
            connection.execute(END_SESSIONS)
        holder.hold()
        with pytest.raises(SourceTaken):
            other.hold()


@only_on("postgresql")
def test_hosts_that_share_a_name_hold_it_together_but_not_with_one_that_does_not(
    on_host: Hosts,
) -> None:
    on_host("one", shared=True).hold()
    on_host("two", shared=True).hold()

    with pytest.raises(SourceTaken):
        on_host("three").hold()


@only_on("postgresql")
@pytest.mark.parametrize("shared", [False, True])
def test_a_login_that_may_not_load_does_not_stop_a_consumer_and_is_named_once(
    on_host: Hosts, engine: Engine, caplog: pytest.LogCaptureFixture, shared: bool
) -> None:
    held, other = on_host("one", shared), on_host("two", shared=False)
    with acting_as(STRANGER, engine) as stranger, stranger.connect() as connection:
        lock = text("SELECT pg_advisory_lock(hashtextextended(:name, 0))")
        connection.execute(lock, {"name": LOCK})
        with caplog.at_level(logging.WARNING):
            held.hold()
            held.hold()
        # The end of a session is not waited for.
        connection.execute(text("SELECT pg_advisory_unlock_all()"))

    assert [STRANGER in record.getMessage() for record in caplog.records] == [True]
    held.hold()
    with pytest.raises(SourceTaken, match=f"{NAME}@one"):
        other.hold()
