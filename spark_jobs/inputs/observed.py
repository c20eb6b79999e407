"""What the database has seen of a profile's metrics: whether, how often, and where.

Intervals are those between two results of one instance that follow one another, of a sample: at
most SAMPLE instances of a metric, spread evenly over all of them in the order of their names, so
that the same data gives the same answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, bindparam, text

from sam_pipeline.spark_jobs.inputs.announced import WINDOW, count_results, memberships
from sam_pipeline.spark_jobs.inputs.expected import expect
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, as_day, day_start

SAMPLE = 50
TIMES = 3
"""So many p99 intervals are proposed as validity: it outlasts a probe that fails twice."""


@dataclass(frozen=True, order=True)
class Instance:
    """A metric of an endpoint that some result was about."""

    service_flavour: str
    host_name: str
    metric_name: str
    instance_id: int


@dataclass(frozen=True)
class Observed:
    """How often a metric is measured: `instances` known, `sampled` of them had results."""

    metric_name: str
    instances: int
    sampled: int
    intervals: int
    p99_interval_s: int | None
    validity_s: int | None

    @property
    def proposed_validity_s(self) -> int | None:
        return None if self.p99_interval_s is None else TIMES * self.p99_interval_s


def never_seen(connection: Connection, profile: Profile) -> list[str]:
    """The metrics without any result, ever, each with its flavour: "METRIC of FLAVOUR"."""
    seen = set(_of_vo(connection, profile, "DISTINCT service_flavour, metric_name"))
    return [
        f"{metric} of {flavour.name}"
        for flavour in profile.flavours
        for metric in flavour.metrics
        if (flavour.name, metric) not in seen
    ]


def without_endpoints(connection: Connection, profile: Profile, day: date) -> list[str]:
    """The flavours that no site has on a day."""
    there = {flavour for flavour, _ in _endpoints(connection, profile, day)}
    return [flavour.name for flavour in profile.flavours if flavour.name not in there]


def newest_days(connection: Connection, days: int, today: date) -> Period | None:
    """So many UTC days, the newest with results the last of them; None without results."""
    noted = connection.scalars(
        text("SELECT day FROM report_changed_day WHERE day <= :last ORDER BY day DESC"),
        {"last": (today + timedelta(days=1)).isoformat()},
    ).all()
    for day in map(as_day, noted):
        if count_results(connection, Period(day, day), at_most=1):
            return Period(day - timedelta(days=days - 1), day)
    return None


def observe(
    connection: Connection, profile: Profile, period: Period, today: date
) -> list[Observed]:
    """Each metric of the profile, in its order; endpoints of today's topology are asked first."""
    known: dict[str, list[Instance]] = defaultdict(list)
    for each in instances(connection, profile):
        known[each.metric_name].append(each)
    here = _endpoints(connection, profile, today)
    found = []
    for metric in dict.fromkeys(name for flavour in profile.flavours for name in flavour.metrics):
        of_today = [
            each for each in known[metric] if (each.service_flavour, each.host_name) in here
        ]
        chosen = sample(sorted(of_today or known[metric]), SAMPLE)
        moments = _moments(connection, [each.instance_id for each in chosen], period)
        intervals = sorted(end - start for times in moments for start, end in pairwise(times))
        found.append(
            Observed(
                metric,
                len(known[metric]),
                len(moments),
                len(intervals),
                percentile(intervals, 99) if intervals else None,
                profile.validity(metric),
            )
        )
    return found


def instances(connection: Connection, profile: Profile) -> list[Instance]:
    """Everything measured that counts in the profile."""
    found = _of_vo(connection, profile, "service_flavour, host_name, metric_name, instance_id")
    wanted = {flavour.name: frozenset(flavour.metrics) for flavour in profile.flavours}
    return [Instance(*row) for row in found if row[2] in wanted.get(row[0], ())]


def sample(found: Sequence[Instance], size: int) -> list[Instance]:
    """At most `size` of them, evenly spread."""
    count = min(size, len(found))
    return [found[at * len(found) // count] for at in range(count)]


def percentile(ordered: Sequence[int], percent: int) -> int:
    """Nearest rank: the smallest value that at least so many percent don't exceed."""
    return ordered[-(-len(ordered) * percent // 100) - 1]


def _of_vo(connection: Connection, profile: Profile, columns: str) -> list[tuple[Any, ...]]:
    """Columns of the instances whose results count by their VO and FQAN (rule 2)."""
    named = [name for name in ("vo", "fqan") if getattr(profile, name) is not None]
    conditions = " AND ".join(f"{name} = :{name}" for name in named) or "1 = 1"
    found = connection.execute(
        text(f"SELECT {columns} FROM report_instance WHERE {conditions}"),
        {"vo": profile.vo, "fqan": profile.fqan},
    )
    return list(map(tuple, found))


def _moments(
    connection: Connection, instance_ids: Sequence[int], period: Period
) -> list[list[int]]:
    """When each instance was measured, in order; those without results left out."""
    statement = text(
        "SELECT DISTINCT instance_id, measured_at_s FROM report_result"
        f" WHERE instance_id IN :ids AND {WINDOW[connection.dialect.name]}"
        " ORDER BY instance_id, measured_at_s"
    ).bindparams(bindparam("ids", expanding=True))
    found = connection.execute(
        statement,
        {
            "ids": instance_ids,
            "start": day_start(period.first),
            "end": day_start(period.last) + DAY_S,
        },
    )
    moments: dict[int, list[int]] = defaultdict(list)
    for instance_id, measured in found:
        moments[instance_id].append(measured)
    return list(moments.values())


def _endpoints(connection: Connection, profile: Profile, day: date) -> set[tuple[str, str]]:
    """Flavour and host of what is expected on a day."""
    topology = memberships(connection, Period(day, day))
    expected = expect(day, topology, [], [], profile, day_start(day) + DAY_S).endpoints
    return {(each.service_flavour, each.host_name) for each in expected}
