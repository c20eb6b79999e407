"""Whether the metrics of a profile have had results, and at which intervals.

An interval is the time between two successive results of one instance. At most SAMPLE instances of
a metric are examined, spread evenly over all of them in the order of their names, so that the same
data gives the same answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, bindparam, text

from sam_pipeline.schema.program.wording import did_you_mean_or_list
from sam_pipeline.spark_jobs.inputs.announced import (
    WINDOW,
    Announced,
    count_results,
    members,
    memberships,
)
from sam_pipeline.spark_jobs.inputs.expected import expect
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period, as_day

SAMPLE = 50
VALIDITY_INTERVALS = 3
"""The proposed validity in p99 intervals: enough for a probe that fails to run twice."""


@dataclass(frozen=True)
class Observed:
    """How often a metric is measured; `sampled` of its `instances` were examined.

    An instance is sampled if it was chosen and has results in the period.
    """

    metric_name: str
    instances: int
    sampled: int
    intervals: int
    p99_interval_s: int | None
    validity_s: int | None

    @property
    def proposed_validity_s(self) -> int | None:
        p99 = self.p99_interval_s
        return None if p99 is None else VALIDITY_INTERVALS * p99


def never_seen(connection: Connection, profile: Profile) -> list[str]:
    """The metrics that never had a result, as "METRIC of FLAVOUR"."""
    seen = set(_instances(connection, profile, "DISTINCT service_flavour, metric_name"))
    return [
        f"{metric} of {flavour.name}"
        for flavour in profile.flavours
        for metric in flavour.metrics
        if (flavour.name, metric) not in seen
    ]


def without_endpoints(connection: Connection, profile: Profile, day: date) -> list[str]:
    """The flavours without an endpoint on a day."""
    present = {flavour for flavour, _ in _endpoints(connection, profile, day)}
    return [flavour.name for flavour in profile.flavours if flavour.name not in present]


def known_vos(connection: Connection) -> list[str]:
    """The VOs that results or endpoints name."""
    statement = "SELECT vo FROM report_topology UNION SELECT vo FROM report_instance"
    return sorted(filter(None, connection.scalars(text(statement))))


def idle_patterns(connection: Connection, profile: Profile, day: date) -> list[str]:
    """The patterns for sites and groups that match none of a day's topology."""
    period, of_day = Period(day, day), members(connection, day)
    sites = {membership.site for membership in memberships(connection, period)}
    groups = {f"{member.group_type}/{member.group_name}" for member in of_day}
    return [
        f"{key}: {pattern} matches no {key[:-1]} in the topology of {day}"
        for key, patterns, names in (
            ("sites", profile.sites, sites),
            ("groups", profile.groups, groups),
        )
        for pattern in patterns
        if not any(fnmatchcase(name, pattern) for name in names)
    ]


def unknown_names(connection: Connection, profile: Profile) -> list[str]:
    """The groups and sites of the profile's targets that the topology does not have."""
    problems = []
    groups = {
        (group_type, name)
        for group_type, name in connection.execute(
            text("SELECT DISTINCT group_type, group_name FROM report_site_group")
        )
    }
    for group_type, name in profile.targets_of_groups:
        if (group_type, name) not in groups:
            known = [f"{of_type} {group}" for of_type, group in sorted(groups)]
            wanted = f"{group_type} {name}"
            problems.append(f"group {wanted}: {did_you_mean_or_list(wanted, known)}")
    sites = connection.scalars(text("SELECT DISTINCT site FROM report_topology")).all()
    for site in profile.targets_of_sites:
        if site not in sites:
            problems.append(f"site {site}: {did_you_mean_or_list(site, sites)}")
    return problems


def newest_day(connection: Connection, today: date) -> date | None:
    """The newest day with results, tomorrow's at most; None if there are no results."""
    changed = connection.scalars(
        text("SELECT day FROM report_changed_day WHERE day <= :last ORDER BY day DESC"),
        {"last": (today + timedelta(days=1)).isoformat()},
    ).all()
    for day in map(as_day, changed):
        if count_results(connection, Period(day, day), at_most=1):
            return day
    return None


def observe(
    connection: Connection, profile: Profile, period: Period, today: date
) -> list[Observed]:
    """How often each metric of the profile is measured, in the profile's order.

    Instances of endpoints in today's topology are preferred.
    """
    metrics_of = {flavour.name: frozenset(flavour.metrics) for flavour in profile.flavours}
    columns = "service_flavour, host_name, metric_name, instance_id"
    known: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for instance in sorted(_instances(connection, profile, columns)):
        flavour, _, metric, _ = instance
        if metric in metrics_of.get(flavour, ()):
            known[metric].append(instance)
    endpoints = _endpoints(connection, profile, today)
    statement = text(
        "SELECT DISTINCT instance_id, measured_at_s FROM report_result"
        f" WHERE instance_id IN :ids AND {WINDOW[connection.dialect.name]}"
        " ORDER BY instance_id, measured_at_s"
    ).bindparams(bindparam("ids", expanding=True))
    observed = []
    for metric in dict.fromkeys(name for flavour in profile.flavours for name in flavour.metrics):
        of_today = [instance for instance in known[metric] if instance[:2] in endpoints]
        candidates = of_today or known[metric]
        count = min(SAMPLE, len(candidates))
        ids = [candidates[number * len(candidates) // count][3] for number in range(count)]
        times_of: dict[int, list[int]] = defaultdict(list)
        for instance_id, measured in connection.execute(
            statement, {"ids": ids, "start": period.start, "end": period.end}
        ):
            times_of[instance_id].append(measured)
        intervals = sorted(b - a for times in times_of.values() for a, b in pairwise(times))
        observed.append(
            Observed(
                metric,
                instances=len(known[metric]),
                sampled=len(times_of),
                intervals=len(intervals),
                p99_interval_s=percentile(intervals, 99) if intervals else None,
                validity_s=profile.validity(metric),
            )
        )
    return observed


def percentile(ordered: Sequence[int], percent: int) -> int:
    """The nearest-rank percentile: the smallest value not exceeded by `percent` % of the values."""
    return ordered[-(-len(ordered) * percent // 100) - 1]


def _instances(connection: Connection, profile: Profile, columns: str) -> list[tuple[Any, ...]]:
    """Some columns of the instances whose VO and FQAN count in the profile (rule 2)."""
    named = [name for name in ("vo", "fqan") if getattr(profile, name) is not None]
    conditions = " AND ".join(f"{name} = :{name}" for name in named) or "1 = 1"
    rows = connection.execute(
        text(f"SELECT {columns} FROM report_instance WHERE {conditions}"),
        {"vo": profile.vo, "fqan": profile.fqan},
    )
    return list(map(tuple, rows))


def _endpoints(connection: Connection, profile: Profile, day: date) -> set[tuple[str, str]]:
    """The flavour and host of every endpoint expected on a day."""
    period = Period(day, day)
    announced = Announced(memberships(connection, period), [], [], members(connection, day))
    expected = expect(day, announced, profile, period.end)
    return {(endpoint.service_flavour, endpoint.host_name) for endpoint in expected.endpoints}
