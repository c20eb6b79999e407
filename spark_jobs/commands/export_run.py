"""Exports the reports a person asked for, and tells what was written."""

from __future__ import annotations

import argparse
import calendar
import logging
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

from sqlalchemy import Connection

from sam_pipeline.schema.program.command import OK, to_json
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.commands.arguments import asked_period, utc_today
from sam_pipeline.spark_jobs.exports.formats import WRITERS, Request, Written
from sam_pipeline.spark_jobs.rules.days import Period, moment
from sam_pipeline.spark_jobs.runs.published import Run, published_reports, published_runs
from sam_pipeline.sql.database.engine import reading_at_once
from sam_pipeline.sql.database.open import open_database

logger = logging.getLogger(__name__)


def export_reports(args: argparse.Namespace) -> int:
    """Write the files, tell which."""
    today = utc_today()
    period = asked_period(args, today)
    progress = Progress()
    written: list[Written] = []
    try:
        with reading_at_once(open_database(args)) as connection:
            for request in _requests(connection, args, period, today):
                _warn(request, args.format)
                written += WRITERS[args.format](request, progress.stage)
    finally:
        progress.end()
    if not written:
        logger.warning("nothing is published for %s: `sam-report run` computes it", period)
    if args.json:
        print(to_json([_as_json(each) for each in written]))
    else:
        for report in dict.fromkeys(each.report for each in written):
            print(_line([each for each in written if each.report == report], args.out))
    return OK


def _requests(
    connection: Connection, args: argparse.Namespace, period: Period, today: date
) -> Iterator[Request]:
    for name in published_reports(connection, args.report, period):
        runs = published_runs(connection, name, period)
        yield Request(connection, name, period, runs, covered_months(period, today), args.out)


def covered_months(period: Period, today: date) -> list[Period]:
    """The months of the period that are in it from their first day to their last, or to today."""
    return [part for part in period.months() if part.first.day == 1 and _is_whole(part, today)]


def _is_whole(part: Period, today: date) -> bool:
    last = calendar.monthrange(part.first.year, part.first.month)[1]
    return part.last.day == last or part.last == today


def _warn(request: Request, style: str) -> None:
    days = {run.day for run in request.runs}
    missing = [str(day) for day in request.period.days() if day not in days]
    if missing:
        logger.warning("%s: not computed, so not exported: %s", request.report, ", ".join(missing))
    for run in _open(request.runs) if style == "openmetrics" else ():
        logger.warning(
            "%s: %s goes until %s only: Prometheus would keep its samples beside those of the whole"
            " day, so load it when the day is over",
            request.report,
            run.day,
            format_time(moment(run.until or 0)),
        )


def _open(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.until is not None]


def _as_json(written: Written) -> dict[str, object]:
    return {
        "path": str(written.path),
        "report": written.report,
        "first_day": written.first_day,
        "last_day": written.last_day,
        "rows": written.rows,
    }


def _line(written: Sequence[Written], out: Path) -> str:
    rows = sum(each.rows for each in written)
    return f"{written[0].report}: {len(written)} files with {rows} rows below {out}"
