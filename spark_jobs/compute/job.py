"""Reports over a range of days: read, bring together by site and day, fold, write, publish."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import date
from itertools import chain
from typing import NamedTuple

import numpy as np
from pyspark import SparkContext
from sqlalchemy import Engine

from sam_pipeline.schema.program.progress import Stage
from sam_pipeline.spark_jobs.compute.counts import ResultCounts, added_up
from sam_pipeline.spark_jobs.compute.facts import Summary, day_facts
from sam_pipeline.spark_jobs.compute.plan import Plan
from sam_pipeline.spark_jobs.compute.planning import instance_groups, make_plan, site_groups
from sam_pipeline.spark_jobs.compute.sources.archive_results import ArchiveResults, survey_results
from sam_pipeline.spark_jobs.compute.sources.database_results import DatabaseResults, newest_result
from sam_pipeline.spark_jobs.compute.sources.instances import Instances, numbered, read_instances
from sam_pipeline.spark_jobs.compute.storage import Storage
from sam_pipeline.spark_jobs.compute.tasks import Folded, Work, fold_and_write, read_slice
from sam_pipeline.spark_jobs.errors import MixedVOs
from sam_pipeline.spark_jobs.inputs.announced import Announced, read_announced
from sam_pipeline.spark_jobs.inputs.archive.announced import read_archived
from sam_pipeline.spark_jobs.inputs.archive.days import FROM_DATABASE, ArchivedDays
from sam_pipeline.spark_jobs.inputs.expected import DayExpectation, expect
from sam_pipeline.spark_jobs.profiles.profile import Profile, Threshold
from sam_pipeline.spark_jobs.rules.days import Period, day_number
from sam_pipeline.spark_jobs.rules.levels import SECONDS
from sam_pipeline.spark_jobs.rules.seconds import Seconds
from sam_pipeline.spark_jobs.runs import record
from sam_pipeline.spark_jobs.runs.archived import change_numbers
from sam_pipeline.spark_jobs.runs.published import DayFigure
from sam_pipeline.sql.database.engine import reading

INSTANCES_PER_TASK = 50_000
"""About as many instances of a day are folded by one task, which limits its memory."""


class Inputs(NamedTuple):
    """What all reports of a run share, as read at the time `now` (epoch s).

    Days that are not `archived` are read from the database; their results are `stored`.
    """

    period: Period
    announced: Mapping[date, Announced]
    instances: Instances
    stored: DatabaseResults
    archived: ArchiveResults
    now: int

    def newest_result(self, day: date) -> int:
        """The highest result_id of the day's source."""
        days = self.archived.days
        return days.newest_result(day) if day in days else self.stored.newest


class StartedReport(NamedTuple):
    """A report, and for each of its days the expected things, and the run."""

    profile: Profile
    expected: Sequence[DayExpectation]
    run_ids: Sequence[int]


def run(
    context: SparkContext,
    engine: Engine,
    profiles: Sequence[Profile],
    period: Period,
    change_no: int,
    clock: Callable[[], int],
    stage: Stage,
    published: Callable[[Summary], None] = lambda summary: None,
    watching: Callable[[], AbstractContextManager[None]] = nullcontext,
    archived: ArchivedDays = FROM_DATABASE,
) -> list[Summary]:
    """Compute the days of the period for each report, and publish them together.

    Args:
        change_no: the number that `take_changes` returned before the call.
        published: called after each report is published, because the next one may fail.
        watching: encloses each job of Spark.
        archived: the days that are read from the archive instead of from the database.
    Raises:
        MixedVOs: several VOs measured one instance, and the profile names none.
        ArchiveError: a file of the archive cannot be read, or is not what its manifest says.
        AnotherRun: a later run published one of the days first.
    """
    storage = Storage(engine)
    look_back = max(profile.look_back for profile in profiles)
    inputs = _read_inputs(context, storage, period, look_back, clock(), stage, watching, archived)
    with reading(engine) as connection:
        changes = change_numbers(connection, archived, period, look_back, change_no)
    # Thresholds change results, so only reports with the same ones read them together.
    together: dict[tuple[Threshold, ...], list[Profile]] = {}
    for profile in profiles:
        together.setdefault(profile.thresholds, []).append(profile)
    summaries = []
    for same in together.values():
        began = time.monotonic()
        reports = []
        for profile in same:
            run_ids = record.begin(engine, profile, changes, inputs.now)
            reports.append(StartedReport(profile, _expected(inputs, profile), run_ids))
        run_ids = [run_id for report in reports for run_id in report.run_ids]
        with record.failing(engine, run_ids):
            stage(f"{', '.join(profile.name for profile in same)}: reading and folding results")
            work = _make_work(storage, inputs, reports, context.defaultParallelism)
            folded: list[Folded] = []
            for part in work.in_parts(storage.days_at_once(work.days, len(work.group))):
                with watching():
                    done = _distribute(context, part)
                folded += storage.store(done)
            storage.check(folded, run_ids)
            for number, report in enumerate(reports):
                stage(f"{report.profile.name}: publishing")
                counts = [
                    added_up(task.counts[number] for task in folded if task.day == day)
                    for day in range(work.first_day, work.first_day + work.days)
                ]
                _refuse_mixed_vos(work.plans[number], inputs.instances.vos, counts)
                summary = _publish(engine, inputs, report, counts, began, clock)
                published(summary)
                summaries.append(summary)
    return summaries


def site_days(
    context: SparkContext,
    engine: Engine,
    profile: Profile,
    period: Period,
    now: int,
    stage: Stage,
    watching: Callable[[], AbstractContextManager[None]] = nullcontext,
    archived: ArchivedDays = FROM_DATABASE,
) -> list[DayFigure]:
    """The figures of sites as `run` would publish them, of every day; nothing is stored.

    Raises:
        MixedVOs: several VOs measured one instance, and the profile names none.
        ArchiveError: a file of the archive cannot be read, or is not what its manifest says.
    """
    storage = Storage(engine)
    look_back = profile.look_back
    inputs = _read_inputs(context, storage, period, look_back, now, stage, watching, archived)
    expected = _expected(inputs, profile)
    numbers = range(len(expected))  # of the days, instead of runs
    report = StartedReport(profile, expected, numbers)
    stage(f"{profile.name}: reading and folding results")
    work = _make_work(storage, inputs, [report], context.defaultParallelism)
    with watching():
        folded = _distribute(context, replace(work, stores=False))
    counts = [
        added_up(task.counts[0] for task in folded if task.day == work.first_day + number)
        for number in numbers
    ]
    _refuse_mixed_vos(work.plans[0], inputs.instances.vos, counts)
    rows = chain.from_iterable(table.to_pylist() for task in folded for _, table in task.left)
    return [
        DayFigure(expected[row["run_id"]].day, (row["site"],), Seconds(*(row[s] for s in SECONDS)))
        for row in rows
    ]


def _read_inputs(
    context: SparkContext,
    storage: Storage,
    period: Period,
    look_back: int,
    now: int,
    stage: Stage,
    watching: Callable[[], AbstractContextManager[None]],
    archived: ArchivedDays,
) -> Inputs:
    stage("reading topology, downtimes and exclusions")
    read = period.with_days_before(look_back).days()
    stored = [day for day in read if day not in archived and day not in archived.absent]
    newest, tables = 0, []
    of_day: dict[date, Announced] = {}
    if stored:
        with reading(storage.engine) as connection:
            of_day = read_announced(connection, period, look_back)
            newest = newest_result(connection)
            tables.append(read_instances(connection))
    in_database = of_day[period.first].exclusions if of_day else ()
    of_day |= read_archived(archived, period, look_back, in_database)
    announced = {day: of_day[day] for day in period.days()}
    # Of the days before the first, those results count that the first day begins with.
    excluded = {e for day in stored for e in announced[max(day, period.first)].exclusions}
    of_database = DatabaseResults(storage, period, stored, list(excluded), now, newest)
    if archived.manifests:
        stage("looking at the files of the archive")
    with watching() if archived.manifests else nullcontext():
        of_archive = survey_results(context, archived, announced, now)
    tables.append(of_archive.findings.names)
    return Inputs(period, announced, numbered(tables), of_database, of_archive, now)


def _expected(inputs: Inputs, profile: Profile) -> list[DayExpectation]:
    """What is expected on each day."""
    return [
        expect(day, announced, profile, inputs.now) for day, announced in inputs.announced.items()
    ]


def _make_work(
    storage: Storage, inputs: Inputs, reports: Sequence[StartedReport], cores: int
) -> Work:
    instances = inputs.instances
    profiles = [report.profile for report in reports]
    thresholds = profiles[0].thresholds
    days = len(reports[0].expected)
    groups = max(-(-cores // days), -(-len(instances.ids) // INSTANCES_PER_TASK))
    everywhere = {e for report in reports for day in report.expected for e in day.endpoints}
    group_of = site_groups(everywhere, groups)
    # The shortest validity of any profile.
    apart_s = min((s for profile in profiles for s in profile.validities if s), default=None)
    return Work(
        storage.connection,
        [
            piece
            for source in (inputs.stored, inputs.archived)
            for piece in source.slices(instances, thresholds, apart_s, cores)
        ],
        first_day=day_number(inputs.period.first),
        days=days,
        groups=groups,
        group=instance_groups(instances, everywhere, group_of, groups),
        vo=instances.vo,
        keys=instances.key,
        look_back=np.array(
            [max(p.look_back_of(name) for p in profiles) for name in instances.metrics], np.int64
        )[instances.metric],
        plans=[make_plan(*report, instances, group_of, inputs.now) for report in reports],
    )


def _distribute(context: SparkContext, work: Work) -> list[Folded]:
    """Read the slices, bring stretches together by day and group of sites, fold them, and write."""
    shared = context.broadcast(work)
    try:
        return (
            context.parallelize(range(len(work.slices)), len(work.slices))
            .flatMap(lambda number: read_slice(shared.value, number))
            .partitionBy(work.days * work.groups, int)
            .mapPartitionsWithIndex(lambda place, parts: fold_and_write(shared.value, place, parts))
            .collect()
        )
    finally:
        shared.destroy()


def _refuse_mixed_vos(
    plan: Plan, vos: Sequence[str | None], counts: Sequence[ResultCounts]
) -> None:
    """Check that all results of a metric instance are of one VO, unless the profile names one."""
    metrics = plan.levels[0].names
    examples: dict[str, list[str]] = {}
    for thing, vo in chain.from_iterable(of_day.mixed for of_day in counts):
        [name] = metrics.slice(thing, 1).to_pylist()
        instance = f"{name['host_name']} {name['service_flavour']} {name['metric_name']}"
        examples.setdefault(instance, []).append(vos[vo] or "no VO")
    if examples:
        raise MixedVOs(examples)


def _publish(
    engine: Engine,
    inputs: Inputs,
    report: StartedReport,
    counts: Sequence[ResultCounts],
    began: float,
    clock: Callable[[], int],
) -> Summary:
    profile = report.profile
    with reading(engine) as connection:
        excluded = inputs.archived.findings.excluded | inputs.stored.excluded(connection)
    facts = [
        day_facts(
            day,
            inputs.announced[day.day].members,
            of_day,
            excluded.get(day_number(day.day), 0),
            max(map(inputs.newest_result, read)),
            inputs.archived.days.versions(read),
            profile,
            inputs.now,
        )
        for day, of_day in zip(report.expected, counts, strict=True)
        for read in [list(Period(day.day, day.day).with_days_before(profile.look_back).days())]
    ]
    record.note_facts(engine, profile, facts, report.run_ids)
    published = record.publish(engine, profile, facts, report.run_ids, clock())
    return Summary(profile.name, inputs.period, facts, published, time.monotonic() - began)
