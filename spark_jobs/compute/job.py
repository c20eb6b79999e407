"""Reports over a range of days, end to end: read once, then fold, write and publish each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from sqlalchemy import Engine

from sam_pipeline.schema.program.progress import Stage
from sam_pipeline.spark_jobs.compute import rows as inputs
from sam_pipeline.spark_jobs.compute.availability import figures
from sam_pipeline.spark_jobs.compute.folding import SEGMENTS, folding
from sam_pipeline.spark_jobs.compute.storage import Reading, Storage
from sam_pipeline.spark_jobs.errors import MixedVOs, SparkFailed
from sam_pipeline.spark_jobs.inputs import announced as database_inputs
from sam_pipeline.spark_jobs.inputs.expected import DayExpectation, expect
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, day_number, day_start
from sam_pipeline.spark_jobs.rules.groups import Member
from sam_pipeline.spark_jobs.rules.levels import ALL_NAMES, METRIC
from sam_pipeline.spark_jobs.rules.statuses import STATUSES
from sam_pipeline.spark_jobs.runs import record as run_record
from sam_pipeline.spark_jobs.runs.record import DayFacts, Published
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.errors import SqlError

_ENDPOINTS = "day int, site string, service_flavour string, host_name string, first_site boolean"
_COVERS = (
    "day int, level string, site string, service_flavour string, host_name string,"
    " metric_name string, start bigint, end bigint"
)

Keep = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Summary:
    """What a run did."""

    report: str
    period: Period
    facts: Sequence[DayFacts]
    published: Published
    seconds: float

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
    profiles: Sequence[Profile],
    period: Period,
    change_no: int,
    clock: Callable[[], int],
    stage: Stage,
    published: Callable[[Summary], None] = lambda summary: None,
) -> list[Summary]:
    """Compute the days of the period for each report, and publish them together.

    `change_no` is what `take_changes` gave before. `published` is called for each report
    as soon as it is, as the next one may fail.

    Raises:
        MixedVOs: results of several VOs meet, and the profile names none.
        AnotherRun: a later run of one of the days published first.
    """
    now = clock()
    with _keeping() as keep:
        stage("reading topology, downtimes and exclusions")
        announced = _Announced.of(engine, period)
        results = _Results(Storage(spark, engine), announced, profiles, now, keep)
        summaries = []
        for profile in profiles:
            summary = _report(engine, profile, announced, results, change_no, clock, stage)
            published(summary)
            summaries.append(summary)
        return summaries


def _report(
    engine: Engine,
    profile: Profile,
    announced: _Announced,
    results: _Results,
    change_no: int,
    clock: Callable[[], int],
    stage: Stage,
) -> Summary:
    began, now, storage = time.monotonic(), results.now, results.storage
    expected = announced.expected(profile, now)
    with _keeping() as keep:
        stage(f"{profile.name}: reading results")
        read = results.of(profile)
        endpoints = keep(storage.table(_ENDPOINTS, [r for d in expected for r in _endpoints(d)]))
        counted = _counts(storage, inputs.tally(read), endpoints, profile)
        facts = _facts(announced, expected, counted, results, profile)
        run_ids = run_record.begin(engine, profile, facts, change_no, now)
        with _failing(engine, run_ids):
            stage(f"{profile.name}: folding {sum(each.results_read for each in facts)} results")
            covers = storage.table(_COVERS, [row for day in expected for row in _covers(day)])
            rows = inputs.rows(read, covers, endpoints, profile)
            found = keep(_timelines(storage, rows, len(expected), profile, now))
            days = {day_number(f.day): run_id for f, run_id in zip(facts, run_ids, strict=True)}
            _write(storage, found, days, profile, stage)
            stage(f"{profile.name}: publishing")
            published = run_record.publish(engine, profile, facts, run_ids, clock())
    return Summary(profile.name, announced.period, facts, published, time.monotonic() - began)


@dataclass(frozen=True)
class _Announced:
    """What the database says about the period besides results."""

    period: Period
    memberships: Sequence[database_inputs.Membership]
    downtimes: Sequence[database_inputs.Downtime]
    exclusions: Sequence[database_inputs.Exclusion]
    members: Mapping[date, Sequence[Member]]

    @classmethod
    def of(cls, engine: Engine, period: Period) -> _Announced:
        with reading(engine) as connection:
            return cls(
                period,
                database_inputs.memberships(connection, period),
                database_inputs.downtimes(connection, period),
                database_inputs.exclusions(connection, period),
                {day: database_inputs.members(connection, day) for day in period.days()},
            )

    def expected(self, profile: Profile, now: int) -> list[DayExpectation]:
        return [
            expect(day, self.memberships, self.downtimes, self.exclusions, profile, now)
            for day in self.period.days()
        ]


class _Results:
    """The results of the period, read once for all reports that judge them alike."""

    def __init__(
        self,
        storage: Storage,
        announced: _Announced,
        profiles: Sequence[Profile],
        now: int,
        keep: Keep,
    ) -> None:
        self.storage = storage
        self.now = now
        self.newest = storage.newest_result()
        self._announced = announced
        self._apart_s = min((s for p in profiles for s in p.validities if s), default=None)
        self._keep = keep
        self._read: dict[object, DataFrame] = {}
        self._instances = storage.instances()

    def of(self, profile: Profile) -> DataFrame:
        """The stretches of spark_jobs.compute.rows, for this report."""
        key = profile.thresholds
        if key not in self._read:
            found = self.storage.stretches(self._wanted(profile))
            day = F.floor(F.shiftright("packed", 3) / DAY_S).cast("int").alias("day")
            named = found.join(F.broadcast(self._instances), on="instance_id")
            self._read[key] = self._keep(named.select(day, "*").drop("instance_id"))
        return self._read[key]

    def excluded(self, profile: Profile) -> dict[int, int]:
        """How many results of each day excluded monitoring hosts have made."""
        return self.storage.excluded(self._wanted(profile))

    def _wanted(self, profile: Profile) -> Reading:
        return Reading(
            self._announced.period,
            self.now,
            self.newest,
            tuple(self._announced.exclusions),
            profile if profile.thresholds else None,
            self._apart_s,
        )


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


def _endpoints(expected: DayExpectation) -> Iterator[tuple[object, ...]]:
    seen = set()
    day = day_number(expected.day)
    for each in expected.endpoints:
        key = (each.service_flavour, each.host_name)
        yield (day, each.site, *key, key not in seen)
        seen.add(key)


def _covers(expected: DayExpectation) -> Iterator[tuple[object, ...]]:
    day = day_number(expected.day)
    return ((day, *each) for each in expected.covers)


def _counts(
    storage: Storage, tally: DataFrame, endpoints: DataFrame, profile: Profile
) -> list[dict[str, Any]]:
    """The rows of inputs.counts.

    Raises:
        MixedVOs: results of several VOs meet, and the profile names none.
    """
    if profile.vo is None and (
        found := storage.rows(inputs.mixed_vos(tally, endpoints, profile).limit(3))
    ):
        raise MixedVOs(_mixed(found))
    return storage.rows(inputs.counts(tally, endpoints, profile))


def _mixed(rows: Sequence[Mapping[str, Any]]) -> str:
    told = [
        f"{row['host_name']} {row['service_flavour']} {row['metric_name']}: "
        + ", ".join(vo or "no VO" for vo in row["vos"])
        for row in rows
    ]
    words = "; ".join(told)
    return f'results of several VOs for one instance ({words}): name one in the profile (vo = "…")'


def _facts(
    announced: _Announced,
    expected: Sequence[DayExpectation],
    rows: Sequence[Mapping[str, Any]],
    results: _Results,
    profile: Profile,
) -> list[DayFacts]:
    counted = {row["day"]: row for row in rows}
    excluded = results.excluded(profile)
    return [
        _day_facts(each, counted, excluded, announced.members[each.day], results, profile)
        for each in expected
    ]


def _day_facts(
    expected: DayExpectation,
    counted: Mapping[int, Mapping[str, Any]],
    excluded: Mapping[int, int],
    members: Sequence[Member],
    results: _Results,
    profile: Profile,
) -> DayFacts:
    number = day_number(expected.day)
    own, before = counted.get(number, {}), counted.get(number - 1, {})
    ignored = {**own, inputs.EXCLUDED_HOST: excluded.get(number)}
    return DayFacts(
        day=expected.day,
        until=results.now if results.now < day_start(expected.day) + DAY_S else None,
        results_read=(own.get("read") or 0) + excluded.get(number, 0),
        results_ignored={
            reason: ignored[reason] for reason in inputs.REASONS if ignored.get(reason)
        },
        instances=expected.instances(profile),
        results_digest=f"{own.get('digest') or 0} {before.get('carried_digest') or 0}",
        topology_digest=expected.topology_digest,
        downtimes_digest=expected.downtimes_digest,
        exclusions_digest=expected.exclusions_digest,
        newest_result=results.newest,
        downtimes=expected.downtimes,
        exclusions=expected.exclusions,
        members=members,
    )


def _timelines(
    storage: Storage, rows: DataFrame, days: int, profile: Profile, now: int
) -> DataFrame:
    """The segments of all levels."""
    # All of a site's day meets in one task.
    brought = rows.repartition(storage.partitions(days), "site", "day")
    return brought.mapInArrow(folding(profile, now), SEGMENTS)


def _write(
    storage: Storage,
    found: DataFrame,
    run_ids: Mapping[int, int],
    profile: Profile,
    stage: Stage,
) -> None:
    run_id = _run_of_day(run_ids)
    timeline = found.select(
        run_id,
        "level",
        *ALL_NAMES,
        F.col("at").alias("start_time"),
        F.col("until").alias("end_time"),
        F.get(F.lit(list(STATUSES)), F.col("status")).alias("status"),
    )
    written = storage.write(timeline, "timeline_segment")
    # A cluster repeats the task of a worker that died, even if its rows were committed.
    if storage.segments_of(run_ids.values()) != written:
        raise SparkFailed("a task was repeated after it had stored its rows: run it again")
    stage(f"{profile.name}: adding up {written} segments")
    summed = figures(found.where(F.col("level") != METRIC)).withColumn("run_id", run_id)
    storage.write(summed, "{level}_figure")


def _run_of_day(run_ids: Mapping[int, int]) -> Column:
    pairs = [F.lit(number) for pair in run_ids.items() for number in pair]
    return F.element_at(F.create_map(*pairs), F.col("day")).alias("run_id")
