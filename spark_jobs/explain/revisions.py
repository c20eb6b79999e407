"""What moved between two revisions of a sealed month, and why (availability rule 17)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any

from sqlalchemy import Connection, text

from sam_pipeline.schema.program.command import text_table
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.spark_jobs.explain.as_text import downtime_text, exclusion_text
from sam_pipeline.spark_jobs.inputs.announced import Downtime, Exclusion
from sam_pipeline.spark_jobs.rules.days import Period, as_day, in_ranges
from sam_pipeline.spark_jobs.rules.figures import Figure
from sam_pipeline.spark_jobs.rules.levels import GROUP, NAMES, SITE
from sam_pipeline.spark_jobs.rules.seconds import NO_FIGURE, rounded, short
from sam_pipeline.spark_jobs.runs.changes import (
    DOWNTIMES,
    EXCLUSIONS,
    INPUTS,
    changed_announcements,
)
from sam_pipeline.spark_jobs.runs.published import Names, day_members
from sam_pipeline.spark_jobs.runs.summary import (
    MET,
    MISSED,
    NO_DATA,
    period_figures,
    period_targets,
)

_FIGURES = ("availability", "reliability", "unknown")
# The reasons that a figure names at most.
_MAX_NAMED = 5
_CHANGES = (
    "SELECT DISTINCT c.day, c.old_run_id, c.run_id, c.level, c.names, c.old, c.new, c.reason"
    " FROM report_change AS c JOIN report_revision AS v"
    " ON v.report = c.report AND v.day = c.day AND v.run_id = c.run_id"
    " WHERE v.report = :report AND v.month = :month AND v.revision > :before"
    " AND v.revision <= :after AND c.level IN ('site', 'group')"
    " AND c.run_id NOT IN (SELECT run_id FROM report_revision"
    " WHERE report = :report AND month = :month AND revision = :before)"
    " ORDER BY c.day, c.run_id"
)


@dataclass(frozen=True)
class Moved:
    """A figure of the month that differs between two revisions; None where nothing was expected.

    `level` is SITE or GROUP. `days` are the days whose figures differ.
    """

    level: str
    names: Names
    before: Figure | None
    after: Figure | None
    verdict_before: str
    verdict_after: str
    because: Sequence[str]
    days: Sequence[date]

    @property
    def verdict_moved(self) -> bool:
        return self.verdict_before != self.verdict_after

    @property
    def by(self) -> float:
        """The greater of the changes of availability and reliability, in percentage points."""
        if self.before is None or self.after is None:
            return 100.0
        pairs = (
            (self.before.availability, self.after.availability),
            (self.before.reliability, self.after.reliability),
        )
        return max(
            100.0 if (a is None) != (b is None) else abs(float((a or 0) - (b or 0)))
            for a, b in pairs
        )


def moved_figures(
    connection: Connection,
    report: str,
    month: Period,
    before: int,
    after: int,
    *,
    public: bool = False,
) -> list[Moved]:
    """The sites, then the groups, whose figures of the month differ; those first that matter most.

    A verdict that moved matters more than a figure. The revision after the newest sealed one is
    what the next seal would publish. For the `public`, exclusions do not name who made them.
    """
    changes = _Changes(connection, report, month, before, after, public)
    targets = [period_targets(connection, report, month, revision=n) for n in (before, after)]
    moved = []
    for level in (SITE, GROUP):
        old, new = (
            {
                figure.names: figure
                for figure in period_figures(connection, report, level, month, revision=n)
            }
            for n in (before, after)
        )
        of_level = [
            Moved(
                level,
                names,
                old.get(names),
                new.get(names),
                targets[0].verdict(level, old.get(names)),
                targets[1].verdict(level, new.get(names)),
                changes.because(level, names),
                changes.days(level, names),
            )
            for names in sorted(old.keys() | new.keys())
            if _shown(old.get(names)) != _shown(new.get(names))
        ]
        moved += sorted(of_level, key=lambda m: (not m.verdict_moved, -m.by, m.names))
    return moved


def _shown(figure: Figure | None) -> tuple[object, ...] | None:
    """What is shown of a figure; a figure without a value differs from none."""
    if figure is None:
        return None
    values = (figure.availability, figure.reliability, figure.unknown)
    return (*map(rounded, values), figure.sites_expected, figure.sites_known)


class _Changes:
    """The changes of days by the runs that replaced those of the earlier revision."""

    def __init__(
        self,
        connection: Connection,
        report: str,
        month: Period,
        before: int,
        after: int,
        public: bool,
    ) -> None:
        bound = {"report": report, "before": before, "after": after}
        self._of: dict[tuple[str, Names], list[Any]] = {}
        for row in connection.execute(text(_CHANGES), {**bound, "month": f"{month.first:%Y-%m}"}):
            names = tuple(json.loads(row.names)[name] for name in NAMES[row.level])
            self._of.setdefault((row.level, names), []).append(row)
        self._sites_of: dict[Names, set[str]] = {}
        for revision in (before, after):
            for _, member in day_members(connection, report, month, revision):
                if (SITE, (member.site,)) in self._of:
                    group = (member.group_type, member.group_name)
                    self._sites_of.setdefault(group, set()).add(member.site)

        @cache
        def announcements(old: int, new: int) -> list[tuple[Downtime | Exclusion, bool]]:
            return changed_announcements(connection, old, new, public=public)

        self._announcements = announcements

    def days(self, level: str, names: Names) -> list[date]:
        """The days on which the figure differs."""
        return sorted({as_day(row.day) for row in self._of.get((level, names), ())})

    def because(self, level: str, names: Names) -> list[str]:
        """The reasons of a figure: downtimes and exclusions, weights, then the others with days.

        The reasons of a group are those of its members that changed.
        """
        announced: dict[str, None] = {}
        days: dict[str, set[date]] = {}
        at: dict[str, list[str]] = {}
        sites = [names[0]] if level == SITE else sorted(self._sites_of.get(names, ()))
        for site in sites:
            for row in self._of.get((SITE, (site,)), ()):
                changed = self._announcements(row.old_run_id, row.run_id)
                texts = announcement_texts(changed, site)
                for reason in row.reason.split(", "):
                    if reason in texts:
                        announced |= dict.fromkeys(texts[reason])
                    else:
                        days.setdefault(reason, set()).add(as_day(row.day))
                        at.setdefault(reason, []).append(site)
        for row in self._of.get((level, names), ()) if level == GROUP else ():
            moved = weights_moved(row.old, row.new)
            for weight in moved or row.reason.split(", ") * (not sites):
                days.setdefault(weight, set()).add(as_day(row.day))
        because = [*announced]
        for reason, on in days.items():
            where = (
                f" at {', '.join(dict.fromkeys(at[reason]))}"
                if level == GROUP and reason in at
                else ""
            )
            because.append(f"{reason}{where}, {in_ranges(sorted(on))}")
        if left_out := len(because[_MAX_NAMED:]):
            because[_MAX_NAMED:] = [f"and {plural(left_out, 'other reason')}"]
        return because


def announcement_texts(
    changed: Iterable[tuple[Downtime | Exclusion, bool]], site: str
) -> Mapping[str, list[str]]:
    """The downtimes and exclusions of a site that are new or gone, by the reason they give."""
    texts: dict[str, list[str]] = {}
    for announcement, is_new in changed:
        grid_sites = {site for site, *_ in announcement.by_grid_site}
        if announcement.site in ("", site) or site in grid_sites:
            if isinstance(announcement, Downtime):
                reason, of = DOWNTIMES, downtime_text(announcement)
            else:
                reason, of = EXCLUSIONS, exclusion_text(announcement)
            shown = f"{'new' if is_new else 'no longer'}: {of}"
            texts.setdefault(INPUTS[reason][0], []).append(shown)
    return texts


def weights_moved(old: str | None, new: str | None) -> list[str]:
    """The members of a group that came, left or changed their weight, from `report_change`."""
    before, after = (json.loads(of)["weights"] if of else {} for of in (old, new))
    moved = []
    for site in sorted(before.keys() | after.keys()):
        if site not in before:
            moved.append(f"{site} joined with weight {after[site]}")
        elif site not in after:
            moved.append(f"{site} left")
        elif before[site] != after[site]:
            moved.append(f"weight of {site} {before[site]} → {after[site]}")
    return moved


def moved_json(moved: Iterable[Moved]) -> list[dict[str, object]]:
    """The figures that moved, as JSON: percentages with five decimals."""
    documents = []
    for figure in moved:
        document: dict[str, object] = {"level": figure.level}
        document |= zip(NAMES[figure.level], figure.names, strict=True)
        for of, value in (("before", figure.before), ("after", figure.after)):
            for name in _FIGURES:
                document[f"{name}_{of}"] = rounded(getattr(value, name)) if value else None
        document["verdict_before"] = figure.verdict_before
        document["verdict_after"] = figure.verdict_after
        documents.append({**document, "because": figure.because, "days": figure.days})
    return documents


def moved_lines(moved: Sequence[Moved], *, is_sealed: bool = True) -> list[str]:
    """A sentence and a table of the figures that moved, or would move with the next seal."""
    if not moved:
        return [
            "no figure of the month moved" if is_sealed else "no figure of the month would move"
        ]
    rows = [
        [
            " ".join(figure.names),
            *(
                short(getattr(value, name)) if value else NO_FIGURE
                for name in _FIGURES[:2]
                for value in (figure.before, figure.after)
            ),
            f"newly {figure.verdict_after}" if figure.verdict_moved else figure.verdict_after,
            "; ".join(figure.because),
        ]
        for figure in moved
    ]
    after = "after" if is_sealed else "would be"
    columns = ["", "availability", after, "reliability", after, "target", "because"]
    return ["", in_words(moved), *text_table(columns, rows)]


def in_words(moved: Sequence[Moved]) -> str:
    """How many figures and which verdicts moved: "moved: 20 sites; newly met: SITE-A"."""
    numbers = [
        plural(count, level)
        for level in (SITE, GROUP)
        if (count := sum(figure.level == level for figure in moved))
    ]
    if not numbers:
        return "no figure of the month moved"
    newly = [
        f"newly {verdict}: {', '.join(names)}"
        for verdict in (MISSED, MET, NO_DATA)
        if (
            names := [
                " ".join(m.names) for m in moved if m.verdict_moved and m.verdict_after == verdict
            ]
        )
    ]
    return "; ".join([f"moved: {' and '.join(numbers)}", *(newly or ["no verdict changed"])])
