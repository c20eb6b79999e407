"""The page of trends: the endpoints that changed their status most often in a month."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from sam_pipeline.spark_jobs.pages.month import Month
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT
from sam_pipeline.spark_jobs.rules.statuses import FOLDED, STATUSES
from sam_pipeline.spark_jobs.runs.published import Trend, trends

# `sam-report trends` lists them all.
_MAX_ENDPOINTS = 100


@dataclass(frozen=True)
class TrendsView:
    """The endpoints with the most changes, the number that changed, and the number of all.

    `statuses` are those with a column.
    """

    statuses: Sequence[str]
    trends: Sequence[Trend]
    changing: int
    endpoints: int


def trends_view(connection: Connection, month: Month) -> TrendsView:
    """The endpoints of a month, most changes first."""
    changing, endpoints = trends(connection, month.report, ENDPOINT, month.period)
    shown = changing[:_MAX_ENDPOINTS]
    is_excluded = any(trend.seconds.excluded for trend in shown)
    statuses = STATUSES if is_excluded else FOLDED
    return TrendsView(statuses, shown, len(changing), endpoints)
