"""The trends of a month: which endpoints changed their status most often, and what they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from spark_jobs.figures import Seconds, short
from spark_jobs.levels import ENDPOINT, SECONDS
from spark_jobs.page_links import site_page
from spark_jobs.page_month import Month

# `sam-report trends` has them all.
MAX_ENDPOINTS = 100


@dataclass(frozen=True)
class Trend:
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

    trends: Sequence[Trend]
    changing: int
    endpoints: int


def trends_view(connection: Connection, month: Month) -> TrendsView:
    """The endpoints by their changes, most first."""
    found = connection.execute(
        text(
            "SELECT site, service_flavour, host_name, sum(changes) AS changes, min(first_change),"
            f" max(last_change), {', '.join(f'sum({name})' for name in SECONDS)},"
            " count(*) OVER (), sum(CASE WHEN sum(changes) > 0 THEN 1 ELSE 0 END) OVER ()"
            f" FROM status_trend WHERE report = :report AND level = '{ENDPOINT}'"
            " AND day BETWEEN :first AND :last GROUP BY site, service_flavour, host_name"
            " ORDER BY sum(changes) DESC, site, service_flavour, host_name LIMIT :at_most"
        ),
        {
            "report": month.report,
            "first": str(month.period.first),
            "last": str(month.period.last),
            "at_most": MAX_ENDPOINTS,
        },
    )
    rows = [tuple(row) for row in found]
    endpoints, changing = rows[0][-2:] if rows else (0, 0)
    return TrendsView([_trend(row) for row in rows if row[3]], int(changing), endpoints)


def _trend(row: tuple[Any, ...]) -> Trend:
    site, flavour, host, changes, first, last = row[:6]
    seconds = Seconds(*map(int, row[6:13]))
    return Trend(
        site,
        f"{site_page(site)}#{_minute(last)[:10]}",
        f"{flavour} {host}",
        int(changes),
        _minute(first),
        _minute(last),
        short(seconds.availability),
        seconds,
    )


def _minute(moment: Any) -> str:
    """`2026-11-14 09:12:03` from what the database has: a text on SQLite, else a time."""
    return str(moment).replace("T", " ")[:19]
