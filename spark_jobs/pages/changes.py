"""The page of the figures that later runs changed in a month, or would change in a sealed month.

This is the only page that shows candidates: the other pages of a sealed month stay as they were.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import groupby

from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.explain.phrases import downtime_text, exclusion_text
from sam_pipeline.spark_jobs.inputs.announced import Downtime
from sam_pipeline.spark_jobs.pages.month import Month
from sam_pipeline.spark_jobs.pages.writer import site_page
from sam_pipeline.spark_jobs.rules.days import as_day
from sam_pipeline.spark_jobs.rules.figures import Figure, figure_of
from sam_pipeline.spark_jobs.rules.levels import SITE, WITH_FIGURES
from sam_pipeline.spark_jobs.rules.seconds import NO_FIGURE, Seconds, rounded
from sam_pipeline.spark_jobs.runs.changes import changed_announcements, seconds_in
from sam_pipeline.spark_jobs.runs.published import totals

# The view report_change lists them all.
_MAX_ROWS = 200
_MAX_ANNOUNCEMENTS = 20


@dataclass(frozen=True)
class FigureChange:
    """Availability, reliability and not known before and after; '-' for each that was undefined.

    `month` are availability and reliability of a site over the month, without the change and with
    it.
    """

    level: str
    site: str
    name: str
    link: str
    old: tuple[str, ...]
    new: tuple[str, ...]
    reason: str
    month: tuple[tuple[str, ...], tuple[str, ...]] | None


@dataclass(frozen=True)
class RunChanges:
    """The figures that one run changed on its day; those of a candidate are not published.

    `announcements` are the downtimes and exclusions that are new, or no longer apply.
    """

    day: date
    finished_at: str
    who: str
    is_candidate: bool
    reason: str
    changes: Sequence[FigureChange]
    more: int
    announcements: Sequence[str]

    @property
    def has_several_reasons(self) -> bool:
        """Whether a figure has other reasons than the run."""
        return any(change.reason != self.reason for change in self.changes)


@dataclass(frozen=True)
class ChangesView:
    """The changes by candidates and by published runs, newest day first."""

    candidates: Sequence[RunChanges]
    published: Sequence[RunChanges]


def changes_view(connection: Connection, month: Month) -> ChangesView:
    """The changes by the published runs of a month, and by its candidates."""
    rows = connection.execute(
        text(
            "SELECT c.run_id, c.old_run_id, c.day, r.finished_at, r.who, r.state, c.reason,"
            " c.level, c.names, c.old, c.new"
            " FROM report_change AS c JOIN report_run AS r ON r.run_id = c.run_id"
            " WHERE c.report = :report AND c.day BETWEEN :first AND :last"
            " AND (r.state = 'published' OR c.run_id IN"
            " (SELECT run_id FROM report_candidate WHERE report = :report))"
            " ORDER BY c.day DESC, c.run_id"
        ),
        {"report": month.report, **month.period.bounds},
    ).all()
    published = {
        figure.names[0]: figure.seconds or Seconds()
        for figure in (totals(connection, month.report, SITE, month.period) if rows else ())
    }
    runs = []
    for _, group in groupby(rows, key=lambda row: row[0]):
        of_run = list(group)
        run_id, old_run_id, stored_day, finished_at, who, state, *_ = of_run[0]
        day, is_candidate = as_day(stored_day), state != "published"
        changes = [
            change
            for *_, reason, level, names, old, new in of_run
            if (change := _change(day, level, json.loads(names), old, new, reason))
        ]
        changes.sort(
            key=lambda change: (change.site, WITH_FIGURES.index(change.level), change.name)
        )
        seconds_of = {
            json.loads(names)["site"]: (seconds_in(old), seconds_in(new))
            for *_, level, names, old, new in of_run
            if level == SITE
        }
        shown = [
            replace(
                change,
                month=_of_month(published.get(change.site), *seconds_of[change.site], is_candidate),
            )
            if change.level == SITE
            else change
            for change in changes[:_MAX_ROWS]
        ]
        if not shown:  # only seconds that no figure shows
            continue
        reasons = dict.fromkeys(r for change in changes for r in change.reason.split(", "))
        runs.append(
            RunChanges(
                day,
                str(finished_at).replace("T", " ")[:19],
                who or "",
                is_candidate,
                ", ".join(reasons),
                shown,
                len(changes) - len(shown),
                () if old_run_id is None else _announcements(connection, old_run_id, run_id),
            )
        )
    return ChangesView(
        [run for run in runs if run.is_candidate], [run for run in runs if not run.is_candidate]
    )


def _change(
    day: date,
    level: str,
    names: Mapping[str, str],
    old: str | None,
    new: str | None,
    reason: str,
) -> FigureChange | None:
    """None if the figures are shown alike: then only their seconds differ."""
    before, after = _percentages(old), _percentages(new)
    if before == after:
        return None
    site = names["site"]
    link = f"{site_page(site)}#{day}"
    return FigureChange(level, site, " ".join(names.values()), link, before, after, reason, None)


def _of_month(
    published: Seconds | None, old: Seconds, new: Seconds, is_candidate: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The figures of a site over the month, without the change of a day and with it."""
    here = published or Seconds()
    # The month's seconds contain those of a published run, and not those of a candidate.
    before, after = (here, here - old + new) if is_candidate else (here - new + old, here)
    return _shown(figure_of((), before)), _shown(figure_of((), after))


def _announcements(connection: Connection, old: int, new: int) -> list[str]:
    """The downtimes and exclusions that differ between two runs, as texts."""
    lines = [
        f"{'new' if is_new else 'no longer'}:"
        f" {downtime_text(of) if isinstance(of, Downtime) else exclusion_text(of)}"
        for of, is_new in changed_announcements(connection, old, new)
    ]
    more = len(lines) - _MAX_ANNOUNCEMENTS
    return [*lines[:_MAX_ANNOUNCEMENTS], *([f"and {more} more"] if more > 0 else [])]


def _percentages(figures_json: str | None) -> tuple[str, ...]:
    figures = json.loads(figures_json) if figures_json else {}
    values = [figures.get(name) for name in ("availability", "reliability")]
    shown = [NO_FIGURE if value is None else f"{value:.5f}" for value in values]
    unknown = rounded(seconds_in(figures_json).unknown_share)
    return (*shown, NO_FIGURE if unknown is None else str(unknown))


def _shown(figure: Figure) -> tuple[str, ...]:
    values = map(rounded, (figure.availability, figure.reliability))
    return tuple(NO_FIGURE if value is None else str(value) for value in values)
