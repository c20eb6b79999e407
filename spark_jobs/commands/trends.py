"""`sam-report trends`: what changed its status how often, and how long it was in each (rule 14)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from sam_pipeline.schema.program.command import OK, text_table, to_json, whole_number
from sam_pipeline.spark_jobs.commands.arguments import (
    add_period_options,
    add_report_option,
    add_table_option,
    asked_period,
    table_format,
    time_or_none,
    warn_if_empty,
)
from sam_pipeline.spark_jobs.exports.spreadsheet import csv_table
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.levels import GROUP, NAMES, SECONDS, SITE
from sam_pipeline.spark_jobs.runs.published import (
    Run,
    Trend,
    published_reports,
    published_runs,
    trends,
    until_of,
)
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.open import open_database

EXAMPLES = """\
examples:
  sam-report trends --day 2026-11-14
  sam-report trends --level endpoint --month 2026-11 --top 20
  sam-report trends --level metric --from 2026-11-01 --to 2026-11-07 --format csv

What changed its status most often comes first; what never did is left out. Of several days the
changes are added up: as in ARGO a day begins anew, so that a change across midnight does not count.
"""


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    command = commands.add_parser(
        "trends",
        parents=[common],
        help="print what changed its status, and how often",
        epilog=EXAMPLES,
    )
    levels = [level for level in NAMES if level != GROUP]
    command.add_argument("--level", choices=levels, default=SITE)
    add_period_options(command)
    command.add_argument(
        "--top", type=whole_number(), metavar="N", help="only the first N of each report"
    )
    add_table_option(command)
    add_report_option(command)
    command.set_defaults(handler=_trends)


def _trends(args: argparse.Namespace) -> int:
    period = asked_period(args)
    with reading(open_database(args)) as connection:
        tables = [
            _read(connection, name, args.level, period)
            for name in published_reports(connection, args.report, period)
        ]
    warn_if_empty(tables, period)
    style = table_format(args)
    if style == "table" and tables:
        print("\n\n".join("\n".join(_lines(table, args.top)) for table in tables))
        return OK
    rows = [_row(table, trend) for table in tables for trend in table.changing[: args.top]]
    if style == "json":
        print(to_json(rows))
    elif tables:
        print(csv_table(rows))
    return OK


@dataclass(frozen=True)
class TrendTable:
    """The things of a level that changed at all, most changes first, and how many did not."""

    report: str
    level: str
    period: Period
    runs: Sequence[Run]
    changing: Sequence[Trend]
    steady: int


def _read(connection: Connection, report: str, level: str, period: Period) -> TrendTable:
    things = list(trends(connection, report, level, period))
    changing = sorted(
        (trend for trend in things if trend.changes),
        key=lambda trend: (-trend.changes, trend.names),
    )
    runs = published_runs(connection, report, period)
    return TrendTable(report, level, period, runs, changing, len(things) - len(changing))


def _row(table: TrendTable, trend: Trend) -> dict[str, Any]:
    return {
        "report": table.report,
        "first_day": table.period.first,
        "last_day": table.period.last,
        "level": table.level,
        **dict(zip(NAMES[table.level], trend.names, strict=True)),
        "changes": trend.changes,
        "first_change": time_or_none(trend.first_change),
        "last_change": time_or_none(trend.last_change),
        "days": trend.days,
        **_seconds(trend),
    }


def _lines(table: TrendTable, top: int | None) -> Iterator[str]:
    shown = table.changing[:top]
    until = until_of(table.runs)
    yield f"{table.report}, {table.period}{f' (until {time_or_none(until)})' if until else ''}"
    yield ""
    if shown:
        occurring = [name for name in SECONDS if any(_seconds(trend)[name] for trend in shown)]
        columns = [*NAMES[table.level], "changes", "first_change", "last_change", *occurring]
        rows = [
            [
                *trend.names,
                trend.changes,
                time_or_none(trend.first_change),
                time_or_none(trend.last_change),
                *(_seconds(trend)[name] for name in occurring),
            ]
            for trend in shown
        ]
        yield text_table(columns, rows)
        yield ""
    changing = len(table.changing)
    count = f"{changing} of {changing + table.steady} {table.level}s changed their status"
    yield count if len(shown) == changing else f"{count}; shown: the first {len(shown)}"


def _seconds(trend: Trend) -> dict[str, int]:
    return {name: getattr(trend.seconds, name.removesuffix("_s")) for name in SECONDS}
