"""The start page: reports by month, and for each report the sites that miss a target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from sam_pipeline.spark_jobs.pages.lines import LineChart, line_chart
from sam_pipeline.spark_jobs.pages.month import Month
from sam_pipeline.spark_jobs.pages.verdict import MET, Verdict, totals_of, verdict, worst_first
from sam_pipeline.spark_jobs.pages.writer import site_page, year_page
from sam_pipeline.spark_jobs.profiles.in_words import in_words
from sam_pipeline.spark_jobs.rules.levels import GROUP, SITE
from sam_pipeline.spark_jobs.rules.seconds import short

# The page of the month lists the others.
_MAX_NAMED = 5
_MAX_COLUMNS = 12
_report = attrgetter("report")


@dataclass(frozen=True)
class BadSite:
    """A site that missed a target, and by how much."""

    site: str
    link: str
    verdict: Verdict
    misses: Sequence[str]


@dataclass(frozen=True)
class MonthOfReport:
    """A month of a report: its cell in the table, and the summary of the newest one.

    `missed` sites missed a target; `named` are the worst of them, and `verdict` is that on the
    worst site. The means are those of the sites.
    """

    month: Month
    sites: int
    missed: int
    named: Sequence[BadSite]
    groups: Sequence[str]
    availability: Fraction | None
    reliability: Fraction | None

    @property
    def more(self) -> int:
        return self.missed - len(self.named)

    @property
    def verdict(self) -> Verdict:
        return self.named[0].verdict if self.named else MET

    @property
    def mean(self) -> str:
        return short(self.availability)


@dataclass(frozen=True)
class ReportRow:
    """A report: what it counts, a cell for each column, and its newest and earlier months."""

    name: str
    counts: str
    cells: Sequence[MonthOfReport | None]
    chart: LineChart | None
    newest: MonthOfReport
    earlier: Sequence[MonthOfReport]
    years: Mapping[str, str]


def start_view(months: Iterable[Month], out: Path) -> dict[str, Any]:
    """The values of the start page, from all months with pages, ordered by report and month.

    It has links to the pages of years that are in the directory `out`.
    """
    of_report = {name: list(group) for name, group in groupby(months, _report)}
    all_months = {month.period.first for group in of_report.values() for month in group}
    columns = sorted(all_months)[-_MAX_COLUMNS:]
    rows = []
    for name, group in of_report.items():
        summaries = {month.period.first: _summary(month) for month in group}
        cells = [summaries.get(column) for column in columns]
        newest = summaries[max(summaries)]
        profile = newest.month.period_targets.profile
        vo = f"VO {profile.vo} · " if profile.vo else ""
        earlier = [summary for first, summary in sorted(summaries.items()) if first < columns[0]]
        counts = f"{vo}up when {dict(in_words(profile))['Up when']}"
        chart = line_chart(columns, cells, profile.targets.availability)
        drawn = chart if chart.is_worth_drawing else None
        years = {f"{first:%Y}": year_page(name, first) for first in sorted(summaries)}
        written = {year: path for year, path in years.items() if (out / path).exists()}
        rows.append(ReportRow(name, counts, cells, drawn, newest, earlier[::-1], written))
    return {"columns": columns, "reports": rows}


def _summary(month: Month) -> MonthOfReport:
    first, targets = month.period.first, month.period_targets
    figures = month.history.in_month(SITE, first)
    bad = [figure for figure in figures if figure.misses(targets.of_site(figure.names[0]))]
    bad.sort(key=lambda figure: worst_first(figure, targets.of_site(figure.names[0])))
    named = []
    for figure in bad[:_MAX_NAMED]:
        [site] = figure.names
        misses = list(totals_of(figure, targets.of_site(site)).misses)
        if site in month.in_bad_row:
            misses.append("three bad months in a row")
        page = f"{month.path}/{site_page(site)}"
        judged = verdict(figure, targets.of_site(site))
        named.append(BadSite(site, page, judged, misses))
    groups = month.history.in_month(GROUP, first)
    missed = [group for group in groups if group.misses(targets.of(GROUP, group.names))]
    return MonthOfReport(
        month,
        len(figures),
        len(bad),
        named,
        [
            f"{kind} {sum(group.names[0] == kind for group in missed)} of"
            f" {sum(group.names[0] == kind for group in groups)}"
            for kind in dict.fromkeys(group.names[0] for group in missed)
        ],
        _mean(figure.availability for figure in figures),
        _mean(figure.reliability for figure in figures),
    )


def _mean(values: Iterable[Fraction | None]) -> Fraction | None:
    known = [value for value in values if value is not None]
    return sum(known, Fraction()) / len(known) if known else None
