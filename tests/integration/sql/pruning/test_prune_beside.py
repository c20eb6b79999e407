"""`prune` gives way to concurrent loaders and readers, and the next prune completes it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from time import monotonic, perf_counter

from sqlalchemy import Engine, text

from sam_pipeline.schema.messages.message import Message
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


@dataclass
class Loader:
    """Loads results of each day in turn, always with new times."""

    engine: Engine
    days: Sequence[date]
    stopped: bool = False
    waits: dict[date, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def run(self) -> None:
        catalogue = Catalogue(self.engine)
        self.waits = {day: [] for day in self.days}
        while not self.stopped and not self.errors:
            for day, waits in self.waits.items():
                message = results_at(datetime.combine(day, time(), UTC), seconds=len(waits))
                started = perf_counter()
                try:
                    loaded = load(self.engine, catalogue, [message], NOW)
                except Exception as error:
                    self.errors.append(str(error))
                    return
                waits.append(perf_counter() - started)
                self.errors += [f"dead letter: {reason}" for reason in loaded.dead_letters]


def results_at(midnight: datetime, seconds: int) -> Message:
    moment = format_time(midnight + timedelta(seconds=seconds))
    hosts = [f"loaded{number}.example.org" for number in range(PER_LOAD)]
    return metric_message(
        *(metric_result(hostName=host, timestamp=moment, detailsData="x") for host in hosts)
    )


@contextmanager
def open_after(engine: Engine, statement: str, age: int = 0) -> Iterator[None]:
    """Keep a transaction open after a statement, of the day of an age, while the block runs."""
    values = {"start": f"{days_ago(age)}T00:00:00Z", "end": f"{days_ago(age - 1)}T00:00:00Z"}
    with engine.connect() as connection:
        connection.execute(text(statement), values if ":" in statement else {}).all()
        yield


def test_a_concurrent_loader_waits_only_briefly_and_loses_nothing(engine: Engine) -> None:
    fill(engine, range(1, 7))
    today, pruned_day, last_pruned = days_ago(0), days_ago(8), days_ago(4)
    loader = Loader(engine, (today, pruned_day, last_pruned))
    thread = threading.Thread(target=loader.run)
    thread.start()

    end = monotonic() + 2
    while monotonic() < end:
        prune(engine, bounds_of(TODAY, 3, 1))
    loader.stopped = True
    thread.join(timeout=60)
    prune_now(engine, results=3, details=1)

    assert loader.errors == []
    assert max(max(waits) for waits in loader.waits.values()) < HANGS_S
    remaining = results_by_age(engine)
    assert remaining[0] == details_by_age(engine)[0] == len(loader.waits[today]) * PER_LOAD
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

    def is_stopped_after(max_steps: int) -> bool:
        """Whether the prune stopped, or was completed before."""
        lines: list[str] = []

        def on_progress(line: str) -> None:
            lines.append(line)
            if len(lines) > max_steps:
                raise Stopped

        bounds = bounds_of(TODAY, 3, 1)
        try:
            prune(engine, bounds, on_progress=on_progress, sleep=lambda seconds: None)
        except Stopped:
            return True
        return False

    steps, stopped = 0, True
    while stopped:
        fill(engine, range(1, 6))
        stopped = is_stopped_after(steps)
        assert horizon(engine) == days_ago(3)
        prune_now(engine, results=3, details=1)
        assert results_by_age(engine) == {age: count for age, count in PRUNED.items() if age}
        assert details_by_age(engine) == {1: 6}
        steps += 1
    assert steps > 2
