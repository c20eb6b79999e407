"""Which of the changed inputs of a day changed a figure.

A run compares digests of its inputs with those of the run before, for the whole day. A change of
the profile, of the software or of the end of the data concerns every figure. The others are traced:
an endpoint that came or went, a downtime or an exclusion that is new, gone or different, and the
timelines of metrics, which follow from results.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.inputs.announced import (
    MONITORING_HOST,
    Downtime,
    Exclusion,
    recorded_downtime,
)
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.levels import FUNCTION, GROUP, METRIC, SITE

Names = tuple[str, ...]
_Endpoint = tuple[str, str, str]
_Timelines = Mapping[_Endpoint, Mapping[str, Collection[tuple[str, ...]]]]
"""The segments (start, end, status) of each metric of each endpoint."""

RESULTS, TOPOLOGY, DOWNTIMES, EXCLUSIONS = (
    "results_digest",
    "topology_digest",
    "downtimes_digest",
    "exclusions_digest",
)
TRACED = (RESULTS, TOPOLOGY, DOWNTIMES, EXCLUSIONS)
"""The inputs whose effect is traced, by the columns of their digests."""

_ANNOUNCED = "SELECT downtimes, exclusions FROM report_run WHERE run_id = :run_id"
_METRICS = (
    "SELECT site, service_flavour, host_name, metric_name, start_time, end_time, status"
    f" FROM timeline_segment WHERE run_id = :run_id AND level = '{METRIC}'"
)


class DowntimeDifference(NamedTuple):
    """A downtime that only the newer, or only the older of two runs has read."""

    announcement: Downtime
    is_new: bool


class ExclusionDifference(NamedTuple):
    """An exclusion that only the newer, or only the older of two runs has read."""

    announcement: Exclusion
    is_new: bool


class TracedChanges:
    """Two runs of a day, compared below the figures."""

    def __init__(self, connection: Connection, old: int, new: int, profile: Profile) -> None:
        self._profile = profile
        self._old, self._new = (_timelines(connection, run_id) for run_id in (old, new))
        downtimes, exclusions = changed_announcements(connection, old, new)
        self._downtimes = [change.announcement for change in downtimes]
        self._exclusions = [change.announcement for change in exclusions]
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
        if exclusion.kind == GROUP:
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
    connection: Connection, old: int, new: int
) -> tuple[list[DowntimeDifference], list[ExclusionDifference]]:
    """The downtimes and exclusions that only one of two runs has read, those of the old one first.

    One that was changed is listed twice.
    """
    before, after = (
        connection.execute(text(_ANNOUNCED), {"run_id": run_id}).one() for run_id in (old, new)
    )
    downtimes, exclusions = (
        [
            *((row, False) for row in of_old if row not in of_new),
            *((row, True) for row in of_new if row not in of_old),
        ]
        for of_old, of_new in zip(map(json.loads, before), map(json.loads, after), strict=True)
    )
    return (
        [DowntimeDifference(recorded_downtime(row), is_new) for row, is_new in downtimes],
        [ExclusionDifference(Exclusion(**row), is_new) for row, is_new in exclusions],
    )


def _timelines(connection: Connection, run_id: int) -> _Timelines:
    timelines: dict[_Endpoint, dict[str, set[tuple[str, ...]]]] = {}
    for site, flavour, host, metric, start, end, status in connection.execute(
        text(_METRICS), {"run_id": run_id}
    ):
        of_endpoint = timelines.setdefault((site, flavour, host), {})
        of_endpoint.setdefault(metric, set()).add((str(start), str(end), status))
    return timelines
