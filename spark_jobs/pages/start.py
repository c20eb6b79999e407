"""The start page: every report's months, their figures, and who misses a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sam_pipeline.spark_jobs.pages.month import Month, MonthView, SiteRow

# The month's page names the others.
_MAX_NAMED = 5


@dataclass(frozen=True)
class MonthRow:
    """A month of a report."""

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
    """What the start page says of a month."""
    return MonthRow(
        view.month,
        view.sites,
        len(view.missing),
        view.missing[:_MAX_NAMED],
        [f"{kind.name} {kind.missing} of {kind.groups}" for kind in view.kinds if kind.missing],
    )
