"""The trends of a month: the endpoints that changed their status most often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from sam_pipeline.spark_jobs.pages.month import Month
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT
from sam_pipeline.spark_jobs.runs.published import Trend, trends

# `sam-report trends` has them all.
_MAX_ENDPOINTS = 100


@dataclass(frozen=True)
class TrendsView:
    """The endpoints that changed most, and how many changed at all."""

    trends: Sequence[Trend]
    changing: int
    endpoints: int


def trends_view(connection: Connection, month: Month) -> TrendsView:
    """The endpoints by their changes, most first."""
    changing, endpoints = trends(connection, month.report, ENDPOINT, month.period)
    return TrendsView(changing[:_MAX_ENDPOINTS], len(changing), endpoints)
