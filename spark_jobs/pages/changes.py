"""The page of the figures that later runs changed in a month, or would change in a sealed month.

This is the only page that shows candidates: the other pages of a sealed month stay as they were.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from itertools import groupby

from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.pages.month import Month
from sam_pipeline.spark_jobs.pages.writer import site_page
from sam_pipeline.spark_jobs.rules.days import as_day
from sam_pipeline.spark_jobs.rules.levels import SITE
from sam_pipeline.spark_jobs.rules.seconds import NO_FIGURE

# The view report_change lists them all.
_MAX_ROWS = 200


@dataclass(frozen=True)
class FigureChange:
    """Availability and reliability before and after; '-' for each that was undefined."""

    level: str
    name: str
    link: str
    old: tuple[str, str]
    new: tuple[str, str]


@dataclass(frozen=True)
class RunChanges:
    """The figures that one run changed on its day; those of a candidate are not published."""

    day: date
    finished_at: str
    who: str
    is_candidate: bool
    reason: str
    changes: Sequence[FigureChange]
    more: int


@dataclass(frozen=True)
class ChangesView:
    """The changes by candidates and by published runs, newest day first."""

    candidates: Sequence[RunChanges]
    published: Sequence[RunChanges]


def changes_view(connection: Connection, month: Month) -> ChangesView:
    """The changes by the published runs of a month, and by its candidates."""
    rows = connection.execute(
        text(
            "SELECT c.run_id, c.day, r.finished_at, r.who, r.state, c.reason, c.level, c.names,"
            " c.old, c.new FROM report_change AS c JOIN report_run AS r ON r.run_id = c.run_id"
            " WHERE c.report = :report AND c.day BETWEEN :first AND :last"
            " AND (r.state = 'published' OR c.run_id IN"
            " (SELECT run_id FROM report_candidate WHERE report = :report))"
            f" ORDER BY c.day DESC, c.run_id, c.level <> '{SITE}', c.level, c.names"
        ),
        {"report": month.report, **month.period.bounds},
    )
    runs = []
    for _, group in groupby(rows, key=lambda row: row[0]):
        of_run = list(group)
        _, stored_day, finished_at, who, state, reason, *_ = of_run[0]
        day, changes = as_day(stored_day), []
        for *_, level, names_json, old, new in of_run[:_MAX_ROWS]:
            names = json.loads(names_json)
            link = f"{site_page(names['site'])}#{day}" if "site" in names else ""
            name = " ".join(names.values())
            changes.append(FigureChange(level, name, link, _percentages(old), _percentages(new)))
        runs.append(
            RunChanges(
                day,
                str(finished_at).replace("T", " ")[:19],
                who or "",
                state != "published",
                reason,
                changes,
                len(of_run) - len(changes),
            )
        )
    return ChangesView(
        [run for run in runs if run.is_candidate], [run for run in runs if not run.is_candidate]
    )


def _percentages(figures_json: str | None) -> tuple[str, str]:
    figures = json.loads(figures_json) if figures_json else {}
    values = (figures.get("availability"), figures.get("reliability"))
    availability, reliability = (NO_FIGURE if value is None else f"{value:.5f}" for value in values)
    return availability, reliability
