"""The start page: the months of every report, and the sites and groups that miss a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sam_pipeline.spark_jobs.pages.month import Month, MonthView, SiteRow

# The page of the month lists the others.
_MAX_NAMED = 5


@dataclass(frozen=True)
class MonthRow:
    """A month of a report; `named` are the first of the `missing` sites that miss a target."""

    month: Month
    sites: int
    missing: int
    named: Sequence[SiteRow]
    groups: Sequence[str]

    @property
    def more(self) -> int:
        return self.missing - len(self.named)


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
        len(view.missing),
        view.missing[:_MAX_NAMED],
        [f"{kind.name} {kind.missing} of {kind.groups}" for kind in view.kinds if kind.missing],
    )
