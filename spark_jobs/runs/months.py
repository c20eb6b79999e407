"""The published figures of sites and groups by month, and a digest of all of a month."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.rules.days import Period, as_day, month_of
from sam_pipeline.spark_jobs.rules.figures import (
    Figure,
    ends_bad_row,
    figure_of,
    is_bad,
    months_in_a_row,
)
from sam_pipeline.spark_jobs.rules.levels import GROUP, GROUP_FIGURES, NAMES, SECONDS, SITE
from sam_pipeline.spark_jobs.rules.seconds import Seconds
from sam_pipeline.spark_jobs.runs.published import Names, as_moment, second_or_none
from sam_pipeline.spark_jobs.runs.summary import period_targets

_COLUMNS = {
    SITE: SECONDS,
    GROUP: GROUP_FIGURES,
}

_PROGRAM = Path(__file__).parents[1]
_SOURCES = ("*.py", "*.html", "*.css", "*.js")
_PUBLISHED = (
    "SELECT report, day, run_id, input_digest, finished_at FROM report_run"
    " WHERE state = 'published' AND (report = :report AND day BETWEEN :since AND :last"
    " OR day BETWEEN :first AND :last) ORDER BY report, day"
)
_CANDIDATES = (
    "SELECT day, run_id FROM report_candidate"
    " WHERE report = :report AND day BETWEEN :first AND :last ORDER BY day"
)


@dataclass(frozen=True)
class MonthFigure:
    """The figure of a site or group over the published days of a month, and how many there are.

    `month` is the first day of the month. The figures of a group have five decimals.
    """

    month: date
    figure: Figure
    days: int


def month_figures(
    connection: Connection, report: str, level: str, period: Period, site: str | None = None
) -> list[MonthFigure]:
    """The figures of all sites or groups, or of one site, in the months that the period touches.

    They are ordered by names and month.

    Args:
        level: SITE or GROUP.
    """
    names = NAMES[level]
    statement = (
        f"SELECT month, days, until, {', '.join((*names, *_COLUMNS[level]))} FROM {level}_month"
        " WHERE report = :report AND month BETWEEN :first AND :last"
    )
    bound = {**Period(month_of(period.first).first, period.last).bounds, "report": report}
    if site is not None:
        statement += " AND site = :site"
        bound["site"] = site
    figures = []
    for month, days, until, *values in connection.execute(text(statement), bound):
        key, numbers = tuple(values[: len(names)]), values[len(names) :]
        end = second_or_none(until)
        if level == SITE:
            figure = figure_of(key, Seconds(*map(int, numbers)), days, end)
        else:
            figure = Figure(
                key,
                _fraction(numbers[0]),
                _fraction(numbers[1]),
                days=days,
                until=end,
                sites_expected=numbers[2],
                sites_known=numbers[3],
            )
        figures.append(MonthFigure(as_day(month), figure, days))
    # In the order of Python: that of a database depends on its collation.
    return sorted(figures, key=lambda month: (month.figure.names, month.month))


def _fraction(percent: Any) -> Fraction | None:
    """A percentage that a view returns: a float on SQLite, a decimal on PostgreSQL."""
    return None if percent is None else Fraction(Decimal(str(percent)))


class ReportHistory:
    """The figures of all sites and groups of a report, by month."""

    def __init__(self, figures: Mapping[str, Iterable[MonthFigure]]) -> None:
        """Take the figures of each level, ordered by names and month."""
        self._of: dict[tuple[str, Names], list[MonthFigure]] = {}
        self._in: dict[tuple[str, date], list[Figure]] = {}
        for level, of_level in figures.items():
            for figure in of_level:
                self._of.setdefault((level, figure.figure.names), []).append(figure)
                self._in.setdefault((level, figure.month), []).append(figure.figure)

    def in_month(self, level: str, month: date) -> Sequence[Figure]:
        """The figures of all sites, or of all groups, ordered by names."""
        return self._in.get((level, month), ())

    def year(self, level: str, names: Names, month: date) -> list[MonthFigure]:
        """The figures of a site or group in the twelve months up to a month."""
        year = year_to(month)
        figures = self._of.get((level, names), ())
        return [figure for figure in figures if year.first <= figure.month <= month]


def report_history(connection: Connection, report: str, period: Period) -> ReportHistory:
    """The history of a report in the months of a period, and in the eleven before it."""
    since = Period(year_to(period.first).first, period.last)
    return ReportHistory(
        {level: month_figures(connection, report, level, since) for level in (SITE, GROUP)}
    )


def sites_in_bad_row(
    connection: Connection, report: str, month: date, history: ReportHistory
) -> list[str]:
    """The sites that were bad in the month and in those before it, each by the targets then."""
    bad_of: dict[str, list[date]] = {}
    for first in months_in_a_row(month):
        figures = history.in_month(SITE, first)
        if not figures:
            return []
        targets = period_targets(connection, report, month_of(first))
        for figure in figures:
            [site] = figure.names
            if is_bad(figure, targets.of_site(site)):
                bad_of.setdefault(site, []).append(first)
    return sorted(site for site, bad in bad_of.items() if ends_bad_row(month, bad))


def year_to(month: date) -> Period:
    """The twelve months up to the month of a day, which is the last one."""
    last = month_of(month).last
    return Period(date(last.year - 1, last.month, 1) + timedelta(days=31), last).in_whole_months()


def published_months(connection: Connection) -> list[tuple[str, date]]:
    """The months with figures: each report with the first day of the month, in order."""
    days = connection.execute(
        text("SELECT DISTINCT report, day FROM report_run WHERE state = 'published'")
    )
    return sorted({(report, month_of(as_day(day)).first) for report, day in days})


def month_digest(
    connection: Connection, report: str, month: Period, year: Period, *others: object
) -> str:
    """The digest of the inputs of a month's pages.

    These are this program, the runs of the report in the `year` up to the month, those of other
    reports in the month, its candidates, and `others`, which are compared by their `repr`.
    """
    parameters = {"report": report, **month.bounds, "since": str(year.first)}
    digest = hashlib.sha256(_program_digest())
    for name, day, run_id, inputs, finished_at in connection.execute(text(_PUBLISHED), parameters):
        at = finished_at and as_moment(finished_at).timestamp()
        digest.update(repr((name, str(day), run_id, inputs, at)).encode())
    for day, run_id in connection.execute(text(_CANDIDATES), parameters):
        digest.update(repr((str(day), run_id)).encode())
    digest.update(repr(others).encode())
    return digest.hexdigest()


@cache
def _program_digest() -> bytes:
    """The digest of this program: another version may write other pages from the same figures."""
    digest = hashlib.sha256()
    for path in sorted(path for kind in _SOURCES for path in _PROGRAM.rglob(kind)):
        digest.update(path.read_bytes())
    return digest.digest()
