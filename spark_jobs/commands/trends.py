"""`sam-report trends`: status changes, and the time in each status (rule 14)."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sam_pipeline.schema.program.command import whole_number
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.spark_jobs.command_line import (
    ReportTable,
    Row,
    add_published_options,
    both,
    in_files,
    print_tables,
    published,
    requested_period,
    seconds_columns,
    time_or_none,
)
from sam_pipeline.spark_jobs.rules.levels import GROUP, NAMES, SITE
from sam_pipeline.spark_jobs.runs.published import Trend, published_runs, trends

EXAMPLES = """\
examples:
  sam-report trends --day yesterday
  sam-report trends --level endpoint --month 2026-11 --limit 20
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
    command.add_argument(
        "--limit", type=whole_number(), metavar="N", help="only the first N rows of each report"
    )
    add_published_options(command, table=True)
    command.set_defaults(handler=run_trends)


def run_trends(args: argparse.Namespace) -> int:
    """Print the things with the most status changes in each published report."""
    period = requested_period(args)
    tables = []
    with published(args, period, args.site) as (connection, reports):
        for report in reports:
            changing, things = trends(connection, report, args.level, period, args.site)
            runs = published_runs(connection, report, period)
            shown, counts = changing[: args.limit], (len(changing), things)
            tables.append(TrendTable(report, args.level, period, runs, shown, *counts))
    return print_tables(args, tables)


@dataclass(frozen=True)
class TrendTable(ReportTable):
    """The trends of a level, most changes first; how many things changed, and how many exist."""

    shown: Sequence[Trend]
    changing: int
    things: int

    def rows(self) -> Iterator[Row]:
        seconds = [vars(trend.seconds) for trend in self.shown]
        occurring = {f"{status}_s" for of in seconds for status, value in of.items() if value}
        for trend in self.shown:
            first, last = time_or_none(trend.first_change), time_or_none(trend.last_change)
            yield [
                *self.named(trend.names),
                *both(changes=trend.changes, first_change=first, last_change=last),
                *in_files(days=trend.days),
                *seconds_columns(trend.seconds, occurring),
            ]

    def notes(self) -> Iterable[str]:
        count = f"{self.changing} of {plural(self.things, self.level)} changed status"
        left_out = len(self.shown) < self.changing
        return [f"{count}; shown: the first {len(self.shown)}" if left_out else count]
