"""Reports over a range of days: read, bring together by site and day, fold, write, publish."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from pyspark import SparkContext

from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.compute.folding import REASONS
from sam_pipeline.spark_jobs.compute.planning import (
    Instances,
    instance_groups,
    make_plan,
    numbered,
    site_groups,
)
from sam_pipeline.spark_jobs.compute.run import DaysToRead, ResultSource, Run, Storage
from sam_pipeline.spark_jobs.compute.sources.database import DatabaseSource
from sam_pipeline.spark_jobs.compute.tasks import (
    Folded,
    ResultCounts,
    Work,
    added_up,
    fold_and_write,
    read_slice,
)
from sam_pipeline.spark_jobs.errors import MixedVOs
from sam_pipeline.spark_jobs.inputs.announced import Announced
from sam_pipeline.spark_jobs.inputs.archive.days import FROM_DATABASE, ArchivedDays
from sam_pipeline.spark_jobs.inputs.expected import DayExpectation, expect
from sam_pipeline.spark_jobs.profiles.profile import Profile, Threshold
from sam_pipeline.spark_jobs.rules.days import Period, day_number, in_ranges, moment
from sam_pipeline.spark_jobs.rules.figures import MemberDay
from sam_pipeline.spark_jobs.rules.levels import SECONDS
from sam_pipeline.spark_jobs.rules.seconds import Seconds
from sam_pipeline.spark_jobs.runs import record
from sam_pipeline.spark_jobs.runs.origin import change_numbers
from sam_pipeline.spark_jobs.runs.published import DayFigure
from sam_pipeline.sql.database.engine import reading

INSTANCES_PER_TASK = 50_000
"""About as many instances of a day are folded by one task, which limits its memory."""
EXCLUDED_HOST = "excluded-monitoring-host"
"""Why results were not even read; they are counted like those that are ignored by REASONS."""


class Inputs(NamedTuple):
    """What all reports of a run share: what is announced for each day, and all instances."""

    read: DaysToRead
    sources: Sequence[ResultSource]
    announced: Mapping[date, Announced]
    instances: Instances


class StartedReport(NamedTuple):
    """A report, and for each of its days the expected things, and the run."""

    profile: Profile
    expected: Sequence[DayExpectation]
    run_ids: Sequence[int]


@dataclass(frozen=True)
class Summary:
    """What a run did for one report; `str` is the line that `sam-report run` prints."""

    report: str
    period: Period
    facts: Sequence[record.DayFacts]
    published: record.Published
    seconds: float

    @property
    def results(self) -> int:
        return sum(day.results_read for day in self.facts)

    @property
    def instances(self) -> int:
        """The largest number of metric instances expected on one day."""
        return max(day.instances for day in self.facts)

    @property
    def until(self) -> int | None:
        """The time of the run, if the last day is still open."""
        return self.facts[-1].until

    @property
    def ignored(self) -> dict[str, int]:
        """The number of results that do not count, by reason."""
        reasons = (*REASONS, EXCLUDED_HOST)
        totals = {r: sum(day.results_ignored.get(r, 0) for day in self.facts) for r in reasons}
        return {reason: count for reason, count in totals.items() if count}

    @property
    def days_without_data(self) -> list[date]:
        """The days on which no result counts."""
        return [
            day.day for day in self.facts if day.results_read == sum(day.results_ignored.values())
        ]

    @property
    def archived(self) -> dict[date, int]:
        """The versions of days that were read from the archive."""
        return {day: version for facts in self.facts for day, version in facts.archived.items()}

    def __str__(self) -> str:
        ignored = ", ".join(f"{count} {reason}" for reason, count in self.ignored.items())
        parts = [
            plural(self.results, "result") + (f" ({ignored} ignored)" if ignored else ""),
            plural(self.instances, "metric instance"),
        ]
        if not self.instances:
            parts.append("nothing expected: the topology is empty")
        elif self.days_without_data:
            parts.append(f"no data on {in_ranges(self.days_without_data)}")
        if from_archive := sum(facts.day in facts.archived for facts in self.facts):
            parts.append(f"{plural(from_archive, 'day')} from the archive")
        if self.until is not None:
            parts.append(f"until {format_time(moment(self.until))}")
        if self.published.changes:
            parts.append(f"{plural(self.published.changes, 'figure')} changed")
        if self.published.sealed_days:
            days, figures = self.published.sealed_days, self.published.candidates
            parts.append(f"{plural(days, 'day')} sealed: {plural(figures, 'figure')} would change")
        return f"{self.report} {self.period}: {', '.join(parts)}, {self.seconds:.1f} s"

    def document(self) -> dict[str, Any]:
        """The object that `sam-report run --json` prints."""
        return {
            "report": self.report,
            "first_day": self.period.first,
            "last_day": self.period.last,
            "until": None if self.until is None else moment(self.until),
            "results_read": self.results,
            "results_ignored": self.ignored,
            "instances": self.instances,
            "days_without_data": self.days_without_data,
            "archive_versions": {str(day): number for day, number in self.archived.items()},
            "figures_changed": self.published.changes,
            "sealed_days": self.published.sealed_days,
            "figures_that_would_change": self.published.candidates,
            "seconds": round(self.seconds, 3),
        }


def compute(
    run: Run,
    profiles: Sequence[Profile],
    period: Period,
    change_no: int,
    archived: ArchivedDays = FROM_DATABASE,
    published: Callable[[Summary], None] = lambda summary: None,
) -> list[Summary]:
    """Compute the days of the period for each report, and publish them together.

    Args:
        change_no: the number that `take_changes` returned before the call.
        archived: the days that are read from the archive instead of from the database.
        published: called after each report is published, because the next one may fail.
    Raises:
        MixedVOs: several VOs measured one instance, and the profile names none.
        ArchiveError: a file of the archive cannot be read, or is not what its manifest says.
        AnotherRun: a later run published one of the days first.
    """
    engine, stage, storage = run.engine, run.progress.stage, Storage(run.engine)
    look_back = max(profile.look_back for profile in profiles)
    inputs = _read_inputs(run, period, look_back, archived)
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
            run_ids = record.begin(engine, profile, changes, inputs.read.now)
            reports.append(StartedReport(profile, _expected(inputs, profile), run_ids))
        run_ids = [run_id for report in reports for run_id in report.run_ids]
        with record.failing(engine, run_ids):
            stage(f"{', '.join(profile.name for profile in same)}: reading and folding results")
            work = _make_work(storage, inputs, reports, run.context.defaultParallelism)
            folded: list[Folded] = []
            for part in work.in_parts(storage.days_at_once(work.days, len(work.group))):
                with run.watching():
                    done = _distribute(run.context, part)
                folded += storage.store(done)
            storage.check(folded, run_ids)
            for number, report in enumerate(reports):
                stage(f"{report.profile.name}: publishing")
                counts = _counts_by_day(inputs, work, number, folded)
                facts = _facts(inputs, report, counts)
                record.note_facts(engine, report.profile, facts, report.run_ids)
                changed = record.publish(engine, report.profile, facts, report.run_ids, run.clock())
                seconds = time.monotonic() - began
                summary = Summary(report.profile.name, period, facts, changed, seconds)
                published(summary)
                summaries.append(summary)
    return summaries


class UnpublishedDays(NamedTuple):
    """The figures of sites as `compute` would publish them, and the members of groups."""

    sites: Sequence[DayFigure]
    members: Sequence[MemberDay]


def unpublished_days(
    run: Run, profile: Profile, period: Period, archived: ArchivedDays = FROM_DATABASE
) -> UnpublishedDays:
    """Compute every day; nothing is stored.

    Raises:
        MixedVOs: several VOs measured one instance, and the profile names none.
        ArchiveError: a file of the archive cannot be read, or is not what its manifest says.
    """
    inputs = _read_inputs(run, period, profile.look_back, archived)
    expected = _expected(inputs, profile)
    # The numbers of the days serve as those of their runs.
    report = StartedReport(profile, expected, range(len(expected)))
    run.progress.stage(f"{profile.name}: reading and folding results")
    work = _make_work(Storage(run.engine), inputs, [report], run.context.defaultParallelism)
    with run.watching():
        folded = _distribute(run.context, replace(work, stores=False))
    _counts_by_day(inputs, work, 0, folded)
    rows = chain.from_iterable(table.to_pylist() for task in folded for _, table in task.left)
    sites = [
        DayFigure(expected[row["run_id"]].day, (row["site"],), Seconds(*(row[s] for s in SECONDS)))
        for row in rows
    ]
    seconds_on: dict[date, dict[str, Seconds]] = {}
    for figure in sites:
        seconds_on.setdefault(figure.day, {})[figure.names[0]] = figure.seconds
    members = (
        record.expected_members(profile, day, announced.members, seconds_on.get(day, {}))
        for day, announced in inputs.announced.items()
    )
    return UnpublishedDays(sites, list(chain.from_iterable(members)))


def _read_inputs(run: Run, period: Period, look_back: int, archived: ArchivedDays) -> Inputs:
    """Read all inputs but the results; here each day gets its source."""
    run.progress.stage("reading topology, downtimes and exclusions")
    read = DaysToRead(period, look_back, run.clock())
    stored = [
        day
        for day in period.with_days_before(look_back).days()
        if day not in archived and day not in archived.absent
    ]
    sources: list[ResultSource] = []
    if stored:
        sources.append(DatabaseSource(run.engine, read, stored))
    if archived.manifests:
        # Its libraries take 80 ms to import.
        from sam_pipeline.spark_jobs.compute.sources.archive import ArchiveSource

        sources.append(ArchiveSource(run, read, archived))
    announced: dict[date, Announced] = {}
    for source in sources:
        announced |= source.announced(announced)
    instances = numbered([source.instances(announced) for source in sources])
    return Inputs(read, sources, {day: announced[day] for day in period.days()}, instances)


def _expected(inputs: Inputs, profile: Profile) -> list[DayExpectation]:
    """What is expected on each day."""
    now = inputs.read.now
    return [expect(day, announced, profile, now) for day, announced in inputs.announced.items()]


def _make_work(
    storage: Storage, inputs: Inputs, reports: Sequence[StartedReport], cores: int
) -> Work:
    instances = inputs.instances
    profiles = [report.profile for report in reports]
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
            for source in inputs.sources
            for piece in source.slices(instances, profiles[0].thresholds, apart_s, cores)
        ],
        first_day=day_number(inputs.read.period.first),
        days=days,
        groups=groups,
        group=instance_groups(instances, everywhere, group_of, groups),
        vo=instances.vo,
        keys=instances.key,
        look_back=np.array(
            [max(p.look_back_of(name) for p in profiles) for name in instances.metrics], np.int64
        )[instances.metric],
        plans=[make_plan(*report, instances, group_of, inputs.read.now) for report in reports],
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


def _counts_by_day(
    inputs: Inputs, work: Work, number: int, folded: Sequence[Folded]
) -> list[ResultCounts]:
    """The counts of a report, by its number, for each day.

    Raises:
        MixedVOs: an instance has results of several VOs, and the profile names none.
    """
    counts = [
        added_up(task.counts[number] for task in folded if task.day == day)
        for day in range(work.first_day, work.first_day + work.days)
    ]
    metrics = work.plans[number].levels[0].names
    examples: dict[str, list[str]] = {}
    for thing, vo in chain.from_iterable(of_day.mixed for of_day in counts):
        [name] = metrics.slice(thing, 1).to_pylist()
        instance = f"{name['host_name']} {name['service_flavour']} {name['metric_name']}"
        examples.setdefault(instance, []).append(inputs.instances.vos[vo] or "no VO")
    if examples:
        raise MixedVOs(examples)
    return counts


def _facts(
    inputs: Inputs, report: StartedReport, counts: Sequence[ResultCounts]
) -> list[record.DayFacts]:
    """The facts of each day; `counts` are of the results that were read for it."""
    now = inputs.read.now
    excluded = {day: n for source in inputs.sources for day, n in source.excluded().items()}
    source_of = {day: source for source in inputs.sources for day in source.days}
    facts = []
    for expected, of_day in zip(report.expected, counts, strict=True):
        day = Period(expected.day, expected.day)
        read = list(day.with_days_before(report.profile.look_back).days())
        of_host = excluded.get(day_number(expected.day), 0)
        ignored = {**dict(zip(REASONS, of_day.ignored, strict=True)), EXCLUDED_HOST: of_host}
        facts.append(
            record.DayFacts.of(
                report.profile,
                expected,
                inputs.announced[expected.day].members,
                f"{of_day.digest:016x} {of_day.carried_digest:016x}",
                until=now if now < day.end else None,
                results_read=of_day.read + of_host,
                results_ignored={reason: count for reason, count in ignored.items() if count},
                newest_result=max(source_of[d].newest_result(d) for d in read if d in source_of),
                archived={
                    d: version
                    for d in read
                    if d in source_of and (version := source_of[d].version(d)) is not None
                },
            )
        )
    return facts
