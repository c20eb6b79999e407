"""`prune` gives way to concurrent loaders and readers, and the next prune completes it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from itertools import count
from time import monotonic, perf_counter

from sqlalchemy import Engine, text

from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.load import load
from sam_pipeline.sql.removal.pruning.prune import prune
from sam_pipeline.sql.removal.pruning.request import bounds_of
from tests.support.builders import metric_message, metric_result
from tests.support.database.dialects import only_on
from tests.support.database.old_results import (
    TODAY,
    days_ago,
    details_by_age,
    fill,
    horizon,
    prune_now,
    results_by_age,
)
from tests.support.database.sql_rows import query
from tests.support.waiting import eventually

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
def test_a_prune_waits_for_a_short_reader(engine: Engine) -> None:
    fill(engine, range(6))
    reader = open_after(engine, READ_DAY, age=5)
    reader.__enter__()
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        if not pauses:
            reader.__exit__(None, None, None)
        pauses.append(seconds)

    pruned = prune(engine, bounds_of(TODAY, 3, None), sleep=sleep)

    assert (pruned.left, pruned.not_dropped, len(pauses)) == ((), (), 1)
    assert results_by_age(engine) == PRUNED


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
