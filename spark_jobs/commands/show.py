"""`sam-report show`: the figures of a period as a table, CSV or JSON."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sam_pipeline.schema.program.command import text_table
from sam_pipeline.schema.program.moments import utc_today
from sam_pipeline.spark_jobs.command_line.arguments import (
    add_period_options,
    add_report_option,
    add_site_option,
    add_table_option,
    requested_period,
    table_format,
    time_or_none,
    warn_if_empty,
)
from sam_pipeline.spark_jobs.command_line.months import MonthTable
from sam_pipeline.spark_jobs.command_line.tables import ReportTable, print_tables, seconds_columns
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.profiles.in_words import own_targets
from sam_pipeline.spark_jobs.rules.days import Period, month_of
from sam_pipeline.spark_jobs.rules.figures import Figure, months_in_a_row
from sam_pipeline.spark_jobs.rules.levels import GROUP, NAMES, SITE
from sam_pipeline.spark_jobs.rules.seconds import percent, rounded, short
from sam_pipeline.spark_jobs.runs.months import month_figures
from sam_pipeline.spark_jobs.runs.published import (
    days_not_computed,
    published_reports,
    published_runs,
    require_site,
    until_of,
)
from sam_pipeline.spark_jobs.runs.seal import waiting
from sam_pipeline.spark_jobs.runs.summary import PeriodTargets, period_figures, period_targets
from sam_pipeline.sql.database.engine import reading_at_once
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.database.roles import READER

EXAMPLES = """\
examples:
  sam-report show --day 2026-11-07
  sam-report show --level endpoint --from 2026-11-01 --to 2026-11-07 --format csv
  sam-report show --level group --month 2026-11 --report critical
  sam-report show --by month --from 2026-01-01 --to 2026-11-30 --site SITE-A

Over several days the seconds are added up, then divided. A group is the weighted mean of its sites.
The column unknown is the percentage of the time for which no status is known, and missing the part
of it without any result. Columns `days`, as in "17 of 31", are the days of the period with figures;
--by month always shows whole months.
"""

MONTH = "month"

logger = logging.getLogger(__name__)


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    command.add_argument(
        "--level", choices=list(NAMES), default=SITE, help="what to list (default: %(default)s)"
    )
    add_period_options(command)
    command.add_argument(
        "--by",
        choices=[MONTH],
        help="a row for each calendar month of sites or groups, compared with the month before",
    )
    add_site_option(command)
    add_table_option(command)
    add_report_option(command)
    command.set_defaults(handler=run_show)


def run_show(args: argparse.Namespace) -> int:
    """Print the figures of each published report.

    Raises:
        ReportUsage: options that do not go together, or a site without figures.
    """
    today = utc_today()
    period = requested_period(args, today)
    if args.site is not None and args.level == GROUP:
        raise ReportUsage("--site does not go with --level group")
    if args.by == MONTH:
        if args.level not in (SITE, GROUP):
            raise ReportUsage(f"--by month goes with --level site or group, not {args.level}")
        whole = period.in_whole_months()
        period = Period(whole.first, min(whole.last, today))
    with reading_at_once(open_database(args, READER)) as connection:
        reports = published_reports(connection, args.report, period)
        if args.site is not None:
            require_site(connection, reports, args.site, period)
        tables: list[ReportTable] = []
        for report in reports:
            runs = published_runs(connection, report, period)
            about = (report, args.level, period, runs)
            if args.by != MONTH:
                figures = period_figures(connection, report, args.level, period, args.site)
                targets = period_targets(connection, report, period)
                tables.append(FigureTable(*about, figures, targets))
                continue
            with_months_before = Period(months_in_a_row(period.first)[-1], period.last)
            months = month_figures(connection, report, args.level, with_months_before, args.site)
            targets_of = {
                month: period_targets(connection, report, month_of(month))
                for month in {figure.month for figure in months}
            }
            tables.append(MonthTable(*about, months, targets_of))
        for message in waiting(connection, args.report, period):
            logger.warning(message)
    warn_if_empty(tables, period)
    if table_format(args) != "table":  # the table has a line for it
        for table in tables:
            if missing := days_not_computed(table.runs, period):
                logger.warning("%s: not computed: %s", table.report, missing)
    return print_tables(args, tables)


@dataclass(frozen=True)
class FigureTable(ReportTable):
    """The figures of one report at one level over a period."""

    figures: Sequence[Figure]
    targets: PeriodTargets

    def rows(self) -> Iterator[dict[str, Any]]:
        for figure in self.figures:
            row = {
                **self.named(figure.names),
                "availability": rounded(figure.availability),
                "reliability": rounded(figure.reliability),
            }
            if self.level == GROUP:
                row["sites_expected"] = figure.sites_expected
                row["sites_known"] = figure.sites_known
                row["days"] = figure.days
                row["until"] = time_or_none(until_of(self.runs))
            elif figure.seconds:
                row["unknown"] = rounded(figure.unknown)
                row["days"] = figure.days
                row |= seconds_columns(figure.seconds)
                row["until"] = time_or_none(figure.until)
            misses = figure.misses(self.targets.of(self.level, figure.names))
            yield {**row, "missed": [miss.figure for miss in misses]}

    def lines(self) -> Iterator[str]:
        if not self.figures:
            yield "no data: nothing was expected, the topology of these days is empty"
            return
        known = ["sites"] if self.level == GROUP else ["unknown", "missing"]
        columns = [*NAMES[self.level], "availability", "reliability", *known, "target"]
        all_days = len(list(self.period.days()))
        covers_less = any(figure.days < all_days for figure in self.figures)
        if covers_less:
            columns.insert(-1, "days")
        rows: list[list[object]] = []
        missed = []
        for figure in self.figures:
            if figure.seconds:
                missing = percent(figure.seconds.missing, figure.seconds.total)
                known = [short(figure.unknown), short(missing)]
            else:
                known = [f"{figure.sites_known} of {figure.sites_expected}"]
            verdict = "met"
            if misses := figure.misses(self.targets.of(self.level, figure.names)):
                verdict = "missed"
                missed.append(f"  {' '.join(figure.names)}: {'; '.join(map(str, misses))}")
            if figure.availability is None:
                verdict = "no data"
            figures = (short(figure.availability), short(figure.reliability))
            covered = [f"{figure.days} of {all_days}"] if covers_less else []
            rows.append([*figure.names, *figures, *known, *covered, verdict])
        yield from text_table(columns, rows)
        yield ""
        everywhere = self.targets.everywhere
        targets = (
            f"availability {float(everywhere.availability):g},"
            f" reliability {float(everywhere.reliability):g},"
            f" unknown at most {float(everywhere.unknown):g} %"
        )
        yield f"targets ({targets}) missed:" if missed else f"targets met: {targets}"
        yield from missed
        for heading, own in own_targets(self.targets.profile):
            yield f"{heading[0].lower()}{heading[1:]}: {own}"
        if days := days_not_computed(self.runs, self.period):
            yield f"not computed: {days}"
