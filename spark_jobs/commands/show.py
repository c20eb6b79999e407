"""`sam-report show`: the figures of a period as a table, CSV or JSON."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from fractions import Fraction
from functools import cached_property

from sam_pipeline.schema.program.moments import utc_today
from sam_pipeline.spark_jobs.command_line import (
    ReportTable,
    Row,
    TableCell,
    add_published_options,
    both,
    in_files,
    in_table,
    percentages,
    print_tables,
    published,
    requested_period,
    revision_argument,
    seconds_columns,
    table_format,
    time_or_none,
)
from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.profiles.in_words import ARGO_WEIGHTS, own_targets
from sam_pipeline.spark_jobs.profiles.profile import ARGO
from sam_pipeline.spark_jobs.rules.days import Period, in_ranges, month_of
from sam_pipeline.spark_jobs.rules.figures import (
    IN_A_ROW,
    Figure,
    is_bad,
    months_in_a_row,
)
from sam_pipeline.spark_jobs.rules.levels import GROUP, NAMES, SITE
from sam_pipeline.spark_jobs.rules.seconds import percent, rounded, short, short_change
from sam_pipeline.spark_jobs.runs.months import MonthFigure, month_figures
from sam_pipeline.spark_jobs.runs.published import (
    Names,
    PublishedRun,
    days_not_computed,
    published_runs,
    until_of,
)
from sam_pipeline.spark_jobs.runs.seal import (
    require_revisions,
    sealed_reports,
    waiting,
)
from sam_pipeline.spark_jobs.runs.summary import PeriodTargets, period_figures, period_targets

EXAMPLES = """\
examples:
  sam-report show --day yesterday
  sam-report show --level endpoint --from 2026-11-01 --to 2026-11-07 --format csv
  sam-report show --level group --month 2026-11 --report critical
  sam-report show --month 2026-10 --revision 1
  sam-report show --by month --from 2026-01-01 --to 2026-11-30 --site SITE-A

Over several days the seconds are added up, then divided. A group is the mean of its sites over
their days as members, weighted by the sums of their weights: see `sam-report explain --group`.
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
    command.add_argument(
        "--by",
        choices=[MONTH],
        help="a row for each calendar month of sites or groups, compared with the month before",
    )
    command.add_argument(
        "--revision",
        type=revision_argument,
        metavar="N",
        help="the figures as this revision of a sealed month published them",
    )
    add_published_options(command, table=True)
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
    if args.revision is not None and (args.by == MONTH or len(list(period.months())) > 1):
        raise ReportUsage("--revision goes with days of one month, and not with --by month")
    tables: list[ReportTable] = []
    with published(args, period, args.site) as (connection, reports):
        for report in reports:
            revision = args.revision
            if revision is not None:
                [sealed] = sealed_reports(connection, report, month_of(period.first))
                require_revisions(sealed, revision)
            runs = published_runs(connection, report, period, revision)
            about = (report, args.level, period, runs)
            if args.by != MONTH:
                figures = period_figures(
                    connection, report, args.level, period, args.site, revision
                )
                targets = period_targets(connection, report, period, revision=revision)
                if table_format(args) == "table":
                    figures = sorted(figures, key=lambda of: _worst_first(of, args.level, targets))
                revisions = {run.revision for run in runs}
                named = revision or (revisions.pop() if len(revisions) == 1 else None)
                tables.append(FigureTable(*about, figures, targets, named))
                continue
            with_months_before = Period(months_in_a_row(period.first)[-1], period.last)
            months = month_figures(connection, report, args.level, with_months_before, args.site)
            targets_of = {
                month: period_targets(connection, report, month_of(month))
                for month in {figure.month for figure in months}
            }
            tables.append(MonthTable(*about, months, targets_of))
        for message in waiting(connection, args.report, period) if not args.revision else ():
            logger.warning(message)
    if table_format(args) != "table":  # the table has a line for it
        for table in tables:
            if missing := days_not_computed(table.runs, period):
                logger.warning("%s: not computed: %s", table.report, missing)
    return print_tables(args, tables)


def _worst_first(
    figure: Figure, level: str, targets: PeriodTargets
) -> tuple[bool, Fraction, Names]:
    misses = figure.misses(targets.of(level, figure.names))
    return not misses, figure.availability or Fraction(0), figure.names


def _known(figure: Figure, runs: Sequence[PublishedRun]) -> Row:
    """The time, or the number of sites, that a figure is known for."""
    if figure.seconds:
        return percentages(unknown=figure.unknown)
    known, expected = figure.sites_known, figure.sites_expected
    return [
        *in_files(sites_expected=expected, sites_known=known),
        *in_files(argo_weights=any(run.profile.weights == ARGO for run in runs)),
        *in_table(sites=f"{known} of {expected}"),
    ]


@dataclass(frozen=True)
class FigureTable(ReportTable):
    """The figures of one report at one level over a period.

    `revision` is that of the sealed month in which the period lies.
    """

    figures: Sequence[Figure]
    targets: PeriodTargets
    revision: int | None

    @property
    def heading(self) -> str:
        return f"{super().heading}{f', revision {self.revision}' if self.revision else ''}"

    def rows(self) -> Iterator[Row]:
        all_days = len(list(self.period.days()))
        covers_less = any(figure.days < all_days for figure in self.figures)
        for figure in self.figures:
            misses = figure.misses(self.targets.of(self.level, figure.names))
            days = TableCell(
                "days", figure.days, "days" * covers_less, f"{figure.days} of {all_days}"
            )
            if seconds := figure.seconds:
                missing = short(percent(seconds.missing, seconds.total))
                of_days = [*in_table(missing=missing), days, *seconds_columns(seconds)]
                until = figure.until
            else:
                of_days, until = [days], until_of(self.runs)
            yield [
                *self.named(figure.names),
                *percentages(availability=figure.availability, reliability=figure.reliability),
                *_known(figure, self.runs),
                *of_days,
                *in_files(
                    until=time_or_none(until),
                    missed=[miss.figure for miss in misses],
                    revision=self.revision,
                ),
                *in_table(target=self.targets.verdict(self.level, figure)),
            ]

    def notes(self) -> Iterator[str]:
        if not self.figures:
            yield "no data: nothing was expected, the topology of these days is empty"
            return
        everywhere = self.targets.everywhere
        targets = (
            f"availability {float(everywhere.availability):g},"
            f" reliability {float(everywhere.reliability):g},"
            f" unknown at most {float(everywhere.unknown):g} %"
        )
        missed = [
            f"  {' '.join(figure.names)}: {'; '.join(map(str, misses))}"
            for figure in self.figures
            if (misses := figure.misses(self.targets.of(self.level, figure.names)))
        ]
        yield f"targets ({targets}) missed:" if missed else f"targets met: {targets}"
        yield from missed
        yield from _about_groups(self, self.figures)
        for heading, own in own_targets(self.targets.profile):
            yield f"{heading[0].lower()}{heading[1:]}: {own}"
        if days := days_not_computed(self.runs, self.period):
            yield f"not computed: {days}"


@dataclass(frozen=True)
class MonthTable(ReportTable):
    """The figures of sites or groups in each month of the period, which is whole months.

    `months` also has the two months before the period, to compare with; `targets` are those of each
    month, by its first day.
    """

    months: Sequence[MonthFigure]
    targets: Mapping[date, PeriodTargets]

    @property
    def heading(self) -> str:
        first, last = (f"{day:%Y-%m}" for day in (self.period.first, self.period.last))
        return f"{self.report}, {first if first == last else f'{first} to {last}'}"

    def rows(self) -> Iterator[Row]:
        figure_of = {(month.figure.names, month.month): month.figure for month in self.months}
        for month in self._of_period:
            figure, name = month.figure, f"{month.month:%Y-%m}"
            month_before = month_of(month.month - timedelta(days=1)).first
            unknown = Figure(figure.names, None, None)
            before = figure_of.get((figure.names, month_before), unknown)
            misses = figure.misses(self.targets[month.month].of(self.level, figure.names))
            ends_bad_row = (figure.names, month.month) in self._ends_of_bad_rows
            verdict = self.targets[month.month].verdict(self.level, figure)
            if ends_bad_row:
                verdict += f", {IN_A_ROW} in a row"
            of_month = month_of(month.month)
            yield [
                *in_files(report=self.report, month=name, level=self.level),
                *both(**dict(zip(NAMES[self.level], figure.names, strict=True))),
                *in_table(month=name),
                *percentages(availability=figure.availability),
                _change("availability", figure.availability, before.availability),
                *percentages(reliability=figure.reliability),
                _change("reliability", figure.reliability, before.reliability),
                *_known(figure, [run for run in self.runs if month_of(run.day) == of_month]),
                *(seconds_columns(figure.seconds) if figure.seconds else ()),
                TableCell("days", month.days, "days", f"{month.days} of {of_month.last.day}"),
                *in_files(
                    until=time_or_none(figure.until),
                    missed=[miss.figure for miss in misses],
                    bad_months_in_a_row=ends_bad_row,
                ),
                *in_table(target=verdict),
            ]

    def notes(self) -> Iterator[str]:
        if not self._of_period:
            yield f"no data: no {self.level} has figures"
            return
        yield "change: against the month before; days: how many of the month have figures"
        if any(month >= self.period.first for _, month in self._ends_of_bad_rows):
            yield (
                f"{IN_A_ROW} in a row: availability or reliability was below its target in that"
                " month and in the two before"
            )
        yield from _about_groups(self, [month.figure for month in self._of_period])
        if days := days_not_computed(self.runs, self.period):
            yield f"not computed: {days}"

    @property
    def _of_period(self) -> list[MonthFigure]:
        return [month for month in self.months if month.month >= self.period.first]

    @cached_property
    def _ends_of_bad_rows(self) -> Collection[tuple[Names, date]]:
        """The months that are bad like those before them, with the site or group.

        EGI's rule is about whole months: one that is not over yet is not bad.
        """
        closed = max((run.day for run in self.runs if run.until is None), default=date.min)
        bad = {
            (month.figure.names, month.month)
            for month in self.months
            if month_of(month.month).last <= closed
            and is_bad(month.figure, self.targets[month.month].of(self.level, month.figure.names))
        }
        return {
            (names, month)
            for names, month in bad
            if all((names, before) in bad for before in months_in_a_row(month))
        }


def _about_groups(table: ReportTable, figures: Iterable[Figure]) -> Iterator[str]:
    """What the figures of groups depend on."""
    if table.level != GROUP:
        return
    argo = [run.day for run in table.runs if run.profile.weights == ARGO]
    if argo:
        on_days = "" if len(argo) == len(table.runs) else f" on {in_ranges(argo)}"
        yield f"weights{on_days}: {ARGO_WEIGHTS}"
    for names in dict.fromkeys(figure.names for figure in figures if figure.has_no_weight):
        yield f"no figure of {' '.join(names)}: all its sites with a figure have the weight 0"


def _change(name: str, value: Fraction | None, before: Fraction | None) -> TableCell:
    """The difference of two figures as a file or the table has them, so that columns add up."""
    now, then = rounded(value), rounded(before)
    change = None if now is None or then is None else now - then
    return TableCell(f"{name}_change", change, "change", short_change(value, before))
