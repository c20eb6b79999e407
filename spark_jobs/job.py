"""One report over a range of days, end to end: read, fold, write, publish."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from datetime import date
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from sqlalchemy import Engine

from spark_jobs import database_inputs, inputs, run_record
from spark_jobs.availability import figures
from spark_jobs.days import DAY_S, Period, day_number, day_start
from spark_jobs.errors import MixedVOs
from spark_jobs.expected import DayExpectation, expect
from spark_jobs.groups import Member
from spark_jobs.levels import ALL_NAMES, METRIC
from spark_jobs.profile import Profile
from spark_jobs.run_record import DayFacts
from spark_jobs.status import STATUSES
from spark_jobs.storage import Storage, Window
from spark_jobs.timeline import SITE_KEYS, segments, timelines
from sql.engine import reading
from sql.errors import SqlError

_ENDPOINT = "day int, site string, service_flavour string, host_name string"
_ENDPOINTS = f"{_ENDPOINT}, first_site boolean"
_SPANS = f"{_ENDPOINT}, start bigint, end bigint"

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
    change_no: int,
    clock: Callable[[], int],
    progress: Progress,
) -> Summary:
    """Compute the days of the period and publish them together.

    `change_no` is what sql.news.take_changes gave before.

    Raises:
        MixedVOs: results of several VOs meet, and the profile names none.
        AnotherRun: a later run of one of the days published first.
    """
    now = clock()
    with _keeping() as keep:
        progress("reading topology and downtimes")
        expected = _expectations(engine, profile, period, now)
        frames = _Frames.of(Storage(spark, engine), expected, profile, period, now, keep)
        progress("counting results")
        facts = _facts(engine, expected, frames.counts(profile), profile, now)
        run_ids = run_record.begin(engine, profile, facts, change_no, now)
        with _failing(engine, run_ids):
            progress(f"folding {sum(each.results_read for each in facts)} results")
            days = {day_number(f.day): run_id for f, run_id in zip(facts, run_ids, strict=True)}
            _write(frames.storage, frames.segments(profile, keep), days, progress)
            progress("publishing")
            published = run_record.publish(engine, profile, facts, run_ids, clock())
    return Summary(profile.name, period, facts, published.changes)


@dataclass(frozen=True)
class _Frames:
    """What a report reads, as Spark tables; `now` is the time of the run."""

    storage: Storage
    now: int
    endpoints: DataFrame
    spans: DataFrame
    tally: DataFrame
    results: DataFrame

    @classmethod
    def of(
        cls,
        storage: Storage,
        expected: Sequence[DayExpectation],
        profile: Profile,
        period: Period,
        now: int,
        keep: Keep,
    ) -> _Frames:
        start, end = day_start(period.first), min(day_start(period.last) + DAY_S, now)
        last_id = storage.newest_result()
        return cls(
            storage,
            now,
            storage.table(_ENDPOINTS, [row for day in expected for row in _endpoint_rows(day)]),
            storage.table(_SPANS, [row for day in expected for row in _span_rows(day)]),
            keep(storage.tally(Window(start - DAY_S, end, last_id))),
            storage.results(Window(start, end, last_id), profile.vo, profile.fqan),
        )

    def counts(self, profile: Profile) -> list[dict[str, Any]]:
        """The rows of inputs.counts.

        Raises:
            MixedVOs: results of several VOs meet, and the profile names none.
        """
        if profile.vo is None:
            mixed = inputs.mixed_vos(self.tally, self.endpoints, profile).limit(3)
            if found := self.storage.rows(mixed):
                raise MixedVOs(_mixed(found))
        return self.storage.rows(inputs.counts(self.tally, self.endpoints, profile))

    def segments(self, profile: Profile, keep: Keep) -> DataFrame:
        """The timelines of all levels."""
        # One shuffle, whose keys are in the keys of every level: no later step moves a row.
        partitions = self.storage.partitions
        rows = inputs.metric_rows(self.results, self.tally, self.endpoints, profile)
        events = inputs.downtime_events(self.spans, self.now)
        levels = timelines(
            rows.repartition(partitions, *SITE_KEYS),
            events.repartition(partitions, *SITE_KEYS),
            profile,
            self.now,
            keep,
        )
        return keep(segments(levels, self.now))


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


def _expectations(
    engine: Engine, profile: Profile, period: Period, now: int
) -> list[DayExpectation]:
    with reading(engine) as connection:
        known = database_inputs.memberships(connection, period)
        downtimes = database_inputs.downtimes(connection, period)
    return [expect(day, known, downtimes, profile, now) for day in period.days()]


def _endpoint_rows(expected: DayExpectation) -> Iterator[tuple[object, ...]]:
    seen = set()
    for each in expected.endpoints:
        key = (each.service_flavour, each.host_name)
        yield (day_number(expected.day), *astuple(each), key not in seen)
        seen.add(key)


def _span_rows(expected: DayExpectation) -> Iterator[tuple[object, ...]]:
    for each in expected.spans:
        yield (day_number(expected.day), *astuple(each.endpoint), each.start, each.end)


def _mixed(rows: Sequence[Mapping[str, Any]]) -> str:
    told = [
        f"{row['host_name']} {row['service_flavour']} {row['metric_name']}: "
        + ", ".join(vo or "no VO" for vo in row["vos"])
        for row in rows
    ]
    words = "; ".join(told)
    return f'results of several VOs for one instance ({words}): name one in the profile (vo = "…")'


def _facts(
    engine: Engine,
    expected: Sequence[DayExpectation],
    rows: Sequence[Mapping[str, Any]],
    profile: Profile,
    now: int,
) -> list[DayFacts]:
    counted = {row["day"]: row for row in rows}
    with reading(engine) as connection:
        return [
            _day_facts(each, counted, database_inputs.members(connection, each.day), profile, now)
            for each in expected
        ]


def _day_facts(
    expected: DayExpectation,
    counted: Mapping[int, Mapping[str, Any]],
    members: Sequence[Member],
    profile: Profile,
    now: int,
) -> DayFacts:
    number = day_number(expected.day)
    own, before = counted.get(number, {}), counted.get(number - 1, {})
    return DayFacts(
        day=expected.day,
        until=now if now < day_start(expected.day) + DAY_S else None,
        results_read=own.get("read") or 0,
        results_ignored={reason: own[reason] for reason in inputs.REASONS if own.get(reason)},
        instances=expected.instances(profile),
        results_digest=f"{own.get('digest') or 0} {before.get('carried_digest') or 0}",
        topology_digest=expected.topology_digest,
        downtimes_digest=expected.downtimes_digest,
        members=members,
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
