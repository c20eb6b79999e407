"""Checks the oracle against figures calculated by hand, since it judges the reports.

Timelines that the kernel folds as calculated by hand are in
tests/unit/spark_jobs/compute/test_folding.py; worlds compare the kernel with the oracle. Thresholds
are in tests/unit/spark_jobs/profiles/test_profile.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import combinations, permutations
from typing import Any

import pytest

from tests.oracle.batch import Batch, drawn_batch
from tests.oracle.check import differences, smallest
from tests.oracle.oracle import (
    AND,
    DAY_S,
    OR,
    STATUSES,
    DayReport,
    Trend,
    day_report,
    figures_of,
    groups_over,
    period,
    rounded,
    trend,
)
from tests.worlds.drawn import drawn
from tests.worlds.drawn_setting import profiles
from tests.worlds.model import (
    Downtime,
    Endpoint,
    Exclusion,
    Flavour,
    Function,
    Profile,
    Result,
    SiteGroup,
    Threshold,
    World,
    midnight,
)

DAY = date(2026, 11, 10)
START = datetime(2026, 11, 10, tzinfo=UTC)
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
ENDPOINT = Endpoint("ALFA", "ce01", "CE", LONG_AGO)
PROFILE = Profile(name="p", flavours={"CE": Flavour(("ping",)), "SRM": Flavour(("put",))})
SECOND = timedelta(seconds=1)
ALL_OK = {"OK": DAY_S}


def at(hour: float) -> datetime:
    return START + timedelta(hours=hour)


def result(status: str, hour: float = 0, host: str = "ce01", **changes: Any) -> Result:
    return Result(host, "CE", "ping", status, changes.pop("at", at(hour)), **changes)


def report(*results: Result, profile: Profile = PROFILE, **parts: Any) -> DayReport:
    endpoints = parts.pop("endpoints", (ENDPOINT,))
    announced = [tuple(parts.pop(name, ())) for name in ("groups", "downtimes")]
    world = World(DAY, 1, tuple(endpoints), *announced, results, tuple(parts.pop("exclusions", ())))
    return day_report(world, profile, DAY, **parts)


def seconds(day: DayReport, site: str = "ALFA") -> dict[str, int]:
    of_site = day.figures("sites")[(site,)].seconds
    return {status: count for status, count in of_site.items() if count}


def shares(day: DayReport) -> tuple[float | None, float | None]:
    """Availability and reliability of the site."""
    figures = day.figures("sites")["ALFA",]
    return tuple(  # type: ignore[return-value]
        None if share is None else float(share)
        for share in (figures.availability, figures.reliability)
    )


def downtime(start: float = 6, end: float = 12, announced: float = -99, **more: str) -> Downtime:
    return Downtime("1", at(start), at(end), at(announced), **{"site": "ALFA", **more})


def test_the_state_at_midnight_comes_from_the_previous_day_at_most() -> None:
    assert seconds(report(result("OK", -24))) == ALL_OK
    assert seconds(report(result("OK", at=at(-24) - SECOND))) == {"MISSING": DAY_S}
    assert seconds(report(result("OK"), result("CRITICAL", 24))) == ALL_OK


@pytest.mark.parametrize(
    ("profile", "ours", "other", "sites"),
    [
        ({"vo": "ops"}, {"vo": "ops"}, {"vo": "cms"}, "ALFA"),
        ({"vo": ""}, {"vo": ""}, {"vo": "ops"}, "ALFA"),
        ({"fqan": "/ops/x"}, {"fqan": "/ops/x"}, {}, "ALFA,BETA"),
    ],
)
def test_only_results_and_endpoints_of_the_profiles_vo_and_fqan_count(
    profile: dict[str, str], ours: dict[str, str], other: dict[str, str], sites: str
) -> None:
    endpoints = (ENDPOINT, replace(ENDPOINT, site="BETA", host="ce02", vo="physics"))
    results = result("OK", **ours), result("CRITICAL", 1, **other)

    day = report(*results, profile=replace(PROFILE, **profile), endpoints=endpoints)  # type: ignore[arg-type]

    assert seconds(day) == ALL_OK
    assert {site for (site,) in day.sites} == set(sites.split(","))


def test_the_topology_of_a_day_is_that_of_its_first_moment() -> None:
    endpoints = [
        Endpoint("A", "h", "CE", START),
        Endpoint("B", "h", "CE", START + SECOND),
        Endpoint("C", "h", "CE", LONG_AGO, START),
        Endpoint("D", "h", "CE", LONG_AGO, START + SECOND),
        Endpoint("E", "h", "CE", LONG_AGO, monitored="N"),
        Endpoint("F", "h", "CE", LONG_AGO, production="N"),
    ]

    assert {site for site, _, _ in report(endpoints=endpoints).endpoints} == {"A", "D"}


def test_a_downtime_names_the_site_or_the_grid_site_of_an_endpoint() -> None:
    endpoints = [
        replace(ENDPOINT, grid_site="GRID"),
        replace(ENDPOINT, site="BETA", host="ce02", grid_site="GRID"),
        replace(ENDPOINT, site="BETA", host="ce03", grid_site="OTHER"),
    ]

    def covered(**names: str) -> set[str]:
        day = report(endpoints=endpoints, downtimes=[downtime(**names)])
        downs = {host: states for (_, _, host), states in day.endpoints.items()}
        return {host for host, states in downs.items() if figures_of(states).seconds["DOWNTIME"]}

    assert covered(site="GRID") == {"ce01", "ce02"}
    assert covered(site="BETA") == {"ce02", "ce03"}
    assert covered(site="OTHER", host="ce03") == {"ce03"}
    assert covered(site="OTHER", host="ce02") == set()


@pytest.mark.parametrize(
    ("patterns", "sites"),
    [
        ({"sites": ("A*",)}, {"ALFA"}),
        ({"groups": ("federation/*",)}, {"BETA"}),
        ({"sites": ("ALFA",), "groups": ("*/G",)}, {"ALFA", "BETA"}),
        ({"sites": ("LFA",)}, set()),
    ],
)
def test_a_profile_may_choose_sites(patterns: dict[str, Any], sites: set[str]) -> None:
    endpoints = [ENDPOINT, replace(ENDPOINT, site="BETA", host="ce02")]
    groups = [SiteGroup("BETA", "federation", "G", LONG_AGO)]
    groups.append(SiteGroup("ALFA", "federation", "G", LONG_AGO, START))  # until this day

    day = report(endpoints=endpoints, groups=groups, profile=replace(PROFILE, **patterns))

    assert {site for (site,) in day.sites} == sites


def test_downtimes_count_at_their_place_in_their_newest_announcement_but_not_for_reliability() -> (
    None
):
    bad_morning = result("CRITICAL"), result("OK", 9)
    twins = (ENDPOINT, replace(ENDPOINT, site="BETA"))
    shorter, cancelled = downtime(end=7, announced=2), downtime(end=6, announced=3)
    steady = result("OK")

    assert shares(report(*bad_morning, downtimes=[downtime()])) == (50.0, 66.66667)
    assert seconds(report(steady, downtimes=[downtime(severity="WARNING")])) == ALL_OK
    assert seconds(report(steady, downtimes=[shorter, downtime(announced=1)]))["DOWNTIME"] == 3600
    assert seconds(report(steady, downtimes=[cancelled, downtime(), shorter])) == ALL_OK
    day = report(steady, endpoints=twins, downtimes=[downtime(0, 24, site="BETA")])
    assert (seconds(day), seconds(day, "BETA")) == (ALL_OK, {"DOWNTIME": DAY_S})
    day = report(downtimes=[downtime(site="", host="ce02")])
    assert seconds(day) == {"MISSING": DAY_S}
    # All day: not available, and no reliability.
    assert shares(report(downtimes=[downtime(0, 24)])) == (0, None)
    assert shares(report(result("UNKNOWN"), downtimes=[downtime(22, 24)])) == (0, None)
    assert shares(report(result("OK"), result("CRITICAL", 12), downtimes=[downtime(12, 24)])) == (
        *(50, 100),
    )


def test_the_validity_of_a_metric_overrides_that_of_the_profile_and_goes_on_past_midnight() -> None:
    def ok_s(of: Result, **validity: Any) -> int:
        return seconds(report(of, profile=replace(PROFILE, **validity))).get("OK", 0)

    assert ok_s(result("OK"), validity_s=1, validity_of={"ping": 7200}) == 7200
    assert ok_s(result("OK"), validity_s=1, validity_of={"ping": None}) == DAY_S
    assert ok_s(result("OK"), validity_s=None, validity_of={"put": 1}) == DAY_S
    assert ok_s(result("OK", -1), validity_s=3601) == 1
    assert ok_s(result("OK", -1), validity_s=3600) == 0
    # Rule 3 considers only the newest result, even if an older one would still be valid.
    day = report(
        result("OK", 0.5), result("CRITICAL", 0.6), profile=replace(PROFILE, validity_s=3600)
    )
    assert seconds(day)["MISSING"] == DAY_S - 3600 - 360


SLOW = Threshold("ping", "time", warning="30", critical="60")


def test_thresholds_apply_before_the_worse_of_two_results() -> None:
    slow = replace(PROFILE, thresholds=(SLOW,))
    critical = result("CRITICAL", performance_data="time=31")

    for other, expected in (
        (result("OK", performance_data="time=99"), "CRITICAL"),
        (result("OK", gathered_at="wn2"), "WARNING"),
    ):
        for results in ((critical, other), (other, critical)):
            assert seconds(report(*results, profile=slow)) == {expected: DAY_S}


def test_results_of_an_excluded_monitoring_host_are_ignored_including_both_ends() -> None:
    def of(host: str, status: str, hour: float) -> Result:
        return result(status, hour, monitoring_host=host)

    def without(start: float, end: float, *results: Result) -> dict[str, int]:
        excluded = Exclusion("monitoring-host", at(start), at(end), monitoring_host="bad")
        return seconds(report(*results, exclusions=[excluded]))

    both_ends = [of("bad", "CRITICAL", hour) for hour in (6, 12)]
    assert without(6, 12, of("good", "OK", 0), *both_ends) == ALL_OK
    later = result("CRITICAL", at=at(12) + SECOND, monitoring_host="bad")
    assert without(6, 12, of("good", "OK", 0), later)["CRITICAL"] == 12 * 3600 - 1
    # What another host measured at the same time stays, on the day before too.
    assert without(6, 12, *both_ends, of("good", "WARNING", 6))["WARNING"] == 18 * 3600
    assert without(-5, 12, of("bad", "CRITICAL", -1), of("good", "OK", -9)) == ALL_OK
    assert without(0, 24, of("bad", "OK", 3)) == {"MISSING": DAY_S}


def test_excluded_metrics_have_no_known_time_and_excluded_sites_are_unknown() -> None:
    morning = Exclusion("metric", START, at(12), metric="ping")
    group = Exclusion("site", at(6), at(18), site="ALFA")
    federation = SiteGroup("ALFA", "federation", "F", LONG_AGO)
    others = [{"metric": "put"}, {"site": "BETA"}, {"flavour": "SRM"}, {"host": "ce02"}]

    # ARGO counts excluded time as down: 50 and 50 where this is 100 and 100.
    day = report(result("OK"), exclusions=[morning])
    assert (seconds(day), shares(day)) == ({"EXCLUDED": 43_200, "OK": 43_200}, (100, 100))
    for selectors in others:
        other = Exclusion("metric", START, at(24), **selectors)
        assert seconds(report(result("OK"), exclusions=[other])) == ALL_OK
    day = report(
        *(result("OK"), result("CRITICAL", 12)),
        groups=[federation],
        downtimes=[downtime(12, 15)],
        exclusions=[group],
    )
    assert seconds(day) == {"OK": 6 * 3600, "UNKNOWN": 12 * 3600, "CRITICAL": 6 * 3600}
    assert day.figures("services")["ALFA", "CE"].seconds["DOWNTIME"] == 3 * 3600
    assert day.groups["federation", "F"].availability == Decimal(50)


def test_a_flavour_may_take_part_in_several_functions_or_in_none() -> None:
    profile = Profile(
        name="p",
        flavours={name: Flavour(("ping",)) for name in ("CE", "ARC", "SRM")},
        functions={"compute": Function(("CE", "ARC")), "all": Function(("ARC",))},
    )
    endpoints = [Endpoint("ALFA", name, name, LONG_AGO) for name in profile.flavours]
    endpoints.append(Endpoint("BETA", "s", "SRM", LONG_AGO))
    results = [
        replace(result(status, host=row.host), flavour=row.flavour)
        for row, status in zip(endpoints, ("OK", "WARNING", "CRITICAL"), strict=False)
    ]

    day = report(*results, endpoints=endpoints, profile=profile)

    functions = {key[1]: segments[0].status for key, segments in day.timelines("functions").items()}
    assert functions == {"compute": "OK", "all": "WARNING"}
    assert ("BETA", "SRM") in day.services and set(day.sites) == {("ALFA",)}
    assert seconds(day) == {"WARNING": DAY_S}


def test_trends_count_the_changes_of_the_merged_segments_but_not_that_at_midnight() -> None:
    flapping = [result("OK", -1), result("CRITICAL", 0), result("OK", 3), result("OK", 4)]

    [site] = report(*flapping, result("CRITICAL", 5)).timelines("sites").values()
    [steady] = report(result("OK")).timelines("sites").values()

    assert trend(site) == Trend(2, at(3), at(5))
    assert trend(steady) == Trend(0, None, None)


def test_a_period_sums_the_seconds_and_then_divides() -> None:
    """Day one: 50 % of 24 known hours; day two: 100 % of 12. The mean of the days would be 75."""
    half = report(result("OK"), result("CRITICAL", 12)).figures("sites")["ALFA",]
    short = report(result("OK", 12)).figures("sites")["ALFA",]

    assert (half.availability, short.availability) == (Decimal(50), Decimal(100))
    assert period([half, short]).availability == Decimal("66.66667")  # 24 of 36 hours
    assert shares(report()) == (None, None)
    assert rounded(Fraction(125, 1_000_000)) == Decimal("0.00013")  # half to even says 0.00012


def test_a_group_is_the_weighted_mean_of_the_sites_that_have_a_value() -> None:
    endpoints = [replace(ENDPOINT, site=site, host=site) for site in "ABC"]
    groups = [
        SiteGroup(site, "federation", name, LONG_AGO, weight=weight)
        for name, weights in (("F", (2, None, 100)), ("G", (99, 0, None)))
        for site, weight in zip("ABC", weights, strict=True)
    ]
    results = result("OK", host="A"), result("CRITICAL", 12, host="A"), result("OK", host="B")

    of_group = report(*results, endpoints=endpoints, groups=groups).groups

    f, g = of_group["federation", "F"], of_group["federation", "G"]
    assert f.availability == Decimal("66.66667")  # (2 * 50 + 1 * 100) / 3
    assert (f.sites_expected, f.sites_known) == (3, 2)
    assert g.availability == Decimal(50)  # the weight 0 of B counts nothing


def test_a_member_of_a_group_counts_on_its_days_with_the_weights_of_these_days() -> None:
    """A is OK for two days, of which it is a member with the weights 1 and 5; B fails on one."""
    endpoints = [replace(ENDPOINT, site=site, host=site) for site in "AB"]
    next_day = midnight(DAY + timedelta(days=1))
    groups = [
        SiteGroup("A", "federation", "F", LONG_AGO, next_day, weight=1),
        SiteGroup("A", "federation", "F", next_day, weight=5),
        SiteGroup("B", "federation", "F", next_day),
    ]
    results = [result("OK", at, host="A") for at in (0, 24)] + [result("CRITICAL", 24, host="B")]

    def days(profile: Profile) -> list[DayReport]:
        world = World(DAY, 2, tuple(endpoints), tuple(groups), (), tuple(results))
        return [day_report(world, profile, day) for day in world.all_days]

    plain, argo = days(PROFILE), days(replace(PROFILE, weights="argo"))

    group = "federation", "F"
    assert [day.groups[group].availability for day in plain] == [100, Decimal("83.33333")]
    assert groups_over(plain)[group].availability == Decimal("85.71429")  # 600 / (1 + 5 + 1)
    assert groups_over(plain)[group].sites_expected == 2
    assert groups_over(argo)[group].availability == Decimal("88.88889")  # 800 / (2 + 6 + 1)


# The worlds contain the edge cases they are made for; a failing one is reported reduced ----------


SEED, SIZE = 7, 24
BATCHES = 80
"""At most; the draws also depend on the modules that are loaded, so some need more than others."""
ONE_DAY = timedelta(days=1)


@cache
def batch(number: int) -> Batch:
    return drawn_batch(SEED, number, SIZE)


def most(keys: Iterable[object]) -> int:
    """How often the most frequent key occurs."""
    return max(Counter(keys).values(), default=0)


def beside_midnight(world: World) -> set[int]:
    return {
        int((result.measured_at - midnight(day)).total_seconds())
        for result in world.results
        for day in world.all_days
    } & {-1, 0, 1}


def statuses_at_once(world: World, *more: str) -> int:
    """The most statuses of an instance at one moment."""
    names = ("host", "flavour", "metric", "vo", "fqan", "measured_at", *more, "status")
    keys = {tuple(getattr(result, name) for name in names) for result in world.results}
    return most(key[:-1] for key in keys)


def worse_copy_excluded(world: World) -> bool:
    """Whether a result remains whose worse copy by another monitoring host is excluded."""

    def is_excluded(result: Result) -> bool:
        return any(
            exclusion.monitoring_host == result.monitoring_host
            and exclusion.start <= result.measured_at <= exclusion.end
            for exclusion in world.exclusions
        )

    by_probe: dict[tuple[object, ...], list[Result]] = {}
    for result in world.results:
        key = replace(result, monitoring_host="", status="", performance_data="")
        by_probe.setdefault(astuple(key), []).append(result)
    return any(
        AND.index(a.status) > AND.index(b.status) and is_excluded(a) and not is_excluded(b)
        for copies in by_probe.values()
        for a, b in permutations(copies, 2)
    )


def only_the_first_day(world: World) -> bool:
    days_of: dict[str, set[date]] = {}
    for result in world.results:
        days_of.setdefault(result.host, set()).add(result.measured_at.date())
    return {world.all_days[0]} in days_of.values()


EDGES: dict[str, Callable[[World], object]] = {
    "results at and beside midnight": lambda world: beside_midnight(world) == {-1, 0, 1},
    "two statuses at a moment": lambda world: statuses_at_once(world) > 1,
    "two statuses of one run of a probe": lambda world: (
        statuses_at_once(world, "gathered_at", "monitoring_host") > 1
    ),
    "the worse of two monitoring hosts is excluded": worse_copy_excluded,
    "no result": lambda world: not world.results,
    "one result": lambda world: len(world.results) == 1,
    "no endpoint": lambda world: not world.endpoints,
    "a host with results of the first day only": only_the_first_day,
    "downtimes that touch": lambda world: any(
        a.end == b.start > a.start and b.end > b.start for a, b in permutations(world.downtimes, 2)
    ),
    "downtimes that overlap": lambda world: any(
        a.start < b.start < a.end < b.end for a, b in combinations(world.downtimes, 2)
    ),
    "a downtime of a whole day": lambda world: any(
        d.start <= midnight(day) and d.end >= midnight(day) + ONE_DAY
        for d in world.downtimes
        for day in world.all_days
    ),
    "a downtime that is cancelled": lambda world: any(d.start == d.end for d in world.downtimes),
    "a downtime announced twice": lambda world: (
        most((d.downtime_id, d.site, d.host, d.flavour) for d in world.downtimes if d.downtime_id)
        > 1
    ),
    "an endpoint of two sites": lambda world: (
        most((host, flavour) for _, host, flavour in {astuple(e)[:3] for e in world.endpoints}) > 1
    ),
    "two sites at a grid site in downtime": lambda world: any(
        d.start < d.end
        and len({e.site for e in world.endpoints if "" != e.grid_site == d.site != e.site}) > 1
        for d in world.downtimes
    ),
    "a site at two grid sites": lambda world: (
        most(site for site, grid in {(e.site, e.grid_site) for e in world.endpoints} if grid) > 1
    ),
    "an endpoint that is not monitored": lambda world: any(
        "N" in (endpoint.production, endpoint.monitored) for endpoint in world.endpoints
    ),
    "an endpoint that comes or goes at midnight": lambda world: any(
        midnight(day) in (endpoint.valid_from, endpoint.valid_to)
        for endpoint in world.endpoints
        for day in world.all_days
    ),
    "a site that takes the place of another one in a group": lambda world: any(
        (a.group_type, a.group_name) == (b.group_type, b.group_name)
        and a.site != b.site
        and a.valid_to == b.valid_from == midnight(day)
        for a, b in permutations(world.site_groups, 2)
        for day in world.all_days[1:]
    ),
    "a weight that changes": lambda world: any(
        a.site == b.site and a.valid_to == b.valid_from == midnight(day) and a.weight != b.weight
        for a, b in permutations(world.site_groups, 2)
        for day in world.all_days[1:]
    ),
    "a site with two weights": lambda world: (
        most((group.site, group.group_type, group.group_name) for group in world.site_groups) > 1
    ),
}


@pytest.mark.parametrize("edge", EDGES)
def test_some_worlds_have_the_edge_case(edge: str) -> None:
    assert any(EDGES[edge](world) for number in range(BATCHES) for world in batch(number).worlds)


def test_every_status_and_every_kind_of_setting_occurs() -> None:
    missing = set(STATUSES) - {"EXCLUDED"}
    for few in (
        replace(batch(number), worlds=batch(number).worlds[:8]) for number in range(BATCHES)
    ):
        for world_facts in few.oracle_facts().values():
            for fact, timeline in world_facts.items():
                if fact[:2] == ("timeline", "sites"):
                    missing -= {span[2] for span in timeline}  # type: ignore[attr-defined]
        if not missing:
            break
    drawn_profiles = [drawn(profiles(), 3, number)[-1] for number in range(80)]

    assert not missing
    assert {profile.vo for profile in drawn_profiles} == {None, "", "ops"}
    assert {profile.weights for profile in drawn_profiles} == {"", "argo"}
    assert {profile.fqan for profile in drawn_profiles} == {None, "", "/ops/pilot"}
    assert {None} < {profile.validity_s for profile in drawn_profiles}
    assert any(profile.validity_of for profile in drawn_profiles)
    assert any(profile.sites and not profile.groups for profile in drawn_profiles)
    assert any(profile.groups and not profile.sites for profile in drawn_profiles)
    assert any(profile.thresholds for profile in drawn_profiles)
    assert any(len(profile.functions) > 1 for profile in drawn_profiles)
    operations = [table for profile in drawn_profiles for table in profile.operations.values()]
    assert any(result not in (a, b) for table in operations for a, b, result in table)
    assert all({a for a, _, _ in table} == set(AND) == set(OR) for table in operations)


def test_a_failing_world_is_reduced_to_what_makes_it_fail() -> None:
    def wrong(worlds: Sequence[World]) -> list[bool]:
        """A fake defect: a world with a downtime and a critical result is wrong."""
        return [
            bool(world.downtimes) and any(result.status == "CRITICAL" for result in world.results)
            for world in worlds
        ]

    worlds = (world for number in range(BATCHES) for world in batch(number).worlds)
    world = next(world for world in worlds if len(world.downtimes) > 1 and wrong([world])[0])
    small = smallest(world, wrong)
    text = differences(replace(batch(0), worlds=[small]), {"w000": {}})

    assert [len(small.downtimes), len(small.results)] == [1, 1]
    assert not small.endpoints and not small.site_groups and not small.exclusions
    assert 'name = "worlds"' in text
    assert "Downtime(" in text and "status=CRITICAL" in text
