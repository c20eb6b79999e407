"""One report over a range of days, end to end: read, fold, write, publish."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from sqlalchemy import Engine

from spark_jobs import inputs, run_record
from spark_jobs.availability import figures
from spark_jobs.days import DAY_S, Period, day_number, day_of, day_start
from spark_jobs.errors import MixedVOs
from spark_jobs.levels import ALL_NAMES, METRIC
from spark_jobs.profile import Profile
from spark_jobs.run_record import DayFacts
from spark_jobs.session import PARTITIONS
from spark_jobs.status import STATUSES
from spark_jobs.storage import Storage
from spark_jobs.timeline import SITE_KEYS, segments, timelines
from sql.errors import SqlError

# Several slices of time a core: they come out uneven.
_SLICES_PER_CORE = 2

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Summary:
    """What a run did."""

    report: str
    period: Period
    facts: Sequence[DayFacts]
    changes: int

    @property
    def results(self) -> int:
        return sum(each.results_read for each in self.facts)

    @property
    def instances(self) -> int:
        """The most metric instances that were expected on one day."""
        return max(each.instances for each in self.facts)

    @property
    def until(self) -> int | None:
        """The time of the run, if the last day is still open."""
        return self.facts[-1].until

    @property
    def ignored(self) -> dict[str, int]:
        """How many results don't count, by reason."""
        totals = {r: sum(f.results_ignored.get(r, 0) for f in self.facts) for r in inputs.REASONS}
        return {reason: count for reason, count in totals.items() if count}

    @property
    def days_without_data(self) -> list[date]:
        """Days on which no result counts."""
        return [
            each.day
            for each in self.facts
            if each.results_read == sum(each.results_ignored.values())
        ]


def run(
    spark: SparkSession,
    engine: Engine,
    profile: Profile,
    period: Period,
    clock: Callable[[], int],
    progress: Progress,
) -> Summary:
    """Compute the days of the period and publish them together.

    Raises:
        MixedVOs: results of several VOs meet, and the profile names none.
        AnotherRun: a later run of one of the days published first.
    """
    now = clock()
    storage = Storage(spark, engine)
    with _keeping() as keep:
        progress("reading topology, downtimes and counts")
        read = _Inputs.read(storage, profile, _Window.of(period, now), _days(spark, period), keep)
        facts = _facts(engine, storage.rows(read.facts(profile)), now)
        run_ids = run_record.begin(engine, profile, facts, now)
        with _failing(engine, run_ids):
            progress(f"folding {sum(each.results_read for each in facts)} results")
            days = {day_number(f.day): run_id for f, run_id in zip(facts, run_ids, strict=True)}
            _write(storage, read.segments(spark, profile, keep), days, progress)
            progress("publishing")
            changes = run_record.publish(engine, profile, facts, run_ids, clock())
    return Summary(profile.name, period, facts, changes)


@dataclass(frozen=True)
class _Window:
    """Seconds [start, end) of the days asked for, cut at `now`, the time of the run."""

    start: int
    end: int
    now: int

    @classmethod
    def of(cls, period: Period, now: int) -> _Window:
        return cls(day_start(period.first), min(day_start(period.last) + DAY_S, now), now)


@dataclass(frozen=True)
class _Inputs:
    """What the database holds for the window."""

    window: _Window
    days: DataFrame
    endpoints: DataFrame
    spans: DataFrame
    tally: DataFrame
    results: DataFrame

    @classmethod
    def read(
        cls, storage: Storage, profile: Profile, window: _Window, days: DataFrame, keep: Keep
    ) -> _Inputs:
        last_id = storage.newest_result()
        topology = storage.topology(window.start, window.end)
        endpoints = keep(inputs.expected_endpoints(topology, days, profile))
        downtimes = storage.downtimes(window.start, window.end)
        spans = keep(inputs.downtime_spans(downtimes, endpoints, profile, window.now))
        tally = keep(storage.tally(window.start - DAY_S, window.end, last_id))
        slices = _SLICES_PER_CORE * storage.parallelism
        results = storage.results(window.start, window.end, last_id, slices)
        return cls(window, days, endpoints, spans, tally, results)

    def facts(self, profile: Profile) -> DataFrame:
        return inputs.facts(self.tally, self.endpoints, self.spans, self.days, profile)

    def segments(self, spark: SparkSession, profile: Profile, keep: Keep) -> DataFrame:
        # One shuffle, whose keys are in the keys of every level: no later step moves a row.
        partitions = int(spark.conf.get(PARTITIONS) or 1)
        now = self.window.now
        carried = inputs.carried(self.tally, profile)
        rows = inputs.metric_rows(self.results, carried, self.endpoints)
        events = inputs.downtime_events(self.spans, now)
        levels = timelines(
            rows.repartition(partitions, *SITE_KEYS),
            events.repartition(partitions, *SITE_KEYS),
            profile,
            now,
            keep,
        )
        return keep(segments(levels, now))


Keep = Callable[[DataFrame], DataFrame]


@contextmanager
def _keeping() -> Iterator[Keep]:
    """Persists small tables that are read several times, until the end of the block."""
    kept: list[DataFrame] = []

    def keep(frame: DataFrame) -> DataFrame:
        kept.append(frame.persist())
        return frame

    try:
        yield keep
    finally:
        for frame in kept:
            frame.unpersist()


@contextmanager
def _failing(engine: Engine, run_ids: Sequence[int]) -> Iterator[None]:
    """Marks the runs as failed when the block fails; what was published before stays."""
    try:
        yield
    except BaseException:
        with suppress(SqlError):
            run_record.fail(engine, run_ids)
        raise


def _days(spark: SparkSession, period: Period) -> DataFrame:
    numbers = spark.range(day_number(period.first), day_number(period.last) + 1, 1, 1)
    return numbers.select(F.col("id").cast("int").alias("day"))


def _facts(engine: Engine, rows: Sequence[Mapping[str, Any]], now: int) -> list[DayFacts]:
    """The rows of inputs.facts, one per day, as facts."""
    mixed = [instance for row in rows for instance in row["mixed"] or ()]
    if mixed:
        raise MixedVOs(
            f"results of several VOs for one instance ({'; '.join(mixed[:3])}): "
            'name one in the profile (vo = "…")'
        )
    ordered = sorted(rows, key=lambda row: int(row["day"]))
    return [_day_facts(engine, row, day_of(row["day"]), now) for row in ordered]


def _day_facts(engine: Engine, row: Mapping[str, Any], day: date, now: int) -> DayFacts:
    ignored = {reason: count for reason, count in row["ignored"] or () if count}
    return DayFacts(
        day=day,
        until=now if now < day_start(day) + DAY_S else None,
        results_read=row["read"] or 0,
        results_ignored=ignored,
        instances=row["instances"] or 0,
        results_digest=str(row["results_digest"] or 0),
        topology_digest=str(row["topology_digest"] or 0),
        downtimes_digest=str(row["downtimes_digest"] or 0),
        members=run_record.members_on(engine, day),
    )


def _write(
    storage: Storage,
    segments: DataFrame,
    run_ids: Mapping[int, int],
    progress: Progress,
) -> None:
    run_id = _run_of_day(run_ids)
    timeline = segments.select(
        run_id,
        "level",
        *ALL_NAMES,
        F.col("at").alias("start_time"),
        F.col("until").alias("end_time"),
        F.get(F.lit(list(STATUSES)), F.col("status")).alias("status"),
    )
    storage.write(timeline, "timeline_segment")
    progress("adding up seconds")
    summed = figures(segments.where(F.col("level") != METRIC)).withColumn("run_id", run_id)
    storage.write(summed, "{level}_figure")


def _run_of_day(run_ids: Mapping[int, int]) -> Column:
    pairs = [F.lit(number) for pair in run_ids.items() for number in pair]
    return F.element_at(F.create_map(*pairs), F.col("day")).alias("run_id")
