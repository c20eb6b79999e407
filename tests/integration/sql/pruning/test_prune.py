"""`prune` removes exactly the old rows; it gives way to loaders and readers, and is completed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from itertools import count
from time import monotonic, perf_counter

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.database.partitions import partitions
from sam_pipeline.sql.errors import DatabaseRefused
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.letters.dead_letter import LetterFilter
from sam_pipeline.sql.loading.load import load
from sam_pipeline.sql.removal import prune as prune_module
from sam_pipeline.sql.removal.prune import bounds_of, prune
from tests.support.builders import metric_message, metric_result
from tests.support.database.dialects import only_on
from tests.support.database.letters import list_dead_letters
from tests.support.database.old_results import (
    TODAY,
    changed_days,
    days_ago,
    details_by_age,
    everything,
    fill,
    forget_changes,
    horizon,
    prune_now,
    results_by_age,
    results_of,
)
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import insert, query
from tests.support.waiting import eventually

ALL, NEWEST = 6, 2
"""The number of results of a day: all, or only the newest of each instance."""


@pytest.mark.parametrize("batch_rows", [4, None])
def test_exactly_the_days_before_the_bounds_are_removed_and_a_dry_run_counts_them(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, batch_rows: int | None
) -> None:
    if batch_rows:  # batches that span days leave nothing behind
        monkeypatch.setattr(prune_module, "BATCH_ROWS", batch_rows)
    fill(engine, range(6))
    forget_changes(engine)
    before = everything(engine)

    counted = prune_now(engine, results=3, details=1, dry_run=True)
    assert everything(engine) == before
    pruned = prune_now(engine, results=3, details=1)

    assert results_by_age(engine) == {0: ALL, 1: ALL, 2: ALL, 3: ALL, 4: NEWEST}
    assert details_by_age(engine) == {0: ALL, 1: ALL}
    assert (horizon(engine), changed_days(engine)) == (days_ago(3), set())
    for told, done in ((counted.results, pruned.results), (counted.details, pruned.details)):
        assert (told.rows, told.partitions) == (done.rows, done.partitions)
        assert (done.rows or 0) + (done.partitions or 0) > 0
    if engine.dialect.name == "postgresql":  # emptied partitions are dropped
        with reading(engine) as connection:
            left = {(each.parent, (TODAY - each.day).days) for each in partitions(connection)}
        ages = {"metric_result": range(5), "metric_result_detail": range(2)}
        expected = {(parent, age) for parent, of_kind in ages.items() for age in of_kind}
        assert {partition for partition in left if partition[1] >= 0} == expected
    assert (pruned.left, pruned.not_dropped) == ((), ())
    after = everything(engine)
    again = prune_now(engine, results=3, details=1)
    assert everything(engine) == after
    assert not any((again.results.rows, again.results.partitions, again.details.partitions))


def test_newest_results_are_kept_of_as_many_days_as_a_published_report_looks_back(
    engine: Engine,
) -> None:
    began = "2026-01-01T00:00:00Z" if engine.dialect.name == "postgresql" else 0
    for report, state, look_back in (("x", "published", 3), ("y", "superseded", 9)):
        run = {"report": report, "state": state, "look_back": look_back}
        statement = "INSERT INTO run (report, day, started_at, state, look_back)"
        with writing(engine) as connection:
            connection.execute(
                text(f"{statement} VALUES (:report, :day, :began, :state, :look_back)"),
                {**run, "day": str(TODAY), "began": began},
            )
    fill(engine, range(8))

    counted = prune_now(engine, results=2, dry_run=True).results
    pruned = prune_now(engine, results=2).results
    after = everything(engine)
    prune_now(engine, results=4)  # the horizon stays

    assert (counted.rows, counted.partitions) == (pruned.rows, pruned.partitions)
    assert results_by_age(engine) == {0: ALL, 1: ALL, 2: ALL, 3: NEWEST, 4: NEWEST, 5: NEWEST}
    assert everything(engine) == after
    prune_now(engine, results=1)
    assert results_by_age(engine) == {0: ALL, 1: ALL, 2: NEWEST, 3: NEWEST, 4: NEWEST}


def test_the_worst_of_several_newest_results_is_kept(engine: Engine) -> None:
    at_once = [
        metric_result(gatheredAt=gatherer, metricStatus=status, timestamp="2026-11-18T23:00:00Z")
        for gatherer, status in [("a", "OK"), ("b", "CRITICAL"), ("c", "UNKNOWN")]
    ]
    earlier = metric_result(metricStatus="CRITICAL", timestamp="2026-11-18T22:00:00Z")
    insert(engine, "metricOutput", *at_once, earlier)
    numbers = dict(query(engine, "SELECT gathered_at, result_id FROM report_result"))

    prune_now(engine, results=1)

    remaining = query(engine, "SELECT gathered_at, status, result_id FROM report_result")
    assert remaining == [("b", "CRITICAL", numbers["b"])]


def test_the_input_of_the_next_report_is_unchanged(engine: Engine) -> None:
    fill(engine, range(5))
    insert(engine, "metricOutput", *results_of(days_ago(3), metricName="b", voName="atlas"))
    silent_since_noon = metric_result(metricName="a", timestamp=f"{days_ago(3)}T12:00:00Z")
    insert(engine, "metricOutput", silent_since_noon)
    inputs = """
        SELECT * FROM report_result AS r
        WHERE measured_at_s >= :start OR measured_at_s = (
            SELECT max(measured_at_s) FROM report_result AS newest
            WHERE newest.instance_id = r.instance_id AND newest.measured_at_s < :start
        )
        ORDER BY result_id
    """
    start = {"start": int(datetime.combine(days_ago(2), time(), UTC).timestamp())}
    before = query(engine, inputs, **start), query(engine, "SELECT * FROM current_status")

    prune_now(engine, results=2, details=1)

    assert query(engine, inputs, **start) == before[0]
    assert len(before[0]) == 3 * ALL + 2 * NEWEST + 1
    assert sorted(query(engine, "SELECT * FROM current_status")) == sorted(before[1])


def test_late_results_of_pruned_days_are_kept_until_the_next_prune(engine: Engine) -> None:
    """The horizon never moves back, and the current status does not change."""
    prune_now(engine, results=7)
    assert horizon(engine) == days_ago(7)  # also of an empty database
    insert(engine, "metricOutput", *results_of(days_ago(6), metricStatus="WARNING"))
    fill(engine, range(6))
    status = "SELECT host_name, status, since, measured_at FROM current_status ORDER BY host_name"
    before = query(engine, status)
    prune_now(engine, results=4)
    assert results_by_age(engine) == {0: ALL, 1: ALL, 2: ALL, 3: ALL, 4: ALL, 5: NEWEST}
    prune_now(engine, results=2)  # removes what the earlier one kept
    assert results_by_age(engine) == {0: ALL, 1: ALL, 2: ALL, 3: NEWEST}
    critical = results_of(days_ago(8), metricStatus="CRITICAL")
    late = results_of(days_ago(4), gatheredAt="late.example.org")
    insert(engine, "metricOutput", *critical, *late)

    prune_now(engine, results=5)

    assert horizon(engine) == days_ago(2)
    assert results_by_age(engine) == {0: ALL, 1: ALL, 2: ALL, 3: NEWEST, 4: ALL}
    assert query(engine, status) == before
    prune_now(engine, results=2)
    assert results_by_age(engine) == {0: ALL, 1: ALL, 2: ALL, 3: NEWEST}


# Audit rows and settled dead letters


def moments(engine: Engine, ages: Iterable[int]) -> list[dict[str, object]]:
    """Three times on the day of each age, as the tables store them."""
    of_day = (time(0, 0, 0), time(12, 0, 0), time(23, 59, 59))
    times = [datetime.combine(days_ago(age), at, UTC) for age in ages for at in of_day]
    if engine.dialect.name == "sqlite":
        return [{"at": int(moment.timestamp())} for moment in times]
    return [{"at": moment} for moment in times]


BATCH = text("""
    INSERT INTO loaded_batch (
        loaded_at, consumer, host, process_id, brokers, messages, rows, dead_letters, checks
    )
    VALUES (:at, 'site-a', 'h', 1, '{}', 1, 1, 0, 0)
""")
LETTER = text("""
    INSERT INTO dead_letter (
        message_id, record_number, message_class, reason, error, headers, body,
        body_bytes, body_digest, received_at, changed_at, state
    )
    VALUES (
        :id, 0, 'metricOutput', 'bad-status', '', '{}', :body, 0, :body, :long_ago, :at, :state
    )
""")


def load_batches(engine: Engine, *ages: int) -> None:
    with writing(engine) as connection:
        connection.execute(BATCH, moments(engine, ages))


def settle_letters(engine: Engine, state: str, *ages: int) -> None:
    """Dead letters received long ago and settled on these days."""
    values = {"long_ago": moments(engine, [1000])[0]["at"], "state": state, "body": b""}
    with writing(engine) as connection:
        for number, moment in enumerate(moments(engine, ages)):
            connection.execute(LETTER, {**values, **moment, "id": f"{state}-{number}"})


def batches_by_age(engine: Engine) -> Counter[int]:
    rows = query(engine, "SELECT loaded_at FROM load_audit")
    return Counter((TODAY - datetime.fromisoformat(moment).date()).days for (moment,) in rows)


def letters_by_state(engine: Engine) -> Counter[str]:
    return Counter(letter.state for letter in list_dead_letters(engine, LetterFilter(state=None)))


def test_audit_rows_and_settled_letters_are_removed_by_their_day_unless_they_can_be_restored(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune_module, "BATCH_ROWS", 4)
    load_batches(engine, 0, 1, 2, 3, 4, 9, 500)
    settle_letters(engine, "open", 300)
    settle_letters(engine, "replayed", 2, 3, 8, 11)
    settle_letters(engine, "dropped", 2, 7, 8, 9, 10, 12)
    prune_now(engine, results=1, details=1)  # kinds without an age are kept
    assert batches_by_age(engine).total() == 21

    counted = prune_now(engine, audit=3, letters=9, dry_run=True)
    pruned = prune_now(engine, audit=3, letters=9)

    assert batches_by_age(engine) == dict.fromkeys(range(4), 3)
    assert letters_by_state(engine) == {"open": 3, "replayed": 9, "dropped": 12}
    assert counted.audit.rows == pruned.audit.rows == 9
    assert counted.dead_letters.rows == pruned.dead_letters.rows == 9
    prune_now(engine, letters=2)
    assert letters_by_state(engine) == {"open": 3, "replayed": 3, "dropped": 6}
    if engine.dialect.name == "postgresql":
        with acting_as("loader", engine) as loader, pytest.raises(DatabaseRefused):
            prune_now(loader, audit=1)


# Beside loaders and readers -----------------------------------------------------------------------

NOW = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)
HANGS_S = 5.0
"""A loader that waits longer is blocked, even on a busy machine."""
PER_LOAD = 20
PRUNED = {0: 6, 1: 6, 2: 6, 3: 6, 4: 2}
READ_DAY = """
    SELECT count(*) FROM metric_result
    WHERE measured_at >= CAST(:start AS timestamptz) AND measured_at < CAST(:end AS timestamptz)
"""

# Only PostgreSQL has partitions, and locks on them.
partitioned = only_on("postgresql")


def load_until(stop: threading.Event, engine: Engine, waits: Mapping[date, list[float]]) -> None:
    """Load results of each day in turn, always with new times; `waits` are the times it took."""
    catalogue = Catalogue(engine)
    while not stop.is_set():
        for day, of_day in waits.items():
            moment = datetime.combine(day, time(), UTC) + timedelta(seconds=len(of_day))
            names = [f"loaded{number}.example.org" for number in range(PER_LOAD)]
            results = (
                metric_result(hostName=name, timestamp=format_time(moment), detailsData="x")
                for name in names
            )
            started = perf_counter()
            loaded = load(engine, catalogue, [metric_message(*results)], NOW)
            of_day.append(perf_counter() - started)
            assert loaded.dead_letters == {}


@contextmanager
def open_after(engine: Engine, statement: str, age: int = 0) -> Iterator[None]:
    """Keep a transaction open after a statement, of the day of an age, while the block runs."""
    values = {"start": f"{days_ago(age)}T00:00:00Z", "end": f"{days_ago(age - 1)}T00:00:00Z"}
    with engine.connect() as connection:
        connection.execute(text(statement), values if ":" in statement else {}).all()
        yield


def test_a_concurrent_loader_waits_only_briefly_and_loses_nothing(engine: Engine) -> None:
    fill(engine, range(1, 7))
    stop, today = threading.Event(), days_ago(0)
    waits: dict[date, list[float]] = {day: [] for day in (today, days_ago(8), days_ago(4))}
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(load_until, stop, engine, waits)
        end = monotonic() + 2
        try:
            while monotonic() < end:
                prune(engine, bounds_of(TODAY, 3, 1))
        finally:
            stop.set()
        loading.result(timeout=60)
    prune_now(engine, results=3, details=1)

    assert max(map(max, waits.values())) < HANGS_S
    remaining = results_by_age(engine)
    assert remaining[0] == details_by_age(engine)[0] == len(waits[today]) * PER_LOAD
    # Of the last pruned day, the newest of each instance.
    assert {**remaining, 0: 0} == {0: 0, 1: 6, 2: 6, 3: 6, 4: 2 + PER_LOAD}


@partitioned
def test_a_reader_delays_only_the_days_that_it_reads(engine: Engine) -> None:
    fill(engine, range(7))

    with open_after(engine, READ_DAY, age=5):
        first = prune_now(engine, results=3)
    assert first.left == ("metric_result_20261115",)
    assert results_by_age(engine) == {**PRUNED, 5: 6}
    assert horizon(engine) == days_ago(3)
    assert prune_now(engine, results=3).left == ()
    assert results_by_age(engine) == PRUNED
    fill(engine, [4])
    with open_after(engine, READ_DAY, age=4):  # the last pruned day stays whole
        assert prune_now(engine, results=3).left == ("metric_result_20261116",)
    assert results_by_age(engine) == {**PRUNED, 4: 6}
    fill(engine, [5])
    with open_after(engine, READ_DAY, age=1):  # of another day, only partitions are not dropped
        third = prune_now(engine, results=3)
        assert results_by_age(engine) == PRUNED

    assert third.left == ()
    names = {"metric_result_20261115", "metric_result_detail_20261115"}
    assert names <= {*third.not_dropped}
    assert prune_now(engine, results=3).not_dropped == ()


@partitioned
def test_a_partition_that_a_loader_is_about_to_fill_is_not_dropped(engine: Engine) -> None:
    fill(engine, range(6))
    with open_after(engine, READ_DAY, age=1):  # so that empty partitions stay
        prune_now(engine, results=3)
    new_name = metric_result(hostName="new.example.org", timestamp=f"{days_ago(5)}T08:00:00Z")
    waiting = """
        SELECT count(*) FROM pg_locks
        WHERE relation = CAST('metric_status' AS regclass) AND NOT granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    """

    with ThreadPoolExecutor(1) as pool:
        with open_after(engine, "SELECT lock_names()"):
            late = pool.submit(load, engine, Catalogue(engine), [metric_message(new_name)], NOW)
            eventually(lambda: query(engine, waiting) != [(0,)])
            prune_now(engine, results=3)
        loaded = late.result(timeout=30)

    assert (loaded.rows, loaded.dead_letters) == (1, {})
    assert results_by_age(engine)[5] == 1


def test_a_prune_stopped_after_any_step_is_completed_by_the_next(engine: Engine) -> None:
    class Stopped(Exception):
        pass

    def stop_after(steps: int) -> None:
        left = count(steps, -1)

        def on_progress(line: str) -> None:
            if next(left) == 0:
                raise Stopped

        prune(engine, bounds_of(TODAY, 3, 1), on_progress=on_progress, sleep=lambda seconds: None)

    steps, stopped = 0, True
    while stopped:
        fill(engine, range(1, 6))
        try:
            stop_after(steps)
            stopped = False
        except Stopped:
            pass
        assert horizon(engine) == days_ago(3)
        prune_now(engine, results=3, details=1)
        assert results_by_age(engine) == {age: count for age, count in PRUNED.items() if age}
        assert details_by_age(engine) == {1: 6}
        steps += 1
    assert steps > 2
