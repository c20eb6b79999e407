"""`sam-report run`: one session, one task after the other, a line for each."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from sqlalchemy import Engine

from sam_pipeline.schema.errors import SamError
from sam_pipeline.schema.program.command import OK, to_json
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.compute import session
from sam_pipeline.spark_jobs.compute.job import Summary, run
from sam_pipeline.spark_jobs.config import find_java, prepare_workers
from sam_pipeline.spark_jobs.errors import ReportUsage, SparkFailed
from sam_pipeline.spark_jobs.inputs.announced import count_results
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period, moment
from sam_pipeline.spark_jobs.runs.due import Task
from sam_pipeline.sql.database.engine import name_of, reading
from sam_pipeline.sql.errors import DISK_FULL, DatabaseFull

_CAUSE = re.compile(r"^(?:Caused by: )?[\w.$]*(?:Error|Exception): (.+)$", re.MULTILINE)


def run_reports(
    args: argparse.Namespace, tasks: Sequence[Task], change_no: int, engine: Engine
) -> int:
    """Do every task, and print what was done."""
    settings = _settings(args.conf)
    progress = Progress()
    progress.stage("starting Spark")
    prepare_workers()
    spark = session.start(args.master, settings, find_java(), results=_results(engine, tasks))
    done: list[Summary] = []

    def published(summary: Summary) -> None:
        progress.end()
        done.append(summary)
        if not args.json:
            print(_line(summary), flush=True)

    try:
        for period, profiles in _by_period(tasks).items():
            run(spark, engine, profiles, period, change_no, _now, progress.stage, published)
    except (PySparkException, Py4JError) as error:
        raise failure(error, engine) from error
    finally:
        progress.end()
        spark.stop()
    if args.json:
        print(to_json([_as_json(each) for each in done]))
    return OK


def failure(error: Exception, engine: Engine) -> SamError:
    """What Spark raised, told by its innermost cause, which the traces give last."""
    causes = _CAUSE.findall(str(error)) or str(error).splitlines() or [type(error).__name__]
    if causes[-1].startswith(f"{DISK_FULL}: "):
        return DatabaseFull(f"{name_of(engine)}: {causes[-1]}; make room, then try again")
    return SparkFailed(f"Spark failed: {causes[-1]}")


def _by_period(tasks: Sequence[Task]) -> dict[Period, list[Profile]]:
    """Reports of the same days read their results once."""
    found: dict[Period, list[Profile]] = {}
    for task in tasks:
        found.setdefault(task.period, []).append(task.profile)
    return found


def _now() -> int:
    return int(time.time())


def _results(engine: Engine, tasks: Sequence[Task]) -> int:
    """About how many results the largest task reads: exact up to the number that matters."""
    with reading(engine) as connection:
        return max(
            count_results(connection, period, at_most=session.MANY_RESULTS)
            for period in {task.period for task in tasks}
        )


def _settings(pairs: Sequence[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise ReportUsage(f"--conf {pair}: want KEY=VALUE")
    return {key: value for key, _, value in (pair.partition("=") for pair in pairs)}


def _line(summary: Summary) -> str:
    ignored = ", ".join(f"{count} {reason}" for reason, count in summary.ignored.items())
    parts = [
        f"{summary.results} results" + (f" ({ignored} ignored)" if ignored else ""),
        f"{summary.instances} metric instances",
        *_remarks(summary),
    ]
    return f"{summary.report} {summary.period}: {', '.join(parts)}, {summary.seconds:.1f} s"


def _remarks(summary: Summary) -> list[str]:
    remarks = []
    if not summary.instances:
        remarks.append("nothing expected: the topology is empty")
    elif summary.days_without_data:
        remarks.append(f"no data on {', '.join(map(str, summary.days_without_data))}")
    if summary.until is not None:
        remarks.append(f"until {format_time(moment(summary.until))}")
    if summary.published.changes:
        remarks.append(f"{summary.published.changes} figures changed")
    if summary.published.sealed_days:
        days, figures = summary.published.sealed_days, summary.published.candidates
        remarks.append(f"{days} days sealed: {figures} figures would change")
    return remarks


def _as_json(summary: Summary) -> dict[str, Any]:
    until: datetime | None = None if summary.until is None else moment(summary.until)
    return {
        "report": summary.report,
        "first_day": summary.period.first,
        "last_day": summary.period.last,
        "until": until,
        "results_read": summary.results,
        "results_ignored": summary.ignored,
        "instances": summary.instances,
        "days_without_data": summary.days_without_data,
        "figures_changed": summary.published.changes,
        "sealed_days": summary.published.sealed_days,
        "figures_that_would_change": summary.published.candidates,
        "seconds": round(summary.seconds, 3),
    }
