"""The trends of a month: which endpoints changed their status most often, and what they were."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sam_pipeline.spark_jobs.pages.writer import site_page
from sam_pipeline.spark_jobs.rules.days import moment
from sam_pipeline.spark_jobs.rules.seconds import Seconds, short
from sam_pipeline.spark_jobs.runs.published import Trend

# `sam-report trends` has them all.
_MAX_ENDPOINTS = 100


@dataclass(frozen=True)
class TrendRow:
    """An endpoint over the month; the link leads to the day of its last change."""

    site: str
    link: str
    endpoint: str
    changes: int
    first_change: str
    last_change: str
    availability: str
    seconds: Seconds


@dataclass(frozen=True)
class TrendsView:
    """The endpoints that changed most, and how many changed at all."""

    trends: Sequence[TrendRow]
    changing: int
    endpoints: int


def trends_view(trends: Iterable[Trend]) -> TrendsView:
    """The endpoints by their changes, most first."""
    found = list(trends)
    changing = sorted(
        (each for each in found if each.changes), key=lambda each: (-each.changes, each.names)
    )
    rows = [_row(each) for each in changing[:_MAX_ENDPOINTS]]
    return TrendsView(rows, len(changing), len(found))


def _row(trend: Trend) -> TrendRow:
    site, flavour, host = trend.names
    last = _second(trend.last_change)
    return TrendRow(
        site,
        f"{site_page(site)}#{last[:10]}",
        f"{flavour} {host}",
        trend.changes,
        _second(trend.first_change),
        last,
        short(trend.seconds.availability),
        trend.seconds,
    )


def _second(at: int | None) -> str:
    return "" if at is None else f"{moment(at):%Y-%m-%d %H:%M:%S}"
