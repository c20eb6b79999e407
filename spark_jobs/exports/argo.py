"""What ARGO's web API (v2) answers about A/R and status, with our figures in it.

Names, nesting and texts are ARGO's, so that what reads them there reads them here. Figures are
ours, as `sam-report show` tells them: a month is the sum of its seconds, divided once. (ARGO
divides means of rounded days by 1.00000001 less the unknown share: its perfect month is
99.99999900000002, its month without data 0.) Groups are rounded to 5 decimals, as all else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Any

from sqlalchemy import Connection

from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, day_start, moment
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
"""The word for a group of endpoints, in EGI's reports."""
TOP_TYPE = "PROJECT"
"""The type of the group that has the sites of no group; it is named as the report."""

_UNDEFINED = "-1"
_UNDEFINED_GROUP = "nan"

Item = dict[str, Any]
"""An object of the answer."""
Shape = Sequence[tuple[str, str]]
"""Of each level its type in the answer ("" if ARGO tells none) and where what is below stands."""


@dataclass(frozen=True)
class Question:
    """A report over a day or a month. `date`: how ARGO stamps it; `until`: of an open day."""

    connection: Connection
    report: str
    period: Period
    date: str
    until: int | None = None


@dataclass(frozen=True)
class Answer:
    """A document: the objects in the array `root`."""

    name: str
    root: str
    items: Callable[[Question], Iterator[Item]]


def results(question: Question, level: str, shape: Shape) -> Iterator[Item]:
    """A/R of a level, below its sites."""
    found = totals(question.connection, question.report, level, question.period)
    yield from tree(((each.names, figures(question.date, each.seconds)) for each in found), shape)


def site_results(question: Question) -> Iterator[Item]:
    """A/R of sites, below each of their groups."""
    found = group_site_totals(
        question.connection, question.report, question.period, (TOP_TYPE, question.report)
    )
    for (group_type, group_name), sites in groupby(found, key=lambda each: each.names[:2]):
        rows = [(each.names[2:], figures(question.date, each.seconds)) for each in sites]
        yield {
            "name": group_name,
            "type": group_type,
            "endpoints": list(tree(rows, ((GROUP_TYPE, "results"),))),
        }


def group_results(question: Question) -> Iterator[Item]:
    """A/R of groups of sites."""
    for each in period_figures(question.connection, question.report, GROUP, question.period):
        group_type, group_name = each.names
        shares = {
            "timestamp": question.date,
            "availability": number(each.availability, _UNDEFINED_GROUP),
            "reliability": number(each.reliability, _UNDEFINED_GROUP),
        }
        yield {"name": group_name, "type": group_type, "results": [shares]}


def statuses(question: Question, level: str, shape: Shape) -> Iterator[Item]:
    """The timelines of a level, below its sites."""
    end = question.until
    if end is None:
        end = day_start(question.period.first) + DAY_S - 1
    found = timeline(question.connection, question.report, question.period, level=level)
    yield from tree(changes(found, end), shape)


def changes(segments: Iterable[Segment], end: int) -> Iterator[tuple[Names, Item]]:
    """When each status began; then, as ARGO, the last one again at the end of the day."""
    for names, own in groupby(segments, key=lambda each: each.names):
        for each in own:
            yield names, _status(each.start, each.status)
        yield names, _status(end, each.status)


def figures(date: str, seconds: Seconds) -> Item:
    """A/R in percent, the rest as shares of the time."""
    return {
        "timestamp": date,
        "availability": number(seconds.availability, _UNDEFINED),
        "reliability": number(seconds.reliability, _UNDEFINED),
        "unknown": _share(seconds.not_known, seconds),
        "uptime": _share(seconds.up, seconds),
        "downtime": _share(seconds.downtime, seconds),
    }


def number(value: Fraction | None, undefined: str) -> str:
    """Rounded to 5 decimals, in the fewest digits, as Go's %g: 100, 54.03509, 1e-05."""
    told = rounded(value)
    return undefined if told is None else repr(float(told)).removesuffix(".0")


def tree(rows: Iterable[tuple[Names, Item]], shape: Shape) -> Iterator[Item]:
    """Objects in objects, by the names of the rows, which come ordered by them."""
    (kind, inside), below = shape[0], shape[1:]
    for name, group in groupby(rows, key=lambda row: row[0][0]):
        inner = ((names[1:], item) for names, item in group)
        items = list(tree(inner, below)) if below else [item for _, item in inner]
        yield {"name": name, **({"type": kind} if kind else {}), inside: items}


_SITES = (GROUP_TYPE, "serviceflavors")
RESULTS = (
    Answer("results-groups", "results", group_results),
    Answer("results-sites", "results", site_results),
    Answer(
        "results-services",
        "results",
        lambda question: results(question, SERVICE, (_SITES, ("service", "results"))),
    ),
    Answer(
        "results-endpoints",
        "results",
        lambda question: results(
            question, ENDPOINT, (_SITES, ("service", "endpoints"), ("endpoint", "results"))
        ),
    ),
)
_SERVICES = (GROUP_TYPE, "services")
_ENDPOINTS = ("service", "endpoints")
STATUSES = (
    Answer(
        "status-sites",
        "groups",
        lambda question: statuses(question, SITE, ((GROUP_TYPE, "statuses"),)),
    ),
    Answer(
        "status-services",
        "groups",
        lambda question: statuses(question, SERVICE, (_SERVICES, ("service", "statuses"))),
    ),
    Answer(
        "status-endpoints",
        "groups",
        lambda question: statuses(question, ENDPOINT, (_SERVICES, _ENDPOINTS, ("", "statuses"))),
    ),
    Answer(
        "status-metrics",
        "groups",
        lambda question: statuses(
            question, METRIC, (_SERVICES, _ENDPOINTS, ("", "metrics"), ("", "statuses"))
        ),
    ),
)


def _share(part: int, seconds: Seconds) -> str:
    share = Fraction(part, seconds.total) if seconds.total else Fraction()
    return number(share, _UNDEFINED)


def _status(second: int, status: str) -> Item:
    return {"timestamp": format_time(moment(second)), "value": status}
