"""`sam-report trends`: status changes, and the time in each status (rule 14)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sam_pipeline.schema.program.command import text_table, whole_number
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.spark_jobs.command_line.arguments import (
    add_period_options,
    add_report_option,
    add_site_option,
    add_table_option,
    requested_period,
    time_or_none,
    warn_if_empty,
)
from sam_pipeline.spark_jobs.command_line.tables import ReportTable, print_tables, seconds_columns
from sam_pipeline.spark_jobs.rules.levels import GROUP, NAMES, SECONDS, SITE
from sam_pipeline.spark_jobs.runs.published import (
    Trend,
    published_reports,
    published_runs,
    require_site,
    trends,
)
from sam_pipeline.sql.database.engine import reading_at_once
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.database.roles import READER

EXAMPLES = """\
examples:
  sam-report trends --day 2026-11-14
  sam-report trends --level endpoint --month 2026-11 --top 20
  sam-report trends --level metric --from 2026-11-01 --to 2026-11-07 --format csv
  sam-report trends --level metric --month 2026-11 --site SITE-A

The list starts with the most changes, and leaves out everything that never changed. Over several
days the changes within each day are added up: as in ARGO, a change at midnight does not count.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    levels = [level for level in NAMES if level != GROUP]
    command.add_argument(
        "--level", choices=levels, default=SITE, help="what to list (default: %(default)s)"
    )
    add_period_options(command)
    add_site_option(command)
    command.add_argument(
        "--top", type=whole_number(), metavar="N", help="only the first N rows of each report"
    )
    add_table_option(command)
    add_report_option(command)
    command.set_defaults(handler=run_trends)


def run_trends(args: argparse.Namespace) -> int:
    """Print the things with the most status changes in each published report."""
    period = requested_period(args)
    tables = []
    with reading_at_once(open_database(args, READER)) as connection:
        reports = published_reports(connection, args.report, period)
        if args.site is not None:
            require_site(connection, reports, args.site, period)
        for report in reports:
            changing, things = trends(connection, report, args.level, period, args.site)
            runs = published_runs(connection, report, period)
            shown, counts = changing[: args.top], (len(changing), things)
            tables.append(TrendTable(report, args.level, period, runs, shown, *counts))
    warn_if_empty(tables, period)
    return print_tables(args, tables)


@dataclass(frozen=True)
class TrendTable(ReportTable):
    """The trends of a level, most changes first; how many things changed, and how many exist."""

    shown: Sequence[Trend]
    changing: int
    things: int

    def rows(self) -> Iterator[dict[str, Any]]:
        for trend in self.shown:
            yield {
                **self.named(trend.names),
                "changes": trend.changes,
                "first_change": time_or_none(trend.first_change),
                "last_change": time_or_none(trend.last_change),
                "days": trend.days,
                **seconds_columns(trend.seconds),
            }

    def lines(self) -> Iterator[str]:
        if self.shown:
            rows = list(self.rows())
            occurring = [name for name in SECONDS if any(row[name] for row in rows)]
            columns = [*NAMES[self.level], "changes", "first_change", "last_change", *occurring]
            yield from text_table(columns, [[row[column] for column in columns] for row in rows])
            yield ""
        count = f"{self.changing} of {plural(self.things, self.level)} changed status"
        left_out = len(self.shown) < self.changing
        yield f"{count}; shown: the first {len(self.shown)}" if left_out else count
