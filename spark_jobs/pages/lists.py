"""The pages that list status changes, incidents, changed figures, and revisions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.explain.as_text import downtime_text, exclusion_text
from sam_pipeline.spark_jobs.explain.incidents import (
    BY_CHANCE,
    MIN_SITES,
    ReportIncidents,
)
from sam_pipeline.spark_jobs.explain.revisions import Moved, in_words, moved_figures, weights_moved
from sam_pipeline.spark_jobs.inputs.announced import Downtime
from sam_pipeline.spark_jobs.pages.month import Month
from sam_pipeline.spark_jobs.pages.writer import group_anchor, group_page, site_page
from sam_pipeline.spark_jobs.rules.days import Period, as_day
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, GROUP, SITE, WITH_FIGURES
from sam_pipeline.spark_jobs.rules.seconds import NO_FIGURE, Seconds, rounded
from sam_pipeline.spark_jobs.rules.statuses import FOLDED, STATUSES
from sam_pipeline.spark_jobs.runs.changes import changed_announcements, seconds_in
from sam_pipeline.spark_jobs.runs.published import totals, trends
from sam_pipeline.spark_jobs.runs.seal import Revision, Seal

# The commands `trends` and `incidents`, and the view report_change, list them all.
_MAX_ENDPOINTS = 100
_LONGEST, _MAX_INCIDENTS, _MAX_SHARED = 20, 200, 12
_MAX_CHANGES = 200
_MAX_ANNOUNCEMENTS = 20
_ORDER = (GROUP, *WITH_FIGURES)
# An incident is drawn at least as wide as this share of the month.
_MIN_DRAWN = 300

Values = dict[str, Any]
"""The values of a template."""


def trends_page(connection: Connection, month: Month) -> Values:
    """The endpoints of a month that changed their status most often."""
    changing, endpoints = trends(connection, month.report, ENDPOINT, month.period)
    shown = changing[:_MAX_ENDPOINTS]
    is_excluded = any(trend.seconds.excluded for trend in shown)
    return {
        "statuses": STATUSES if is_excluded else FOLDED,
        "trends": shown,
        "changing": len(changing),
        "endpoints": endpoints,
    }


def incidents_page(found: ReportIncidents) -> Values:
    """The longest incidents of a month, their figures, and the causes that most sites shared."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for incident in found.incidents:
        spans.setdefault(incident.site, []).append((incident.start, incident.end))
    longest = found.longest_first
    return {
        "total": found.total,
        "sites": [
            (site, figures, _drawn(spans[site], found.period))
            for (site,), figures in found.by_site().items()
        ],
        "groups": list(found.by_group().items()),
        "shared": found.shared[:_MAX_SHARED],
        "min_sites": MIN_SITES,
        "by_chance": BY_CHANCE,
        "longest": longest[:_LONGEST],
        "shorter": longest[_LONGEST:_MAX_INCIDENTS],
        "more": len(longest[_MAX_INCIDENTS:]),
    }


def _drawn(spans: Sequence[tuple[int, int]], period: Period) -> str:
    """One path for the spans, which are in order; those that would overlap are drawn as one."""
    least = (period.end - period.start) // _MIN_DRAWN
    drawn: list[tuple[int, int]] = []
    for start, end in spans:
        if drawn and start < drawn[-1][1]:
            drawn[-1] = (drawn[-1][0], max(drawn[-1][1], end))
        else:
            drawn.append((start, max(end, start + least)))
    return "".join(f"M{start - period.start} 10h{end - start}" for start, end in drawn)


@dataclass(frozen=True)
class FigureChange:
    """Availability, reliability and not known before and after; '-' for each that was undefined.

    `month` are the availabilities of a site over the month, without the change and with it;
    `members` are the changes of a group's members and weights; `link` is the page of the thing.
    """

    level: str
    link: str
    name: str
    old: Sequence[str]
    new: Sequence[str]
    reason: str
    month: tuple[str, str] | None = None
    members: Sequence[str] = ()


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


def changes_page(connection: Connection, month: Month) -> Values:
    """The changes by the published runs of a month and by its candidates, newest day first.

    This is the only page that shows candidates: the others of a sealed month stay as they were.
    """
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
    for (run_id, old_run_id, day, finished_at, who, state), of_run in groupby(
        rows, itemgetter(*range(6))
    ):
        is_candidate = state != "published"
        changes = _changes_of_run(of_run, published, is_candidate)
        if not changes:
            continue
        announcements: list[str] = []
        if old_run_id is not None:
            announcements = [
                f"{'new' if is_new else 'no longer'}:"
                f" {downtime_text(of) if isinstance(of, Downtime) else exclusion_text(of)}"
                for of, is_new in changed_announcements(
                    connection, old_run_id, run_id, public=month.public
                )
            ]
            if left_out := len(announcements[_MAX_ANNOUNCEMENTS:]):
                announcements[_MAX_ANNOUNCEMENTS:] = [f"and {left_out} more"]
        reasons = dict.fromkeys(r for change in changes for r in change.reason.split(", "))
        runs.append(
            RunChanges(
                as_day(day),
                str(finished_at).replace("T", " ")[:19],
                "" if month.public else who or "",
                is_candidate,
                ", ".join(reasons),
                changes[:_MAX_CHANGES],
                len(changes[_MAX_CHANGES:]),
                announcements,
            )
        )
    return {
        "candidates": [run for run in runs if run.is_candidate],
        "published": [run for run in runs if not run.is_candidate],
    }


def _changes_of_run(
    rows: Iterable[Any], published: Mapping[str, Seconds], is_candidate: bool
) -> list[FigureChange]:
    """The changes of a run, those of groups first; `published` is the month of each site."""
    changes = []
    for _, _, day, *_, reason, level, names_json, old, new in rows:
        before, after = _percentages(old), _percentages(new)
        names = json.loads(names_json)
        name = " ".join(names.values())
        if level == GROUP:
            group_type, group = names.values()
            link = f"{group_page(group_type)}#{group_anchor(group)}"
            members = weights_moved(old, new)
            changes.append(FigureChange(level, link, name, before, after, reason, members=members))
            continue
        if before == after:  # only seconds differ, which no figure shows
            continue
        site, of_month = names["site"], None
        if level == SITE:
            # The month's seconds contain those of a published run, not those of a candidate.
            without = with_change = published.get(site, Seconds())
            difference = seconds_in(new) - seconds_in(old)
            if is_candidate:
                with_change += difference
            else:
                without -= difference
            of_month = (_shown(without.availability), _shown(with_change.availability))
        link = f"{site_page(site)}#{as_day(day)}"
        changes.append(FigureChange(level, link, name, before, after, reason, of_month))
    return sorted(
        changes,
        key=lambda change: (
            change.level != GROUP,
            change.link,
            _ORDER.index(change.level),
            change.name,
        ),
    )


@dataclass(frozen=True)
class RevisionView:
    """A revision of a sealed month, and the figures that it moved; `of` is None if it waits."""

    of: Revision | None
    moved: Sequence[Moved]

    @property
    def words(self) -> str:
        text = in_words(self.moved)
        return f"{text[0].upper()}{text[1:]}"


def revisions_page(connection: Connection, month: Month, seal: Seal) -> Values:
    """The revisions of a sealed month, newest first, and the one that waits to be sealed."""

    def view(number: int, of: Revision | None = None) -> RevisionView:
        args = (connection, month.report, month.period, number - 1, number)
        moved = moved_figures(*args, public=month.public) if number > 1 else []
        return RevisionView(of, moved)

    return {
        "next": view(seal.newest.revision + 1) if seal.figures else None,
        "revisions": [view(of.revision, of) for of in reversed(seal.revisions)],
    }


def _percentages(figures_json: str | None) -> tuple[str, ...]:
    figures = json.loads(figures_json) if figures_json else {}
    values = [figures.get(name) for name in ("availability", "reliability")]
    shown = [NO_FIGURE if value is None else f"{value:.5f}" for value in values]
    return (*shown, _shown(seconds_in(figures_json).unknown_share))


def _shown(value: Fraction | None) -> str:
    return NO_FIGURE if value is None else str(rounded(value))
