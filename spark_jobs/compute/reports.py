"""Runs reports for `sam-report run`: one start of Spark, a line printed for each report."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from sqlalchemy import Engine

from sam_pipeline.schema.errors import SamError
from sam_pipeline.schema.program.command import OK, print_done, print_json
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.spark_jobs.compute import session
from sam_pipeline.spark_jobs.compute.facts import Summary
from sam_pipeline.spark_jobs.compute.job import run
from sam_pipeline.spark_jobs.config import find_java, prepare_workers
from sam_pipeline.spark_jobs.errors import SparkFailed
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.runs.due import DueReport
from sam_pipeline.sql.database.engine import name_of
from sam_pipeline.sql.errors import DISK_FULL, DatabaseFull


def run_reports(
    args: argparse.Namespace, due: Sequence[DueReport], change_no: int, engine: Engine
) -> int:
    """Compute the due reports one after the other, and print a summary of each.

    Raises:
        SparkFailed, DatabaseFull: see `failure`.
    """
    settings = dict(args.conf)
    # Reports on the same days share what they read.
    profiles_of: dict[Period, list[Profile]] = {}
    for report in due:
        profiles_of.setdefault(report.period, []).append(report.profile)
    progress = Progress()
    progress.stage("starting Spark")
    prepare_workers()
    summaries: list[Summary] = []

    def published(summary: Summary) -> None:
        progress.end()
        summaries.append(summary)
        if not args.json:
            print_done(args, summary)

    def now() -> int:
        return int(time.time())

    with session.running(args.master, settings, find_java()) as context:
        try:
            for period, profiles in profiles_of.items():
                run(context, engine, profiles, period, change_no, now, progress.stage, published)
        except Py4JError as error:
            raise failure(error, engine) from error
        finally:
            progress.end()
    if args.json:
        print_json([summary.document() for summary in summaries])
    return OK


def failure(error: Exception, engine: Engine) -> SamError:
    """Translate an error of Spark, keeping its innermost cause.

    Returns:
        DatabaseFull if the database's disk is full, else SparkFailed.
    """
    cause = session.cause(error)
    if cause.startswith(f"{DISK_FULL}: "):
        return DatabaseFull(f"{name_of(engine)}: {cause}; make room, then try again")
    return SparkFailed(f"Spark failed: {cause}")
