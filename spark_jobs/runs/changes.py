"""How a recomputed day differs from the figures published before, and why.

A run compares digests of its inputs with those of the run before, for the whole day. A change of
the profile, of the software or of the end of the data concerns every figure. The others are traced:
an endpoint that came or went, a downtime or an exclusion that is new, gone or different, and the
timelines of metrics, which follow from results.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import Connection, TextClause, text

from sam_pipeline.schema.program.command import to_json
from sam_pipeline.spark_jobs.inputs.announced import (
    MONITORING_HOST,
    Downtime,
    Exclusion,
    recorded_downtime,
)
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.levels import (
    FIGURES,
    FUNCTION,
    GROUP,
    GROUP_FIGURES,
    METRIC,
    NAMES,
    SECONDS,
    SITE,
    WITH_FIGURES,
)
from sam_pipeline.spark_jobs.rules.seconds import Seconds

INPUTS = {
    "results_digest": ("results changed", "the results that count: some arrived late, or are gone"),
    "topology_digest": (
        "topology changed",
        "the endpoints expected on that day, the members of groups, or their weights",
    ),
    "downtimes_digest": ("downtimes changed", "the announced downtimes that count"),
    "exclusions_digest": ("exclusions changed", "the exclusions that overlap the day"),
    "profile_digest": ("profile changed", "the content of the profile, not only its layout"),
    "until": ("the day went on", "the end of the data: the earlier run saw an open day"),
    "software_version": ("software changed", "the version of these programs"),
}
"""The inputs of a run: the reason to record if one differs, and what differs then."""
OTHERWISE = ("computed differently", "none of these: please report it as a bug")

Names = tuple[str, ...]
_Row = dict[str, object]
_Endpoint = tuple[str, str, str]
_Timelines = dict[_Endpoint, dict[str, set[tuple[str, ...]]]]
"""The segments (start, end, status) of each metric of each endpoint."""
TRACED = ("results_digest", "topology_digest", "downtimes_digest", "exclusions_digest")
RESULTS, TOPOLOGY, DOWNTIMES, EXCLUSIONS = TRACED
"""The inputs whose effect is traced, by the columns of their digests."""
_ANNOUNCED = "SELECT downtimes, exclusions FROM report_run WHERE run_id = :run_id"
_GROUPS = (
    f"SELECT {', '.join((*NAMES[GROUP], *GROUP_FIGURES))} FROM group_figure WHERE run_id = :run_id"
)
_MEMBERS = (
    f"SELECT g.group_type, g.group_name, g.site, g.weight, {', '.join(SECONDS)}"
    " FROM group_site AS g"
    f" JOIN figure AS f ON f.run_id = g.run_id AND f.level = '{SITE}' AND f.site = g.site"
    " WHERE g.run_id = :run_id"
)
_METRICS = (
    "SELECT site, service_flavour, host_name, metric_name, start_time, end_time, status"
    f" FROM timeline_segment WHERE run_id = :run_id AND level = '{METRIC}'"
)


def note_changes(connection: Connection, old: int, new: int, profile: Profile) -> int:
    """Record each figure that differs between two runs of a day, and return how many do.

    The reasons of a figure are the inputs that may have changed it.
    """
    reasons = _Reasons(connection, old, new, profile)
    rows = [*_figure_changes(connection, reasons), *_group_changes(connection, reasons)]
    if rows:
        connection.execute(insert_into("report_change_row", rows[0]), rows)
    return len(rows)


def _figure_changes(connection: Connection, reasons: _Reasons) -> Iterator[_Row]:
    """The changes of everything that has seconds."""
    for level in WITH_FIGURES:
        width = len(NAMES[level])
        columns = ", ".join((*NAMES[level], *FIGURES))
        of_level = text(
            f"SELECT {columns} FROM figure WHERE run_id = :run_id AND level = '{level}'"
        )
        before, after = (
            {
                tuple(row[:width]): tuple(row[width:])
                for row in connection.execute(of_level, {"run_id": run_id})
            }
            for run_id in reasons.runs
        )
        for key in sorted(before.keys() | after.keys()):
            figure, other = before.get(key), after.get(key)
            if figure != other:
                inputs = reasons.of(level, key)
                yield reasons.row(level, key, _as_json(figure), _as_json(other), inputs)


def _group_changes(connection: Connection, reasons: _Reasons) -> Iterator[_Row]:
    """The changes of groups, also those of a member that leave the figure of the day as it is.

    The figure of a month may differ by them.
    """
    before, after = (_groups(connection, run_id) for run_id in reasons.runs)
    for names in sorted(before.keys() | after.keys()):
        old, new = before.get(names, _NO_GROUP), after.get(names, _NO_GROUP)
        if old == new:
            continue
        sites = sorted(old.members.keys() | new.members.keys())
        differ = [site for site in sites if old.members.get(site) != new.members.get(site)]
        inputs: set[str] = set()
        for site in differ:
            (weight, seconds), (new_weight, new_seconds) = (
                group.members.get(site, (None, None)) for group in (old, new)
            )
            if weight != new_weight:
                inputs.add(TOPOLOGY)
            if seconds and new_seconds and seconds != new_seconds:
                inputs |= reasons.of(SITE, (site,))
        yield reasons.row(GROUP, names, old.as_json(differ), new.as_json(differ), inputs)


class _Group(NamedTuple):
    """A group as a run stored it: its figures, and the weight and seconds of each member."""

    figures: tuple[Any, ...] | None
    members: dict[str, tuple[int | None, tuple[int, ...] | None]]

    def as_json(self, sites: Iterable[str]) -> str | None:
        """The figures, and the weights of those of the sites that are members."""
        if self.figures is None:
            return None
        weights = {site: self.members[site][0] for site in sites if site in self.members}
        return to_json({**dict(zip(GROUP_FIGURES, self.figures, strict=True)), "weights": weights})


_NO_GROUP = _Group(None, {})


def _groups(connection: Connection, run_id: int) -> dict[Names, _Group]:
    groups = {
        tuple(row[:2]): _Group(tuple(row[2:]), {})
        for row in connection.execute(text(_GROUPS), {"run_id": run_id})
    }
    for group_type, name, site, weight, *seconds in connection.execute(
        text(_MEMBERS), {"run_id": run_id}
    ):
        groups[group_type, name].members[site] = (weight, tuple(seconds))
    return groups


class _Reasons:
    """Two runs of a day, of which the new one may have changed figures, and why."""

    def __init__(self, connection: Connection, old: int, new: int, profile: Profile) -> None:
        self.runs = old, new
        self._connection = connection
        self._profile = profile
        statement = text(f"SELECT {', '.join(INPUTS)} FROM run WHERE run_id = :run_id")
        old_inputs, new_inputs = (
            connection.execute(statement, {"run_id": run_id}).mappings().one()
            for run_id in self.runs
        )
        self._changed = [name for name in INPUTS if old_inputs[name] != new_inputs[name]]

    @cached_property
    def _traced(self) -> TracedChanges:
        return TracedChanges(self._connection, *self.runs, self._profile)

    def of(self, level: str, names: Names) -> set[str]:
        """The traced inputs that may have changed a figure."""
        # With a single reason there is nothing to trace.
        return self._traced.changed(level, names) if len(self._changed) > 1 else set(TRACED)

    def row(
        self, level: str, names: Names, old: str | None, new: str | None, inputs: Container[str]
    ) -> _Row:
        """The change of a figure that these traced inputs may have changed."""
        # What cannot be traced any further stays a reason of every figure.
        here = [n for n in self._changed if n not in TRACED or n in inputs] or self._changed
        return {
            "run_id": self.runs[1],
            "old_run_id": self.runs[0],
            "level": level,
            "names": json.dumps(dict(zip(NAMES[level], names, strict=True)), ensure_ascii=False),
            "old": old,
            "new": new,
            # The same inputs give the same figures.
            "reason": ", ".join(INPUTS[name][0] for name in here) or OTHERWISE[0],
        }


def insert_into(table: str, columns: Iterable[str], ending: str = "") -> TextClause:
    """The statement that inserts rows with these columns."""
    names = list(columns)
    values = ", ".join(f":{name}" for name in names)
    return text(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values}){ending}")


def _as_json(figures: tuple[Any, ...] | None) -> str | None:
    return None if figures is None else to_json(dict(zip(FIGURES, figures, strict=True)))


class TracedChanges:
    """Two runs of a day, compared below the figures."""

    def __init__(self, connection: Connection, old: int, new: int, profile: Profile) -> None:
        self._profile = profile
        self._old: _Timelines = {}
        self._new: _Timelines = {}
        for run_id, timelines in ((old, self._old), (new, self._new)):
            rows = connection.execute(text(_METRICS), {"run_id": run_id})
            for site, flavour, host, metric, start, end, status in rows:
                of_endpoint = timelines.setdefault((site, flavour, host), {})
                of_endpoint.setdefault(metric, set()).add((str(start), str(end), status))
        changed = [announcement for announcement, _ in changed_announcements(connection, old, new)]
        self._downtimes = [each for each in changed if isinstance(each, Downtime)]
        self._exclusions = [each for each in changed if isinstance(each, Exclusion)]
        self._endpoints: dict[str, set[_Endpoint]] = {}
        for endpoint in chain(self._old, self._new):
            self._endpoints.setdefault(endpoint[0], set()).add(endpoint)

    def changed(self, level: str, names: Names) -> set[str]:
        """The traced inputs that may have changed a figure."""
        flavours: Collection[str] | None = None
        if level == FUNCTION:
            flavours = next((f.flavours for f in self._profile.functions if f.name == names[1]), ())
        elif level != SITE:
            flavours = (names[1],)
        below = [
            endpoint
            for endpoint in sorted(self._endpoints.get(names[0], ()))
            if (flavours is None or endpoint[1] in flavours)
            and (len(names) < len(endpoint) or endpoint == names)
        ]
        if not below:  # nothing to trace
            return set(TRACED)
        changed = set()
        if any((endpoint in self._old) != (endpoint in self._new) for endpoint in below):
            changed.add(TOPOLOGY)
        if any(
            downtime.counted(self._profile)
            and any(downtime.covers(*endpoint) for endpoint in below)
            for downtime in self._downtimes
        ):
            changed.add(DOWNTIMES)
        if any(self._excludes(exclusion, level, names, below) for exclusion in self._exclusions):
            changed.add(EXCLUSIONS)
        if any(self._different_metrics(endpoint, besides=self._exclusions) for endpoint in below):
            changed.add(RESULTS)
        return changed

    def _excludes(
        self, exclusion: Exclusion, level: str, names: Names, below: Iterable[_Endpoint]
    ) -> bool:
        if exclusion.kind == SITE:
            return level == SITE and exclusion.site == names[0]
        if exclusion.kind == MONITORING_HOST:
            # Its results came from anywhere: where they counted, a metric differs.
            return any(self._different_metrics(endpoint) for endpoint in below)
        return any(
            exclusion.covers(*endpoint)
            and exclusion.metric_name in self._profile.metrics_of(endpoint[1])
            for endpoint in below
        )

    def _different_metrics(
        self, endpoint: _Endpoint, besides: Iterable[Exclusion] = ()
    ) -> set[str]:
        """The metrics whose timelines differ, without those that exclusions explain."""
        old, new = self._old.get(endpoint, {}), self._new.get(endpoint, {})
        if not old or not new:
            return set()
        explained = {e.metric_name for e in besides if e.kind == METRIC and e.covers(*endpoint)}
        return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)} - (
            explained
        )


def changed_announcements(
    connection: Connection, old: int, new: int, *, public: bool = False
) -> list[tuple[Downtime | Exclusion, bool]]:
    """The downtimes, then the exclusions that only one of two runs has read, and if it is the new.

    Rows of the old run are first. One that was changed is listed twice. For the `public`,
    exclusions do not name who made them.
    """
    before, after = (
        map(json.loads, connection.execute(text(_ANNOUNCED), {"run_id": run_id}).one())
        for run_id in (old, new)
    )
    differences: list[tuple[Downtime | Exclusion, bool]] = []
    for of_old, of_new, kind in zip(before, after, (Downtime, Exclusion), strict=True):
        for rows, others, is_new in ((of_old, of_new, False), (of_new, of_old, True)):
            for row in rows:
                if row not in others:
                    announcement = recorded_downtime(row) if kind is Downtime else Exclusion(**row)
                    if public and isinstance(announcement, Exclusion):
                        announcement = announcement.unsigned()
                    differences.append((announcement, is_new))
    return differences


def seconds_in(figures_json: str | None) -> Seconds:
    """The seconds of a figure in `report_change`; none if there was no figure."""
    figures = json.loads(figures_json) if figures_json else {}
    return Seconds(*(figures.get(name, 0) for name in SECONDS))
