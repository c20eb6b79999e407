"""Reports over a range of days: read, bring together by site and day, fold, write, publish."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession
from sqlalchemy import Engine

from sam_pipeline.schema.program.progress import Stage
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.spark_jobs.compute.availability import write_tables
from sam_pipeline.spark_jobs.compute.facts import Summary, day_facts
from sam_pipeline.spark_jobs.compute.folding import SEGMENTS, folding
from sam_pipeline.spark_jobs.compute.results import ReportResults
from sam_pipeline.spark_jobs.compute.rows import bring_together
from sam_pipeline.spark_jobs.compute.storage import Storage, persisting
from sam_pipeline.spark_jobs.inputs.announced import Announced, read_announced
from sam_pipeline.spark_jobs.inputs.expected import expect
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period, day_number
from sam_pipeline.spark_jobs.runs import record
from sam_pipeline.sql.database.engine import reading


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

    Args:
        change_no: the number that `take_changes` returned before the call.
        published: called after each report is published, because the next one may fail.
    Raises:
        MixedVOs: several VOs measured one instance, and the profile names none.
        AnotherRun: a later run published one of the days first.
    """
    now = clock()
    storage = Storage(spark, engine)
    with persisting() as persist:
        stage("reading topology, downtimes and exclusions")
        with reading(engine) as connection:
            announced = read_announced(connection, period)
        # Shared: profiles with the same thresholds read the results once.
        results = ReportResults(storage, announced, profiles, now, persist)
        summaries = []
        for profile in profiles:
            summary = _compute_report(profile, storage, announced, results, change_no, clock, stage)
            published(summary)
            summaries.append(summary)
        return summaries


def _compute_report(
    profile: Profile,
    storage: Storage,
    announced: Announced,
    results: ReportResults,
    change_no: int,
    clock: Callable[[], int],
    stage: Stage,
) -> Summary:
    """Read, bring together, fold, write and publish the days of one report."""
    began, now = time.monotonic(), results.now

    def report_stage(text: str) -> None:
        stage(f"{profile.name}: {text}")

    with persisting() as persist:
        report_stage("reading results")
        announcements = (announced.memberships, announced.downtimes, announced.exclusions)
        expected = [expect(day, *announcements, profile, now) for day in announced.period.days()]
        stretches = results.stretches(profile)

        rows, counts = bring_together(storage, stretches, expected, profile, persist)
        excluded, members = results.excluded(), announced.members
        facts = day_facts(expected, members, counts, excluded, results.newest, profile, now)
        run_ids = record.begin(storage.engine, profile, facts, change_no, now)
        with record.failing(storage.engine, run_ids):
            report_stage(f"folding {plural(sum(day.results_read for day in facts), 'result')}")
            segments = persist(rows.mapInArrow(folding(profile, now), SEGMENTS))

            run_of = {day_number(d.day): number for d, number in zip(facts, run_ids, strict=True)}
            write_tables(storage, segments, run_of, report_stage)

            report_stage("publishing")
            published = record.publish(storage.engine, profile, facts, run_ids, clock())
    return Summary(profile.name, announced.period, facts, published, time.monotonic() - began)
