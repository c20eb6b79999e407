"""Trends: what changed how often in a period, and how long it was in each status (rule 14)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from sam_pipeline.schema.program import command
from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.rules.days import Period, moment
from sam_pipeline.spark_jobs.rules.levels import NAMES, SECONDS
from sam_pipeline.spark_jobs.runs.published import (
    Run,
    Trend,
    published_reports,
    published_runs,
    trends,
)


@dataclass(frozen=True)
class Trends:
    """The things of a level that changed at all, most changing first, and how many didn't."""

    report: str
    level: str
    period: Period
    runs: Sequence[Run]
    changing: Sequence[Trend]
    steady: int


def read_trends(
    connection: Connection, report: str | None, level: str, period: Period
) -> list[Trends]:
    """What there is to tell, for each report."""
    return [
        _of_report(connection, name, level, period)
        for name in published_reports(connection, report, period)
    ]


def as_rows(found: Sequence[Trends], top: int | None) -> list[dict[str, Any]]:
    """A flat row for each thing, for JSON and CSV."""
    return [_row(each, trend) for each in found for trend in each.changing[:top]]


def as_text(found: Sequence[Trends], top: int | None) -> str:
    """A table for each report, with the statuses that occurred."""
    return "\n\n".join("\n".join(_told(each, top)) for each in found)


def _of_report(connection: Connection, report: str, level: str, period: Period) -> Trends:
    found = list(trends(connection, report, level, period))
    changing = sorted(
        (each for each in found if each.changes), key=lambda each: (-each.changes, each.names)
    )
    runs = published_runs(connection, report, period)
    return Trends(report, level, period, runs, changing, len(found) - len(changing))


def _row(found: Trends, trend: Trend) -> dict[str, Any]:
    return {
        "report": found.report,
        "first_day": found.period.first,
        "last_day": found.period.last,
        "level": found.level,
        **dict(zip(NAMES[found.level], trend.names, strict=True)),
        "changes": trend.changes,
        "first_change": _time(trend.first_change),
        "last_change": _time(trend.last_change),
        "days": trend.days,
        **_seconds(trend),
    }


def _told(found: Trends, top: int | None) -> Iterator[str]:
    shown = found.changing[:top]
    until = max((run.until for run in found.runs if run.until is not None), default=None)
    yield f"{found.report}, {found.period}{'' if until is None else f' (until {_time(until)})'}"
    yield ""
    if shown:
        occurring = [name for name in SECONDS if any(_seconds(each)[name] for each in shown)]
        columns = [*NAMES[found.level], "changes", "first_change", "last_change", *occurring]
        yield command.text_table(columns, [_cells(each, occurring) for each in shown])
        yield ""
    yield _count(found, len(shown))


def _cells(trend: Trend, occurring: Sequence[str]) -> list[object]:
    seconds = _seconds(trend)
    return [
        *trend.names,
        trend.changes,
        _time(trend.first_change),
        _time(trend.last_change),
        *(seconds[name] for name in occurring),
    ]


def _count(found: Trends, shown: int) -> str:
    changing = len(found.changing)
    what = f"{changing} of {changing + found.steady} {found.level}s changed their status"
    return what if shown == changing else f"{what}; shown: the first {shown}"


def _seconds(trend: Trend) -> dict[str, int]:
    return {name: getattr(trend.seconds, name.removesuffix("_s")) for name in SECONDS}


def _time(second: int | None) -> str | None:
    return None if second is None else format_time(moment(second))
