"""Runs reports for `sam-report run`: one start of Spark, a line printed for each report."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from sqlalchemy import Engine

from sam_pipeline.schema.program.command import OK, print_done, print_json
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.spark_jobs.compute.cluster.session import running, watching
from sam_pipeline.spark_jobs.compute.job import Summary, compute
from sam_pipeline.spark_jobs.compute.run import Run
from sam_pipeline.spark_jobs.config import prepare_workers
from sam_pipeline.spark_jobs.errors import SparkFailed
from sam_pipeline.spark_jobs.inputs.archive.days import ArchivedDays
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.runs.due import DueReport
from sam_pipeline.sql.database.engine import name_of
from sam_pipeline.sql.errors import DISK_FULL, DatabaseFull


def run_reports(
    args: argparse.Namespace,
    engine: Engine,
    start_timeout_s: float,
    due: Sequence[DueReport],
    change_no: int,
    archived_of: Callable[[Period, int], ArchivedDays],
) -> int:
    """Compute the due reports one after the other, and print a summary of each.

    Args:
        archived_of: which days of a period, and of how many days before it, are read from the
            archive.
    Raises:
        SparkFailed, SparkDiskFull, JavaMissing, DatabaseFull: see `computing`.
        ArchiveError: the archive cannot be read.
    """
    # Reports on the same days share what they read.
    profiles_of: dict[Period, list[Profile]] = {}
    for report in due:
        profiles_of.setdefault(report.period, []).append(report.profile)
    summaries: list[Summary] = []
    with computing(args, engine, start_timeout_s) as run:

        def published(summary: Summary) -> None:
            run.progress.end()
            summaries.append(summary)
            if not args.json:
                print_done(args, summary)

        for period, profiles in profiles_of.items():
            archived = archived_of(period, max(profile.look_back for profile in profiles))
            compute(run, profiles, period, change_no, archived, published)
    if args.json:
        print_json([summary.document() for summary in summaries])
    return OK


@contextmanager
def computing(args: argparse.Namespace, engine: Engine, start_timeout_s: float) -> Iterator[Run]:
    """Spark for the block, with the options --master and --conf of a command.

    Raises:
        JavaMissing, SparkFailed, SparkDiskFull: see `running`.
        DatabaseFull: a task found the disk of the database full.
    """
    progress = Progress()
    progress.stage("starting Spark")
    prepare_workers()
    try:
        with running(args.master, dict(args.conf), start_timeout_s) as context:
            watched = partial(watching, context, start_timeout_s, progress)
            yield Run(context, engine, progress=progress, watching=watched)
    except SparkFailed as failed:
        raise failure(failed, engine) from failed.__cause__
    finally:
        progress.end()


def failure(failed: SparkFailed, engine: Engine) -> SparkFailed | DatabaseFull:
    """DatabaseFull if that was the cause, else the error of Spark itself."""
    if failed.cause.startswith(f"{DISK_FULL}: "):
        return DatabaseFull(f"{name_of(engine)}: {failed.cause}; make room, then try again")
    return failed
