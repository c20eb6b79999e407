"""The answers of ARGO's web API (v2) about A/R and status, with our figures in them.

Names, nesting and texts are ARGO's, so programs written for ARGO can read them. The figures are
those of `sam-report show`: the seconds of a month are added up and divided once. (ARGO divides the
means of rounded days by 1.00000001 minus the unknown share, so its perfect month has
99.99999900000002, and its month without data 0.) Groups are rounded to 5 decimals like all figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Any

from sqlalchemy import Connection

from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.rules.days import Period, moment
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, GROUP, METRIC, SERVICE, SITE
from sam_pipeline.spark_jobs.rules.seconds import Seconds, rounded
from sam_pipeline.spark_jobs.runs.published import (
    Names,
    Segment,
    group_site_totals,
    timeline,
    totals,
)
from sam_pipeline.spark_jobs.runs.summary import period_figures

GROUP_TYPE = "SITES"
"""The type of a group of endpoints in EGI's reports."""
TOP_TYPE = "PROJECT"
"""The type of the group of all sites without a group, which has the report's name."""

_UNDEFINED = "-1"
_UNDEFINED_GROUP = "nan"

Item = dict[str, Any]
"""A JSON object."""
Shape = Sequence[tuple[str, str]]
"""For each level its type ("" if ARGO has none), and the key of its children."""


@dataclass(frozen=True)
class ArgoQuery:
    """A report over a day or a month, with ARGO's `date` for it; `until` is set on an open day.

    With a `site`, only its objects are wanted.
    """

    connection: Connection
    report: str
    period: Period
    date: str
    until: int | None = None
    site: str | None = None


@dataclass(frozen=True)
class ArgoDocument:
    """A document with its objects in the array `root`."""

    name: str
    root: str
    items: Callable[[ArgoQuery], Iterator[Item]]


def _results_of(level: str, *shape: tuple[str, str]) -> Callable[[ArgoQuery], Iterator[Item]]:
    """A/R of the things of a level, nested below their sites."""

    def items(query: ArgoQuery) -> Iterator[Item]:
        rows = totals(query.connection, query.report, level, query.period, query.site)
        return tree(
            ((row.names, figures(query.date, row.seconds or Seconds())) for row in rows), shape
        )

    return items


def site_results(query: ArgoQuery) -> Iterator[Item]:
    """A/R of sites, nested below each of their groups."""
    top = (TOP_TYPE, query.report)
    rows = group_site_totals(query.connection, query.report, query.period, top, query.site)
    for (group_type, group_name), sites in groupby(rows, key=lambda row: row.names[:2]):
        items = ((site.names[2:], figures(query.date, site.seconds or Seconds())) for site in sites)
        endpoints = list(tree(items, ((GROUP_TYPE, "results"),)))
        yield {"name": group_name, "type": group_type, "endpoints": endpoints}


def group_results(query: ArgoQuery) -> Iterator[Item]:
    """A/R of groups of sites."""
    for group in period_figures(query.connection, query.report, GROUP, query.period):
        group_type, group_name = group.names
        result = {
            "timestamp": query.date,
            "availability": number(group.availability, _UNDEFINED_GROUP),
            "reliability": number(group.reliability, _UNDEFINED_GROUP),
        }
        yield {"name": group_name, "type": group_type, "results": [result]}


def _statuses_of(level: str, *shape: tuple[str, str]) -> Callable[[ArgoQuery], Iterator[Item]]:
    """The timelines of the things of a level, nested below their sites."""

    def items(query: ArgoQuery) -> Iterator[Item]:
        end = query.period.end - 1 if query.until is None else query.until
        connection, report, period, site = query.connection, query.report, query.period, query.site
        segments = timeline(connection, report, period, site=site, level=level)
        return tree(changes(segments, end), shape)

    return items


def changes(segments: Iterable[Segment], end: int) -> Iterator[tuple[Names, Item]]:
    """The start of each status and, as in ARGO, the last status again at the end of the day."""
    for names, group in groupby(segments, key=lambda segment: segment.names):
        for segment in group:
            yield names, _status(segment.start, segment.status)
        yield names, _status(end, segment.status)


def figures(date: str, seconds: Seconds) -> Item:
    """A/R in percent, the other values as shares of the time."""

    def share(part: int) -> str:
        return number(Fraction(part, seconds.total or 1), _UNDEFINED)

    return {
        "timestamp": date,
        "availability": number(seconds.availability, _UNDEFINED),
        "reliability": number(seconds.reliability, _UNDEFINED),
        "unknown": share(seconds.not_known),
        "uptime": share(seconds.up),
        "downtime": share(seconds.downtime),
    }


def number(value: Fraction | None, undefined: str) -> str:
    """Rounded to 5 decimals, with the fewest digits, as by %g in Go: 100, 54.03509, 1e-05."""
    figure = rounded(value)
    return undefined if figure is None else repr(float(figure)).removesuffix(".0")


def tree(rows: Iterable[tuple[Names, Item]], shape: Shape) -> Iterator[Item]:
    """Nested objects from rows sorted by their names."""
    (kind, key), below = shape[0], shape[1:]
    for name, group in groupby(rows, key=lambda row: row[0][0]):
        inner = ((names[1:], item) for names, item in group)
        items = list(tree(inner, below)) if below else [item for _, item in inner]
        yield {"name": name, **({"type": kind} if kind else {}), key: items}


def _status(second: int, status: str) -> Item:
    return {"timestamp": format_time(moment(second)), "value": status}


_FLAVOURS = (GROUP_TYPE, "serviceflavors")
_SERVICES = (GROUP_TYPE, "services")
_ENDPOINTS = ("service", "endpoints")
_LAST = ("", "statuses")
RESULTS = tuple(
    ArgoDocument(f"results-{name}", "results", items)
    for name, items in (
        ("groups", group_results),
        ("sites", site_results),
        ("services", _results_of(SERVICE, _FLAVOURS, ("service", "results"))),
        ("endpoints", _results_of(ENDPOINT, _FLAVOURS, _ENDPOINTS, ("endpoint", "results"))),
    )
)
RESULTS_OF_SITES = RESULTS[1:]
STATUSES = tuple(
    ArgoDocument(f"status-{name}", "groups", items)
    for name, items in (
        ("sites", _statuses_of(SITE, (GROUP_TYPE, "statuses"))),
        ("services", _statuses_of(SERVICE, _SERVICES, ("service", "statuses"))),
        ("endpoints", _statuses_of(ENDPOINT, _SERVICES, _ENDPOINTS, _LAST)),
        ("metrics", _statuses_of(METRIC, _SERVICES, _ENDPOINTS, ("", "metrics"), _LAST)),
    )
)
