"""The trends of a month: the endpoints that changed their status most often."""

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
    endpoints = list(trends)
    changing = sorted(
        (trend for trend in endpoints if trend.changes),
        key=lambda trend: (-trend.changes, trend.names),
    )
    rows = []
    for trend in changing[:_MAX_ENDPOINTS]:
        site, flavour, host = trend.names
        first, last = (
            "" if second is None else f"{moment(second):%Y-%m-%d %H:%M:%S}"
            for second in (trend.first_change, trend.last_change)
        )
        rows.append(
            TrendRow(
                site,
                f"{site_page(site)}#{last[:10]}",
                f"{flavour} {host}",
                trend.changes,
                first,
                last,
                short(trend.seconds.availability),
                trend.seconds,
            )
        )
    return TrendsView(rows, len(changing), len(endpoints))
