"""`sam-report run`: computes reports one after the other in one session, and prints a line each."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from sqlalchemy import Engine

from sam_pipeline.schema.errors import SamError
from sam_pipeline.schema.program.command import OK, to_json
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.compute import session
from sam_pipeline.spark_jobs.compute.facts import Summary
from sam_pipeline.spark_jobs.compute.job import run
from sam_pipeline.spark_jobs.config import find_java, prepare_workers
from sam_pipeline.spark_jobs.errors import ReportUsage, SparkFailed
from sam_pipeline.spark_jobs.inputs.announced import count_results
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period, moment
from sam_pipeline.spark_jobs.runs.due import DueReport
from sam_pipeline.sql.database.engine import name_of, reading
from sam_pipeline.sql.errors import DISK_FULL, DatabaseFull

_CAUSE = re.compile(r"^(?:Caused by: )?[\w.$]*(?:Error|Exception): (.+)$", re.MULTILINE)


def run_reports(
    args: argparse.Namespace, due: Sequence[DueReport], change_no: int, engine: Engine
) -> int:
    """Compute the reports, and print what was done."""
    for setting in args.conf:
        if "=" not in setting:
            raise ReportUsage(f"--conf {setting}: expected KEY=VALUE")
    settings = dict(setting.split("=", 1) for setting in args.conf)
    # Reports of the same days read their results once.
    profiles_of: dict[Period, list[Profile]] = {}
    for report in due:
        profiles_of.setdefault(report.period, []).append(report.profile)
    progress = Progress()
    progress.stage("starting Spark")
    with reading(engine) as connection:
        results = max(
            count_results(connection, period, at_most=session.MANY_RESULTS)
            for period in profiles_of
        )
    prepare_workers()
    spark = session.start(args.master, settings, find_java(), results=results)
    summaries: list[Summary] = []

    def published(summary: Summary) -> None:
        progress.end()
        summaries.append(summary)
        if not args.json:
            print(_line(summary), flush=True)

    try:
        for period, profiles in profiles_of.items():
            run(spark, engine, profiles, period, change_no, _now, progress.stage, published)
    except (PySparkException, Py4JError) as error:
        raise failure(error, engine) from error
    finally:
        progress.end()
        spark.stop()
    if args.json:
        print(to_json([_as_json(summary) for summary in summaries]))
    return OK


def failure(error: Exception, engine: Engine) -> SamError:
    """The error for what Spark raised, by its innermost cause, which comes last in the traces."""
    causes = _CAUSE.findall(str(error)) or str(error).splitlines() or [type(error).__name__]
    if causes[-1].startswith(f"{DISK_FULL}: "):
        return DatabaseFull(f"{name_of(engine)}: {causes[-1]}; make room, then try again")
    return SparkFailed(f"Spark failed: {causes[-1]}")


def _now() -> int:
    return int(time.time())


def _line(summary: Summary) -> str:
    ignored = ", ".join(f"{count} {reason}" for reason, count in summary.ignored.items())
    parts = [
        f"{summary.results} results" + (f" ({ignored} ignored)" if ignored else ""),
        f"{summary.instances} metric instances",
    ]
    if not summary.instances:
        parts.append("nothing expected: the topology is empty")
    elif summary.days_without_data:
        parts.append(f"no data on {', '.join(map(str, summary.days_without_data))}")
    if summary.until is not None:
        parts.append(f"until {format_time(moment(summary.until))}")
    published = summary.published
    if published.changes:
        parts.append(f"{published.changes} figures changed")
    if published.sealed_days:
        days, candidates = published.sealed_days, published.candidates
        parts.append(f"{days} days sealed: {candidates} figures would change")
    return f"{summary.report} {summary.period}: {', '.join(parts)}, {summary.seconds:.1f} s"


def _as_json(summary: Summary) -> dict[str, Any]:
    return {
        "report": summary.report,
        "first_day": summary.period.first,
        "last_day": summary.period.last,
        "until": None if summary.until is None else moment(summary.until),
        "results_read": summary.results,
        "results_ignored": summary.ignored,
        "instances": summary.instances,
        "days_without_data": summary.days_without_data,
        "figures_changed": summary.published.changes,
        "sealed_days": summary.published.sealed_days,
        "figures_that_would_change": summary.published.candidates,
        "seconds": round(summary.seconds, 3),
    }
