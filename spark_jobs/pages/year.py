"""The page of a report's year, to print for agencies and committees.

It has groups by month, sites by month, the worst incidents and the revisions of sealed months, and
links to the months that have pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import chain

from sqlalchemy import Connection

from sam_pipeline.spark_jobs.explain.incidents import (
    Incident,
    incidents_without_causes,
    longest_first,
    read_incidents,
)
from sam_pipeline.spark_jobs.pages.verdict import (
    Cell,
    PeriodTotals,
    availability_cell,
    empty_cell,
    totals_of,
    worst_first,
)
from sam_pipeline.spark_jobs.pages.writer import INDEX, PageFiles, month_path
from sam_pipeline.spark_jobs.rules.days import Period, moment, month_of
from sam_pipeline.spark_jobs.rules.figures import Figure
from sam_pipeline.spark_jobs.rules.levels import GROUP, SITE
from sam_pipeline.spark_jobs.runs.months import ReportHistory, report_history
from sam_pipeline.spark_jobs.runs.published import (
    published_runs,
    until_of,
)
from sam_pipeline.spark_jobs.runs.seal import Revision, seals
from sam_pipeline.spark_jobs.runs.summary import PeriodTargets, period_figures, period_targets
from sam_pipeline.sql.archive.store import OpenArchive

_WORST = 3
# On paper, so that a report stays on one page. The screen shows all.
_PRINTED = 45


@dataclass(frozen=True)
class YearRow:
    """A site or a group: its figures of the year, and a cell for each month.

    Rows that are not `printed` are on the screen alone.
    """

    name: str
    total: PeriodTotals
    months: Sequence[Cell]
    printed: bool = True


@dataclass(frozen=True)
class Year:
    """A report over a year; `until` is the end of the data (epoch s) if a day was open."""

    report: str
    period: Period
    days: int
    computed_at: str
    until: int | None
    months: Sequence[tuple[date, str]]
    sites: Sequence[YearRow]
    groups: Sequence[tuple[str, Sequence[YearRow]]]
    incidents: Sequence[Incident]
    revisions: Sequence[tuple[date, Revision]]

    def for_the_public(self) -> Year:
        """The year without the persons who sealed its months."""
        revisions = [(month, revision.unsigned()) for month, revision in self.revisions]
        return replace(self, revisions=revisions)

    @property
    def missed(self) -> int:
        """The number of sites that miss a target over the year."""
        return sum(bool(row.total.misses) for row in self.sites)

    @property
    def not_printed(self) -> int:
        return sum(not row.printed for row in self.sites)


def year_view(
    connection: Connection, report: str, period: Period, files: PageFiles, archive: OpenArchive
) -> Year:
    """What the page of a report's year shows."""
    runs = published_runs(connection, report, period)
    months = [month.first for month in period.in_whole_months().months()]
    link_of = {
        month: f"{month:%Y-%m}/{INDEX}" if files.recorded(month_path(report, month)) else ""
        for month in months
    }
    history = report_history(connection, report, period)
    targets = period_targets(connection, report, period)
    targets_of = {
        month: period_targets(connection, report, month_of(month))
        for month in months
        if history.in_month(SITE, month)
    }
    rows = {}
    for level in (SITE, GROUP):
        of_year = sorted(
            period_figures(connection, report, level, period),
            key=lambda figure: worst_first(figure, targets.of(level, figure.names)),
        )
        rows[level] = list(_rows(level, of_year, history, targets, targets_of, months))
    groups: dict[str, list[YearRow]] = {}
    for (group_type, name), row in rows[GROUP]:
        groups.setdefault(group_type, []).append(YearRow(name, row.total, row.months))
    return Year(
        report,
        period,
        len(runs),
        max((run.finished_at for run in runs), default="").replace("T", " ")[:16],
        until_of(runs),
        list(link_of.items()),
        [row for _, row in rows[SITE]],
        sorted(groups.items()),
        worst_incidents(connection, report, period, archive),
        [
            (date.fromisoformat(f"{seal.month}-01"), revision)
            for seal in seals(connection, report)
            if seal.month.startswith(f"{period.first:%Y}-")
            for revision in seal.revisions
        ],
    )


def _rows(
    level: str,
    of_year: Sequence[Figure],
    history: ReportHistory,
    targets: PeriodTargets,
    targets_of: Mapping[date, PeriodTargets],
    months: Sequence[date],
) -> Iterator[tuple[tuple[str, ...], YearRow]]:
    """The rows of sites or groups, in the order of their figures of the year."""
    figures = {
        month: {figure.names: figure for figure in history.in_month(level, month)}
        for month in months
    }
    for number, figure in enumerate(of_year):
        cells = [
            availability_cell(of_month, targets_of[month].of(level, figure.names), 1)
            if (of_month := figures[month].get(figure.names))
            else empty_cell(month in targets_of)
            for month in months
        ]
        total = totals_of(figure, targets.of(level, figure.names))
        yield figure.names, YearRow(figure.names[0], total, cells, number < _PRINTED)


def worst_incidents(
    connection: Connection, report: str, period: Period, archive: OpenArchive
) -> list[Incident]:
    """The longest incidents of the period, with their causes."""
    of_sites = incidents_without_causes(connection, report, period).values()
    worst = []
    for found in longest_first(chain.from_iterable(of_sites))[:_WORST]:
        days = Period(moment(found.start).date(), moment(found.end - 1).date())
        read = read_incidents(connection, report, days, found.site, archive).incidents
        causes = [each.causes for each in read if each.touches(found.start, found.end)]
        worst.append(replace(found, causes=causes[0] if causes else ()))
    return worst
