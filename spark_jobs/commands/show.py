"""`sam-report show`: figures of a period as a table, CSV or JSON."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from sam_pipeline.schema.program.command import OK, text_table, to_json
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
from sam_pipeline.spark_jobs.profiles.profile import Targets
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.levels import GROUP, NAMES, SECONDS, SITE
from sam_pipeline.spark_jobs.rules.seconds import percent, rounded, short
from sam_pipeline.spark_jobs.runs.published import (
    Run,
    days_not_computed,
    published_reports,
    published_runs,
    until_of,
)
from sam_pipeline.spark_jobs.runs.seal import waiting
from sam_pipeline.spark_jobs.runs.summary import Figure, period_figures
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.open import open_database

EXAMPLES = """\
examples:
  sam-report show --day 2026-11-07
  sam-report show --level endpoint --from 2026-11-01 --to 2026-11-07 --format csv
  sam-report show --level group --month 2026-11 --report critical

Of several days the seconds are added up, then divided. Groups: the mean of their sites.
unknown: percent of the time nobody knows about; missing: the part of it without any result.
"""

logger = logging.getLogger(__name__)


def add(commands: Any, common: argparse.ArgumentParser) -> None:
    command = commands.add_parser(
        "show", parents=[common], help="print stored figures", epilog=EXAMPLES
    )
    command.add_argument("--level", choices=list(NAMES), default=SITE)
    add_period_options(command)
    add_table_option(command)
    add_report_option(command)
    command.set_defaults(handler=_show)


def _show(args: argparse.Namespace) -> int:
    period = asked_period(args)
    with reading(open_database(args)) as connection:
        tables = read_figures(connection, args.report, args.level, period)
        for message in waiting(connection, args.report, period):
            logger.warning(message)
    warn_if_empty(tables, period)
    style = table_format(args)
    if style != "table":  # which has it below the figures
        for table in tables:
            if missing := days_not_computed(table.runs, period):
                logger.warning("%s: not computed: %s", table.report, ", ".join(missing))
    if style == "json":
        print(to_json(as_rows(tables)))
    elif tables:
        print(csv_table(as_rows(tables)) if style == "csv" else as_text(tables))
    return OK


@dataclass(frozen=True)
class FigureTable:
    """The figures of one report at one level over a period."""

    report: str
    level: str
    period: Period
    runs: Sequence[Run]
    figures: Sequence[Figure]

    @property
    def targets(self) -> Targets:
        """Those of the newest day's profile."""
        return self.runs[-1].profile.targets if self.runs else Targets()


def read_figures(
    connection: Connection, report: str | None, level: str, period: Period
) -> list[FigureTable]:
    """The figures of each report."""
    return [
        FigureTable(
            name,
            level,
            period,
            published_runs(connection, name, period),
            period_figures(connection, name, level, period),
        )
        for name in published_reports(connection, report, period)
    ]


def as_rows(tables: Sequence[FigureTable]) -> list[dict[str, Any]]:
    """A flat row per figure, for JSON and CSV."""
    return [_row(table, figure) for table in tables for figure in table.figures]


def as_text(tables: Sequence[FigureTable]) -> str:
    """A table for each report, then the things that miss a target."""
    return "\n\n".join("\n".join(_lines(table)) for table in tables)


def _row(table: FigureTable, figure: Figure) -> dict[str, Any]:
    row: dict[str, Any] = {
        "report": table.report,
        "first_day": table.period.first,
        "last_day": table.period.last,
        "level": table.level,
        **dict(zip(NAMES[table.level], figure.names, strict=True)),
        "availability": rounded(figure.availability),
        "reliability": rounded(figure.reliability),
    }
    if table.level == GROUP:
        row["sites_expected"] = figure.sites_expected
        row["sites_known"] = figure.sites_known
        row["until"] = time_or_none(until_of(table.runs))
    elif figure.seconds:
        row["unknown"] = rounded(figure.unknown)
        row["days"] = figure.days
        row |= {name: getattr(figure.seconds, name.removesuffix("_s")) for name in SECONDS}
        row["until"] = time_or_none(figure.until)
    row["missed"] = [miss.what for miss in figure.misses(table.targets)]
    return row


def _lines(table: FigureTable) -> Iterator[str]:
    until = until_of(table.runs)
    yield f"{table.report}, {table.period}{f' (until {time_or_none(until)})' if until else ''}"
    yield ""
    if not table.figures:
        yield "no data: nothing was expected, the topology of these days is empty"
        return
    known = ["sites"] if table.level == GROUP else ["unknown", "missing"]
    columns = [*NAMES[table.level], "availability", "reliability", *known, "target"]
    yield text_table(columns, [_cells(figure, table.targets) for figure in table.figures])
    yield ""
    targets = (
        f"availability {float(table.targets.availability):g},"
        f" reliability {float(table.targets.reliability):g},"
        f" unknown at most {float(table.targets.unknown):g} %"
    )
    missed = [
        f"  {' '.join(figure.names)}: {'; '.join(map(str, misses))}"
        for figure in table.figures
        if (misses := figure.misses(table.targets))
    ]
    yield f"targets ({targets}) missed:" if missed else f"targets met: {targets}"
    yield from missed
    if days := days_not_computed(table.runs, table.period):
        yield f"not computed: {', '.join(days)}"


def _cells(figure: Figure, targets: Targets) -> list[object]:
    if figure.seconds:
        missing = percent(figure.seconds.missing, figure.seconds.total)
        known = [short(figure.unknown), short(missing)]
    else:
        known = [f"{figure.sites_known} of {figure.sites_expected}"]
    verdict = "missed" if figure.misses(targets) else "met"
    return [
        *figure.names,
        short(figure.availability),
        short(figure.reliability),
        *known,
        "no data" if figure.availability is None else verdict,
    ]
