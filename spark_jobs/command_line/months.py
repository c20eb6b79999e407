"""Figures by calendar month, each compared with the month before."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

from sam_pipeline.schema.program.command import text_table
from sam_pipeline.spark_jobs.command_line.arguments import time_or_none
from sam_pipeline.spark_jobs.command_line.tables import ReportTable, seconds_columns
from sam_pipeline.spark_jobs.rules.days import month_of
from sam_pipeline.spark_jobs.rules.figures import IN_A_ROW, Miss, ends_bad_row, is_bad
from sam_pipeline.spark_jobs.rules.levels import GROUP, NAMES
from sam_pipeline.spark_jobs.rules.seconds import NO_FIGURE, rounded, short
from sam_pipeline.spark_jobs.runs.months import MonthFigure
from sam_pipeline.spark_jobs.runs.published import Names, days_not_computed
from sam_pipeline.spark_jobs.runs.summary import PeriodTargets


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

    def rows(self) -> Iterator[dict[str, Any]]:
        for month, before in self._with_month_before():
            figure = month.figure
            row: dict[str, Any] = {
                "report": self.report,
                "month": f"{month.month:%Y-%m}",
                "level": self.level,
                **dict(zip(NAMES[self.level], figure.names, strict=True)),
                "availability": rounded(figure.availability),
                "availability_change": _change(figure.availability, before[0]),
                "reliability": rounded(figure.reliability),
                "reliability_change": _change(figure.reliability, before[1]),
            }
            if figure.seconds:
                row["unknown"] = rounded(figure.unknown)
                row |= seconds_columns(figure.seconds)
            else:
                row["sites_expected"] = figure.sites_expected
                row["sites_known"] = figure.sites_known
            row["days"] = month.days
            row["until"] = time_or_none(figure.until)
            row["missed"] = [miss.figure for miss in self._misses(month)]
            yield {**row, "bad_months_in_a_row": self._ends_bad_row(month)}

    def lines(self) -> Iterator[str]:
        known = "sites" if self.level == GROUP else "unknown"
        figures = ["availability", "change", "reliability", "change", known, "days", "target"]
        rows = []
        for month, before in self._with_month_before():
            figure = month.figure
            verdict = "missed" if self._misses(month) else "met"
            if self._ends_bad_row(month):
                verdict += f", {IN_A_ROW} in a row"
            rows.append(
                [
                    *figure.names,
                    f"{month.month:%Y-%m}",
                    short(figure.availability),
                    _signed(_change(figure.availability, before[0])),
                    short(figure.reliability),
                    _signed(_change(figure.reliability, before[1])),
                    short(figure.unknown)
                    if figure.seconds
                    else f"{figure.sites_known} of {figure.sites_expected}",
                    f"{month.days} of {month_of(month.month).last.day}",
                    "no data" if figure.availability is None else verdict,
                ]
            )
        yield from text_table([*NAMES[self.level], "month", *figures], rows)
        yield ""
        yield "change: against the month before; days: how many of the month have figures"
        if any(self._ends_bad_row(month) for month, _ in self._with_month_before()):
            yield (
                f"{IN_A_ROW} in a row: availability or reliability was below its target in that"
                " month and in the two before"
            )
        if days := days_not_computed(self.runs, self.period):
            yield f"not computed: {days}"

    def _with_month_before(
        self,
    ) -> Iterator[tuple[MonthFigure, tuple[Fraction | None, Fraction | None]]]:
        """The months of the period, with availability and reliability of the month before each."""
        figure_of = {(month.figure.names, month.month): month.figure for month in self.months}
        for month in self.months:
            if month.month >= self.period.first:
                first_before = month_of(month.month - timedelta(days=1)).first
                before = figure_of.get((month.figure.names, first_before))
                yield month, (before.availability, before.reliability) if before else (None, None)

    def _ends_bad_row(self, month: MonthFigure) -> bool:
        return ends_bad_row(month.month, self._bad.get(month.figure.names, ()))

    @cached_property
    def _bad(self) -> Mapping[Names, Collection[date]]:
        """The bad months of each site or group."""
        bad: dict[Names, list[date]] = {}
        for month in self.months:
            names = month.figure.names
            if is_bad(month.figure, self.targets[month.month].of(self.level, names)):
                bad.setdefault(names, []).append(month.month)
        return bad

    def _misses(self, month: MonthFigure) -> list[Miss]:
        names = month.figure.names
        return month.figure.misses(self.targets[month.month].of(self.level, names))


def _change(value: Fraction | None, before: Fraction | None) -> Decimal | None:
    """The difference of two figures as they are stored, so that printed columns add up."""
    now, then = rounded(value), rounded(before)
    return None if now is None or then is None else now - then


def _signed(change: Decimal | None) -> str:
    return NO_FIGURE if change is None else f"{change:+.2f}"
