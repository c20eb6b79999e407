"""Which results count for a report, decided once for each instance, and where they travel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np

from sam_pipeline.spark_jobs.compute.counts import ResultCounts, added_up, count
from sam_pipeline.spark_jobs.compute.plan import COUNTS, REASONS, Plan
from sam_pipeline.spark_jobs.compute.planning import instance_groups, make_plan, site_groups
from sam_pipeline.spark_jobs.compute.sources.instances import Instances
from sam_pipeline.spark_jobs.compute.stretches import Stretches, pack
from sam_pipeline.spark_jobs.inputs.expected import DayExpectation, Endpoint
from sam_pipeline.spark_jobs.profiles.profile import Flavour, Function, Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S
from sam_pipeline.spark_jobs.rules.figures import Targets
from sam_pipeline.spark_jobs.rules.levels import METRIC, NAMES
from sam_pipeline.spark_jobs.rules.statuses import AND, OR

DAY = date(1970, 1, 2)
NOW = 9 * DAY_S
OK, CRITICAL = 0, 5

Name = tuple[str, str, str, str]  # flavour, host, metric, VO


PROFILE = Profile(
    name="test",
    validity_s=3600,
    validity_of={"ping": 60, "put": None},
    vo="ops",
    fqan=None,
    downtimes=(),
    metrics_operation="AND",
    functions_operation="AND",
    flavours=(Flavour("CE", ("ping", "submit"), "OR"), Flavour("SRM", ("put",), "OR")),
    functions=(Function("compute", ("CE",), "OR"), Function("storage", ("SRM",), "OR")),
    targets=Targets(),
    operations=(AND, OR),
    document="{}",
)


def instances(names: Sequence[Name]) -> Instances:
    """Instances with the ids 100, 101 …"""

    def numbered(values: Sequence[Any]) -> tuple[np.ndarray, list[Any]]:
        distinct = list(dict.fromkeys(values))
        return np.array([distinct.index(value) for value in values]), distinct

    endpoint, endpoints = numbered([name[:2] for name in names])
    metric, metrics = numbered([name[2] for name in names])
    vo, vos = numbered([name[3] for name in names])
    key = np.arange(1, 2 * len(names), 2, dtype=np.uint64)
    fqan = np.zeros(len(names), np.int64)
    ids = 100 + np.arange(len(names))
    return Instances(ids, endpoint, metric, vo, fqan, key, endpoints, metrics, vos, [None])


def plan(
    known: Instances, endpoints: Sequence[tuple[str, str, str]], using: Profile = PROFILE
) -> Plan:
    """The plan of one day on which these endpoints are expected."""
    expected = DayExpectation(DAY, sorted(Endpoint(*e) for e in endpoints), [], [], [])
    return make_plan(using, [expected], [7], known, {site: 0 for site, _, _ in endpoints}, NOW)


def things_of(of_plan: Plan, instance: int) -> list[tuple[str, ...]]:
    """The names of the metric things of an instance."""
    _, things = of_plan.metrics.follow(np.array([instance]))
    names = of_plan.levels[0].names.select(NAMES[METRIC]).to_pylist()
    return [tuple(names[thing].values()) for thing in things]


def at(instance: int, second: int, status: int = OK, results: int = 1) -> Stretches:
    """A stretch of one second of the day."""
    moment = np.array([DAY_S + second])
    number = np.array([instance])
    packed = pack(moment, np.array([status]))
    check = packed.astype(np.uint64) * np.uint64(results > 0)
    return Stretches(number, packed, moment, np.array([results]), check)


def counts(of_plan: Plan, known: Instances, *stretches: Stretches) -> ResultCounts:
    together = Stretches(*map(np.concatenate, zip(*stretches, strict=True)))
    return count(of_plan, of_plan.days[0], together, known.vo, known.key)[1]


def test_an_instance_reports_on_its_metric_at_every_site_of_its_endpoint() -> None:
    known = instances([("SRM", "shared", "put", "ops"), ("CE", "h1", "submit", "ops")])

    of_plan = plan(known, [("A", "SRM", "shared"), ("B", "SRM", "shared"), ("A", "CE", "h1")])

    assert things_of(of_plan, 0) == [("A", "SRM", "shared", "put"), ("B", "SRM", "shared", "put")]
    assert things_of(of_plan, 1) == [("A", "CE", "h1", "submit")]
    names = of_plan.levels[0].names.column("metric_name").to_pylist()
    validity = dict(zip(names, of_plan.validity.tolist(), strict=True))
    assert (validity["ping"], validity["submit"]) == (60, 3600) and validity["put"] > 2 * DAY_S


def test_results_that_do_not_count_are_counted_by_the_first_reason() -> None:
    known = instances(
        [
            ("CE", "h1", "ping", "ops"),
            ("CE", "h1", "ping", "physics"),
            ("CE", "h1", "put", "physics"),  # a metric of another flavour
            ("UI", "h1", "ping", "ops"),
            ("CE", "elsewhere", "ping", "ops"),
        ]
    )
    of_plan = plan(known, [("A", "CE", "h1")])

    read = counts(of_plan, known, *(at(i, 60, results=10**i) for i in range(5)))

    assert [(*REASONS, "counts")[reason] for reason in of_plan.refused] == [
        *("counts", "other-vo", "not-in-profile", "not-in-profile", "counts")
    ]
    assert of_plan.refused[0] == COUNTS
    ignored = dict(zip(REASONS, read.ignored, strict=True))
    assert read.read == 11111
    assert ignored == {"not-in-profile": 1100, "other-vo": 10, "not-in-topology": 10000}


def test_digests_depend_on_the_results_that_count_and_not_on_their_cut() -> None:
    known = instances([("CE", "h1", "ping", "ops"), ("CE", "h2", "ping", "ops")])
    of_plan = plan(known, [("A", "CE", "h1")])
    before, first, second = at(0, -60, results=0), at(0, 60), at(0, 120)

    whole = counts(of_plan, known, before, first, second, at(1, 5))
    parts = added_up([counts(of_plan, known, second), counts(of_plan, known, before, first)])
    worse = counts(of_plan, known, before, first, at(0, 120, CRITICAL))
    later = counts(of_plan, known, at(0, -30, results=0), first, second)

    assert (whole.digest, whole.carried_digest) == (parts.digest, parts.carried_digest)
    assert worse.digest != whole.digest and worse.carried_digest == whole.carried_digest
    assert later.carried_digest != whole.carried_digest


def test_vos_are_mixed_if_the_profile_names_none() -> None:
    known = instances([("CE", "h1", "ping", "ops"), ("CE", "h1", "ping", "physics")])
    endpoints = [("A", "CE", "h1")]
    results = at(0, 60), at(1, -60)

    of_any_vo = counts(plan(known, endpoints, replace(PROFILE, vo=None)), known, *results)
    of_ops = counts(plan(known, endpoints), known, *results)

    assert of_any_vo.mixed == [(0, 0), (0, 1)]
    assert list(of_ops.mixed) == []


def test_sites_that_share_an_endpoint_are_in_one_group_and_groups_are_even() -> None:
    shared = [Endpoint("A", "SRM", "s"), Endpoint("C", "SRM", "s"), Endpoint("C", "CE", "b")]
    shared += [Endpoint("B", "CE", "b")]
    others = [Endpoint(f"S{number:02}", "CE", f"h{number:02}") for number in range(16)]

    group_of = site_groups([*shared, *others], 4)

    assert group_of["A"] == group_of["B"] == group_of["C"]
    sizes = Counter(group_of[endpoint.site] for endpoint in (*shared, *others))
    assert sorted(sizes.values()) == [5, 5, 5, 5]


def test_instances_travel_to_the_group_of_their_site() -> None:
    known = instances([("CE", "h1", "ping", "ops"), ("CE", "unknown", "ping", "ops")])

    groups = instance_groups(known, [Endpoint("A", "CE", "h1")], {"A": 3}, 4)

    assert groups[0] == 3
    assert 0 <= groups[1] < 4
