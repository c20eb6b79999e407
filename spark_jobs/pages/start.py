"""The start page: the months of every report, and the sites and groups that miss a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sam_pipeline.spark_jobs.pages.month import Month, MonthView, SiteRow

# The page of the month lists the others.
_MAX_NAMED = 5


@dataclass(frozen=True)
class MonthRow:
    """A month of a report; `named` are the first of the sites that `missed` a target."""

    month: Month
    sites: int
    missed: int
    named: Sequence[SiteRow]
    groups: Sequence[str]

    @property
    def more(self) -> int:
        return self.missed - len(self.named)


@dataclass(frozen=True)
class ReportView:
    """A report, its newest month first."""

    name: str
    months: Sequence[MonthRow]


def month_row(view: MonthView) -> MonthRow:
    """The month as the start page shows it."""
    return MonthRow(
        view.month,
        view.sites,
        len(view.missed),
        view.missed[:_MAX_NAMED],
        [
            f"{of_type.group_type} {len(of_type.missed)} of {of_type.groups}"
            for of_type in view.groups
            if of_type.missed
        ],
    )
