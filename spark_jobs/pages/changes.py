"""What later runs changed in the figures of a month, and why; of a sealed month, what they would.

The only page that knows of candidates: a sealed month's other pages stay as they were.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.pages.month import Month
from sam_pipeline.spark_jobs.pages.writer import site_page
from sam_pipeline.spark_jobs.rules.days import as_day
from sam_pipeline.spark_jobs.rules.levels import SITE
from sam_pipeline.spark_jobs.rules.seconds import NO_FIGURE

# The view report_change has them all.
_MAX_ROWS = 200


@dataclass(frozen=True)
class Change:
    """A figure before and after; both '-' where there was none."""

    level: str
    name: str
    link: str
    old: tuple[str, str]
    new: tuple[str, str]


@dataclass(frozen=True)
class RunChanges:
    """What one run changed on its day; a candidate's changes aren't published."""

    day: date
    finished_at: str
    who: str
    is_candidate: bool
    reason: str
    changes: Sequence[Change]
    more: int


@dataclass(frozen=True)
class ChangesView:
    """Candidates first, then what is published; newest day first."""

    candidates: Sequence[RunChanges]
    published: Sequence[RunChanges]


def changes_view(connection: Connection, month: Month) -> ChangesView:
    """The changes of the runs that readers see, and of the candidates beside them."""
    rows = connection.execute(
        text(
            "SELECT c.run_id, c.day, r.finished_at, r.who, r.state, c.level, c.names, c.old, c.new,"
            " c.reason FROM report_change AS c JOIN report_run AS r ON r.run_id = c.run_id"
            " WHERE c.report = :report AND c.day BETWEEN :first AND :last"
            " AND (r.state = 'published' OR c.run_id IN"
            " (SELECT run_id FROM report_candidate WHERE report = :report))"
            f" ORDER BY c.day DESC, c.run_id, c.level <> '{SITE}', c.level, c.names"
        ),
        {
            "report": month.report,
            "first": str(month.period.first),
            "last": str(month.period.last),
        },
    )
    found = list(_runs(map(tuple, rows)))
    return ChangesView(
        [each for each in found if each.is_candidate],
        [each for each in found if not each.is_candidate],
    )


def _runs(rows: Iterator[tuple[Any, ...]]) -> Iterator[RunChanges]:
    for _, group in groupby(rows, key=lambda row: row[0]):
        found = list(group)
        _, day, finished_at, who, state, *_ = found[0]
        yield RunChanges(
            as_day(day),
            str(finished_at).replace("T", " ")[:19],
            who or "",
            state != "published",
            found[0][-1],
            [_change(row) for row in found[:_MAX_ROWS]],
            len(found[_MAX_ROWS:]),
        )


def _change(row: tuple[Any, ...]) -> Change:
    level, names, old, new = row[5:9]
    named = json.loads(names)
    return Change(
        level,
        " ".join(named.values()),
        f"{site_page(named['site'])}#{as_day(row[1])}" if "site" in named else "",
        _figures(old),
        _figures(new),
    )


def _figures(told: str | None) -> tuple[str, str]:
    figures: Mapping[str, Any] = json.loads(told) if told else {}
    return _percent(figures.get("availability")), _percent(figures.get("reliability"))


def _percent(value: float | None) -> str:
    return NO_FIGURE if value is None else f"{value:.5f}"
