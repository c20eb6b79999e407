"""The trends of a month: the endpoints that changed their status most often."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sam_pipeline.spark_jobs.runs.published import Trend

# `sam-report trends` has them all.
_MAX_ENDPOINTS = 100


@dataclass(frozen=True)
class TrendsView:
    """The endpoints that changed most, and how many changed at all."""

    trends: Sequence[Trend]
    changing: int
    endpoints: int


def trends_view(trends: Iterable[Trend]) -> TrendsView:
    """The endpoints by their changes, most first."""
    endpoints = list(trends)
    changing = sorted(
        (trend for trend in endpoints if trend.changes),
        key=lambda trend: (-trend.changes, trend.names),
    )
    return TrendsView(changing[:_MAX_ENDPOINTS], len(changing), len(endpoints))
