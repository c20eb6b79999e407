"""What Spark's Python workers do: read slices of results, then count, fold and write.

Every worker process imports this module, so it imports neither SQLAlchemy nor Spark.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import csv

from sam_pipeline.spark_jobs.compute.folding import (
    COUNTS,
    NOT_IN_TOPOLOGY,
    REASONS,
    Level,
    MetricStretches,
    Plan,
    PlannedDay,
    Timeline,
    fold,
)
from sam_pipeline.spark_jobs.compute.sources.database_slices import Connection, opened
from sam_pipeline.spark_jobs.compute.stretches import Stretches, concatenated, newest, second_of
from sam_pipeline.spark_jobs.rules.levels import FIGURE_NAMES, SECONDS, SITE, WITH_FIGURES
from sam_pipeline.spark_jobs.rules.shares import (
    Integers,
    availability,
    reliability,
    seconds_per_status,
)
from sam_pipeline.spark_jobs.rules.statuses import STATUSES
from sam_pipeline.sql.archive.digests import Hashes, digest_of_results

SEGMENTS = "timeline_segment"
TIMES = ("start_time", "end_time")

# The codes of the statuses in the order of SECONDS.
_CODES = [STATUSES.index(name.removesuffix("_s").upper()) for name in SECONDS]

Rows = tuple[str, pa.Table]
"""The name of a report table, and rows for it."""


class Slice(Protocol):
    """A part of the results of a day, or of the last ones of some days, that one task reads."""

    @property
    def day(self) -> int:
        """The last day of its results, in days since the epoch."""

    def read(self) -> Iterator[Stretches]:
        """The stretches, of instances by their numbers.

        Raises:
            TaskError: the source cannot be read.
        """


@dataclass(frozen=True)
class Work:
    """What every task knows.

    Args:
        connection: how rows are stored.
        slices: parts of the results, each within a day.
        first_day: the first day of the reports, in days since the epoch.
        days, groups: the number of days and of groups of sites; each pair is a partition.
        group, vo, keys: of each instance, by its number.
        look_back: how many days before a day the results of each instance count.
        plans: of each report.
        stores: whether rows are stored; if not, the driver gets those of the figures of sites.
    """

    connection: Connection
    slices: Sequence[Slice]
    first_day: int
    days: int
    groups: int
    group: Integers
    vo: Integers
    keys: Hashes
    look_back: Integers
    plans: Sequence[Plan]
    stores: bool = True

    def in_parts(self, days_at_once: int) -> Iterator[Work]:
        """The work on some days after the other, each with the results before it that count."""
        days_before = int(self.look_back.max(initial=1))
        for low in range(0, self.days, days_at_once):
            high = min(low + days_at_once, self.days)
            before, end = self.first_day + low - days_before, self.first_day + high
            yield replace(
                self,
                slices=[piece for piece in self.slices if before <= piece.day < end],
                first_day=self.first_day + low,
                days=high - low,
                plans=[plan._replace(days=plan.days[low:high]) for plan in self.plans],
            )


@dataclass(frozen=True)
class ResultCounts:
    """The results of a report and day, or of a part of it.

    `ignored` counts the results that do not count, by REASONS. The digests, of the results that
    count and of the last ones before the day, are sums modulo 2⁶⁴, so they do not depend on the
    order of the results. `mixed` are things with results of several VOs: (thing, VO).
    """

    read: int = 0
    ignored: Sequence[int] = (0,) * len(REASONS)
    digest: int = 0
    carried_digest: int = 0
    mixed: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True)
class Folded:
    """What a task did for a day: the counts of each report, and the number of its segments.

    The day is in days since the epoch. `left` are rows that the driver must store.
    """

    day: int
    counts: Sequence[ResultCounts]
    segments: int
    left: Sequence[Rows]


def read_slice(work: Work, number: int) -> Iterator[tuple[int, Stretches]]:
    """The stretches of a slice for its day, and the newest of each instance for the days after it.

    Each comes with the number of its partition.
    """
    piece = work.slices[number]
    slice_day = piece.day - work.first_day
    for part in piece.read():
        last = newest(part)
        days_left = work.look_back[last.instance]
        for day in range(max(slice_day, 0), work.days):
            rows = part if day == slice_day else last.where(days_left >= day - slice_day)
            if not len(rows.instance):
                break
            group_of_row = work.group[rows.instance]
            for group in range(work.groups):
                yield day * work.groups + group, rows.where(group_of_row == group)


def fold_and_write(
    work: Work, partition: int, parts: Iterable[tuple[int, Stretches]]
) -> Iterator[Folded]:
    """Fold a day of a group of sites for every report, and store the rows in one transaction."""
    with_figures = WITH_FIGURES if work.stores else (SITE,)
    number, group = divmod(partition, work.groups)
    stretches = concatenated([part for _, part in parts])
    counts, rows = [], []
    for plan in work.plans:
        day = plan.days[number]
        measured, of_report = count(plan, day, stretches, work.vo, work.keys)
        counts.append(of_report)
        for level, timeline in fold(plan, day, group, measured):
            if work.stores:
                rows.append((SEGMENTS, _segments(level, timeline, day.run_id)))
            if level.name in with_figures:
                rows.append(("figure", _figures(level, timeline, day.run_id)))
    segments = sum(of_table.num_rows for table, of_table in rows if table == SEGMENTS)
    # A file of SQLite has one writer at a time: the driver.
    if "sqlite" in work.connection or not work.stores:
        yield Folded(work.first_day + number, counts, segments, rows)
        return
    with opened(work.connection) as database, database, database.cursor() as cursor:
        # Arrow writes times without a zone ten times faster.
        cursor.execute("SET LOCAL TIME ZONE 'UTC'")
        for table, of_table in rows:
            _copy(cursor, table, of_table)
    yield Folded(work.first_day + number, counts, segments, [])


def added_up(parts: Iterable[ResultCounts]) -> ResultCounts:
    total = ResultCounts()
    for part in parts:
        total = ResultCounts(
            total.read + part.read,
            [a + b for a, b in zip(total.ignored, part.ignored, strict=True)],
            (total.digest + part.digest) % 2**64,
            (total.carried_digest + part.carried_digest) % 2**64,
            [*total.mixed, *part.mixed],
        )
    return total


def count(
    plan: Plan, day: PlannedDay, stretches: Stretches, vo: Integers, keys: Hashes
) -> tuple[MetricStretches, ResultCounts]:
    """What counts for the report, of the stretches of a day and the last results before it.

    Args:
        vo, keys: the number of the VO and the key (instances.py) of each instance.
    """
    instance = stretches.instance
    position, thing = plan.metrics.follow(instance)
    counts = (plan.refused[instance[position]] == COUNTS) & day.metrics[thing]
    counts &= second_of(stretches.packed[position]) >= day.start - plan.look_back[thing]
    position, thing = position[counts], thing[counts]
    is_counted = np.zeros(len(instance), bool)
    is_counted[position] = True
    reason = plan.refused[instance]
    reason = np.where((reason == COUNTS) & ~is_counted, REASONS.index(NOT_IN_TOPOLOGY), reason)
    results = np.bincount(reason, stretches.results, len(REASONS) + 1).astype(np.int64)

    counted = stretches.where(is_counted)
    before = counted.where(second_of(counted.packed) < day.start)
    carried = newest(before.where(np.lexsort((before.packed, before.instance))))
    mixed: list[tuple[int, int]] = []
    if plan.one_vo:
        pairs = np.unique(np.column_stack([thing, vo[instance[position]]]), axis=0)
        _, of_pair, vos = np.unique(pairs[:, 0], return_inverse=True, return_counts=True)
        mixed = [(int(a), int(b)) for a, b in pairs[vos[of_pair] > 1]]
    of_part = ResultCounts(
        int(results.sum()),
        results[: len(REASONS)].tolist(),
        int(np.sum(keys[counted.instance] * counted.check)),
        digest_of_results(keys[carried.instance], carried.packed),
        mixed,
    )
    return MetricStretches(thing, stretches.packed[position], stretches.last[position]), of_part


def _segments(level: Level, timeline: Timeline, run_id: int) -> pa.Table:
    count = len(timeline.thing)
    columns = {
        "run_id": pa.repeat(run_id, count),
        "level": pa.repeat(level.name, count),
        **_names(level, timeline.thing),
        "start_time": timeline.start,
        "end_time": timeline.end,
        "status": pa.DictionaryArray.from_arrays(pa.array(timeline.status), list(STATUSES)),
    }
    return pa.table(columns)


def _figures(level: Level, timeline: Timeline, run_id: int) -> pa.Table:
    lengths = timeline.end - timeline.start
    all_seconds = seconds_per_status(timeline.thing, timeline.status, lengths, len(level.group))
    things = np.flatnonzero(all_seconds.any(axis=1))
    seconds = all_seconds[things]
    names = _names(level, things)
    columns = {
        "run_id": pa.repeat(run_id, len(things)),
        "level": pa.repeat(level.name, len(things)),
        **{name: names[name] for name in FIGURE_NAMES},
        "availability": pa.array(availability(seconds)),
        "reliability": pa.array(reliability(seconds)),
        **dict(zip(SECONDS, seconds[:, _CODES].T, strict=True)),
    }
    return pa.table(columns)


def _names(level: Level, things: Integers) -> dict[str, pa.ChunkedArray]:
    names = level.names.take(pa.array(things))
    return dict(zip(names.column_names, names.columns, strict=True))


def _copy(cursor: Any, table: str, rows: pa.Table) -> None:
    """Copy rows into a table of PostgreSQL."""
    for index, name in enumerate(rows.column_names):
        if name in TIMES:
            times = rows.column(index).cast(pa.timestamp("s"))
            rows = rows.set_column(index, name, times)
    body = io.BytesIO()
    csv.write_csv(rows, body, csv.WriteOptions(include_header=False))
    body.seek(0)
    # Strings are quoted, so an empty string is not a null.
    columns = ", ".join(rows.column_names)
    cursor.copy_expert(f"COPY {table} ({columns}) FROM STDIN (FORMAT csv)", body)
