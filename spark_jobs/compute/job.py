"""Reports over a range of days, end to end: read once, then fold, write and publish each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from sqlalchemy import Engine

from sam_pipeline.schema.program.progress import Stage
from sam_pipeline.spark_jobs.compute import rows
from sam_pipeline.spark_jobs.compute.availability import figures, run_id, timeline_rows
from sam_pipeline.spark_jobs.compute.facts import Summary, day_facts
from sam_pipeline.spark_jobs.compute.folding import SEGMENTS, folding
from sam_pipeline.spark_jobs.compute.results import ReportResults
from sam_pipeline.spark_jobs.compute.storage import Storage, persisting
from sam_pipeline.spark_jobs.errors import SparkFailed
from sam_pipeline.spark_jobs.inputs.announced import Announced, read_announced
from sam_pipeline.spark_jobs.inputs.expected import expect
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period, day_number
from sam_pipeline.spark_jobs.rules.levels import METRIC
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
        published: called after the publication of each report, as the next one may fail.
    Raises:
        MixedVOs: several VOs measured one instance, and the profile names none.
        AnotherRun: a later run of one of the days published first.
    """
    now = clock()
    storage = Storage(spark, engine)
    with persisting() as persist:
        stage("reading topology, downtimes and exclusions")
        with reading(engine) as connection:
            announced = read_announced(connection, period)
        results = ReportResults(storage, announced, profiles, now, persist)
        summaries = []
        for profile in profiles:
            summary = _report(storage, profile, announced, results, change_no, clock, stage)
            published(summary)
            summaries.append(summary)
        return summaries


def _report(
    storage: Storage,
    profile: Profile,
    announced: Announced,
    results: ReportResults,
    change_no: int,
    clock: Callable[[], int],
    stage: Stage,
) -> Summary:
    began, now = time.monotonic(), results.now
    inputs = (announced.memberships, announced.downtimes, announced.exclusions)
    expected = [expect(day, *inputs, profile, now) for day in announced.period.days()]
    with persisting() as persist:
        stage(f"{profile.name}: reading results")
        stretches = results.stretches(profile)
        endpoints = persist(storage.table(rows.ENDPOINTS, rows.endpoint_rows(expected)))
        tally = rows.tally(stretches)
        rows.refuse_mixed_vos(tally, endpoints, profile)
        counts = rows.counts(tally, endpoints, profile).toArrow().to_pylist()
        excluded = results.excluded()
        facts = day_facts(
            expected, announced.members, counts, excluded, results.newest, profile, now
        )
        run_ids = record.begin(storage.engine, profile, facts, change_no, now)
        with record.failing(storage.engine, run_ids):
            stage(f"{profile.name}: folding {sum(day.results_read for day in facts)} results")
            covers = storage.table(rows.COVERS, rows.cover_rows(expected))
            to_fold = rows.rows_to_fold(stretches, covers, endpoints, profile)
            # All rows of a site and day meet in one task.
            brought = to_fold.repartition(storage.partitions(len(expected)), "site", "day")
            segments = persist(brought.mapInArrow(folding(profile, now), SEGMENTS))
            run_of = {day_number(d.day): number for d, number in zip(facts, run_ids, strict=True)}
            written = storage.write(timeline_rows(segments, run_of), "timeline_segment")
            # A cluster repeats the task of a worker that died, even if its rows were committed.
            if storage.segments_of(run_ids) != written:
                raise SparkFailed("a task was repeated after it had stored its rows: run it again")
            stage(f"{profile.name}: adding up {written} segments")
            summed = figures(segments.where(F.col("level") != METRIC))
            storage.write(summed.withColumn("run_id", run_id(run_of)), "{level}_figure")
            stage(f"{profile.name}: publishing")
            published = record.publish(storage.engine, profile, facts, run_ids, clock())
    return Summary(profile.name, announced.period, facts, published, time.monotonic() - began)
