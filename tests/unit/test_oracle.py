"""The oracle against figures worked out by hand; what it judges, it must get right itself."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from tests.oracle import AND, DAY_S, OR, DayReport, Segment, day_report, fold, period, rounded
from tests.world.model import (
    Downtime,
    Endpoint,
    Flavour,
    Function,
    Profile,
    Result,
    SiteGroup,
    World,
)

DAY = date(2026, 11, 10)
START = datetime(2026, 11, 10, tzinfo=UTC)
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
ENDPOINT = Endpoint("ALFA", "ce01.alfa", "CE", LONG_AGO)
PROFILE = Profile(name="p", flavours={"CE": Flavour(("ping",)), "SRM": Flavour(("put",))})


def at(hour: int, minute: int = 0, second: int = 0) -> datetime:
    return START + timedelta(hours=hour, minutes=minute, seconds=second)


def result(status: str, when: datetime, host: str = "ce01.alfa", **changes: Any) -> Result:
    given = Result(host=host, flavour="CE", metric="ping", status=status, measured_at=when)
    return replace(given, **changes)


def report(
    *results: Result,
    endpoints: tuple[Endpoint, ...] = (ENDPOINT,),
    groups: tuple[SiteGroup, ...] = (),
    downtimes: tuple[Downtime, ...] = (),
    profile: Profile = PROFILE,
    until: datetime | None = None,
) -> DayReport:
    world = World(DAY, 1, endpoints, groups, downtimes, results)
    return day_report(world, profile, DAY, until)


def site_seconds(day: DayReport, site: str = "ALFA") -> dict[str, int]:
    return {
        status: seconds
        for status, seconds in day.figures("sites")[(site,)].seconds.items()
        if seconds
    }


def test_the_day_starts_missing_and_the_last_state_runs_to_midnight() -> None:
    day = report(result("OK", at(6)), result("CRITICAL", at(18)))

    figures = day.figures("sites")[("ALFA",)]

    assert site_seconds(day) == {"MISSING": 6 * 3600, "OK": 12 * 3600, "CRITICAL": 6 * 3600}
    assert figures.availability == Decimal("66.66667")  # 12 of 18 known hours
    assert figures.reliability == Decimal("66.66667")


def test_a_state_is_looked_up_in_the_previous_day_and_not_before() -> None:
    just_inside = report(result("OK", START - timedelta(days=1)))
    just_outside = report(result("OK", START - timedelta(days=1, seconds=1)))

    assert site_seconds(just_inside) == {"OK": DAY_S}
    assert site_seconds(just_outside) == {"MISSING": DAY_S}


def test_a_result_at_midnight_belongs_to_the_new_day() -> None:
    day = report(result("OK", START), result("CRITICAL", START + timedelta(days=1)))

    assert site_seconds(day) == {"OK": DAY_S}


def test_of_two_results_of_one_moment_the_worse_counts_in_either_order() -> None:
    good, bad = result("OK", at(1)), result("UNKNOWN", at(1))

    assert site_seconds(report(good, bad)) == site_seconds(report(bad, good))
    assert site_seconds(report(good, bad))["UNKNOWN"] == 23 * 3600


def test_arrival_order_changes_nothing() -> None:
    results = [result("OK", at(1)), result("CRITICAL", at(2)), result("OK", at(3))]

    assert report(*results) == report(*reversed(results))


def test_only_results_of_the_profiles_vo_count() -> None:
    profile = replace(PROFILE, vo="ops")

    day = report(
        result("OK", START, vo="ops"), result("CRITICAL", at(1), vo="other"), profile=profile
    )

    assert site_seconds(day) == {"OK": DAY_S}


def test_endpoints_of_another_vo_are_not_expected() -> None:
    foreign = Endpoint("BETA", "ce01.beta", "CE", LONG_AGO, vo="other")

    day = report(endpoints=(ENDPOINT, foreign), profile=replace(PROFILE, vo="ops"))

    assert set(day.endpoints) == {("ALFA", "CE", "ce01.alfa")}


def test_topology_is_that_of_the_days_first_moment() -> None:
    begins_now = Endpoint("A", "h", "CE", START)
    begins_later = Endpoint("B", "h", "CE", START + timedelta(seconds=1))
    ends_now = Endpoint("C", "h", "CE", LONG_AGO, START)
    ends_later = Endpoint("D", "h", "CE", LONG_AGO, START + timedelta(seconds=1))

    day = report(endpoints=(begins_now, begins_later, ends_now, ends_later))

    assert {site for site, _, _ in day.endpoints} == {"A", "D"}


@pytest.mark.parametrize("changes", [{"monitored": "N"}, {"production": "N"}])
def test_what_nobody_monitors_is_not_expected(changes: dict[str, Any]) -> None:
    day = report(endpoints=(replace(ENDPOINT, **changes),))

    assert day.endpoints == {}


def test_a_downtime_overwrites_every_state_and_spares_reliability() -> None:
    downtime = Downtime("1", at(6), at(12), LONG_AGO, site="ALFA")

    day = report(result("CRITICAL", START), result("OK", at(9)), downtimes=(downtime,))
    figures = day.figures("sites")[("ALFA",)]

    assert site_seconds(day) == {"CRITICAL": 6 * 3600, "DOWNTIME": 6 * 3600, "OK": 12 * 3600}
    assert figures.availability == Decimal("50.00000")  # 12 of 24 hours
    assert figures.reliability == Decimal("66.66667")  # 12 of 18 hours
    assert day.timelines("metrics")[("ALFA", "CE", "ce01.alfa", "ping")][0].status == "CRITICAL"


def test_a_downtime_of_another_kind_changes_nothing() -> None:
    downtime = Downtime("1", at(6), at(12), LONG_AGO, site="ALFA", severity="WARNING")

    assert site_seconds(report(result("OK", START), downtimes=(downtime,))) == {"OK": DAY_S}


def test_the_newest_announcement_of_a_downtime_counts() -> None:
    first = Downtime("1", at(6), at(12), at(1), site="ALFA")
    shorter = replace(first, end=at(7), announced_at=at(2))
    cancelled = replace(first, end=first.start, announced_at=at(3))
    steady = result("OK", START)

    assert site_seconds(report(steady, downtimes=(shorter, first)))["DOWNTIME"] == 3600
    assert site_seconds(report(steady, downtimes=(cancelled, first, shorter))) == {"OK": DAY_S}


def test_a_downtime_names_a_site_a_host_or_a_flavour() -> None:
    other = Endpoint("ALFA", "ce02.alfa", "CE", LONG_AGO)
    downtime = Downtime("1", at(0), at(1), LONG_AGO, host="ce02.alfa")

    day = report(endpoints=(ENDPOINT, other), downtimes=(downtime,))
    seconds = {key[2]: figures.seconds for key, figures in day.figures("endpoints").items()}

    assert seconds["ce01.alfa"]["DOWNTIME"] == 0
    assert seconds["ce02.alfa"]["DOWNTIME"] == 3600


def test_one_good_endpoint_is_enough_for_a_service() -> None:
    other = Endpoint("ALFA", "ce02.alfa", "CE", LONG_AGO)

    day = report(
        result("CRITICAL", START), result("OK", at(1), host=other.host), endpoints=(ENDPOINT, other)
    )

    assert site_seconds(day) == {"CRITICAL": 3600, "OK": 23 * 3600}


def test_a_site_needs_all_its_functions() -> None:
    storage = Endpoint("ALFA", "se01.alfa", "SRM", LONG_AGO)
    put = result("CRITICAL", at(12), host=storage.host, flavour="SRM", metric="put")

    day = report(result("OK", START), put, endpoints=(ENDPOINT, storage))

    assert site_seconds(day) == {"MISSING": 12 * 3600, "CRITICAL": 12 * 3600}


def test_flavours_of_one_function_stand_in_for_each_other() -> None:
    profile = Profile(
        name="p",
        flavours={"CE": Flavour(("ping",)), "ARC-CE": Flavour(("ping",))},
        functions={"compute": Function(("CE", "ARC-CE"))},
    )
    arc = Endpoint("ALFA", "arc01.alfa", "ARC-CE", LONG_AGO)

    day = report(
        result("CRITICAL", START),
        result("WARNING", START, host=arc.host, flavour="ARC-CE"),
        endpoints=(ENDPOINT, arc),
        profile=profile,
    )

    assert site_seconds(day) == {"WARNING": DAY_S}
    assert set(day.functions) == {("ALFA", "compute")}


def test_a_day_without_any_known_second_has_no_figure() -> None:
    figures = report().figures("sites")[("ALFA",)]

    assert figures.availability is None
    assert figures.reliability is None


def test_a_day_wholly_in_downtime_is_not_available_and_has_no_reliability() -> None:
    downtime = Downtime("1", START, START + timedelta(days=1), LONG_AGO, site="ALFA")

    figures = report(downtimes=(downtime,)).figures("sites")[("ALFA",)]

    assert figures.availability == Decimal(0)
    assert figures.reliability is None


def test_an_open_day_ends_at_the_time_of_the_run() -> None:
    day = report(result("OK", at(1)), until=at(3))

    assert site_seconds(day) == {"MISSING": 3600, "OK": 2 * 3600}
    assert day.timelines("sites")[("ALFA",)][-1].end == at(3)


def test_segments_touch_and_no_neighbours_are_equal() -> None:
    results = [result("OK", at(1)), result("OK", at(2)), result("CRITICAL", at(3))]

    assert report(*results).timelines("sites")[("ALFA",)] == (
        Segment(at(0), at(1), "MISSING"),
        Segment(at(1), at(3), "OK"),
        Segment(at(3), at(24), "CRITICAL"),
    )


def test_a_group_is_the_weighted_mean_of_the_sites_that_have_a_value() -> None:
    endpoints = tuple(replace(ENDPOINT, site=site, host=site) for site in ("A", "B", "C"))
    groups = (
        SiteGroup("A", "federation", "F", LONG_AGO, weight=2),
        SiteGroup("B", "federation", "F", LONG_AGO),
        SiteGroup("C", "federation", "F", LONG_AGO, weight=100),
    )
    half = result("CRITICAL", at(12), host="A")

    day = report(
        result("OK", START, host="A"),
        half,
        result("OK", START, host="B"),
        endpoints=endpoints,
        groups=groups,
    )
    federation = day.groups["federation", "F"]

    assert federation.availability == Decimal("62.50000")  # (3 * 50 + 1 * 100) / 4
    assert (federation.sites_expected, federation.sites_known) == (3, 2)


def test_figures_are_rounded_half_up() -> None:
    assert rounded(Fraction(125, 1_000_000)) == Decimal("0.00013")  # half to even says 0.00012
    assert rounded(Fraction(100, 3)) == Decimal("33.33333")


def test_a_period_sums_the_seconds_and_then_divides() -> None:
    full = report(result("OK", START)).figures("sites")[("ALFA",)]
    short = report(result("CRITICAL", at(23))).figures("sites")[("ALFA",)]

    assert period([full, short]).availability == Decimal("96.00000")  # 24 of 25 known hours


@pytest.mark.parametrize(
    ("operation", "children", "expected"),
    [
        ("AND", ("OK", "WARNING"), "WARNING"),
        ("AND", ("WARNING", "UNKNOWN"), "UNKNOWN"),
        ("AND", ("UNKNOWN", "MISSING"), "MISSING"),
        ("AND", ("MISSING", "DOWNTIME"), "DOWNTIME"),
        ("AND", ("DOWNTIME", "CRITICAL"), "CRITICAL"),
        ("OR", ("CRITICAL", "OK"), "OK"),
        ("OR", ("CRITICAL", "WARNING"), "WARNING"),
        ("OR", ("CRITICAL", "UNKNOWN"), "CRITICAL"),
        ("OR", ("UNKNOWN", "DOWNTIME"), "UNKNOWN"),
        ("OR", ("DOWNTIME", "MISSING"), "DOWNTIME"),
    ],
)
def test_folds_follow_the_truth_tables(
    operation: str, children: tuple[str, str], expected: str
) -> None:
    states = [bytes([AND.index(child)]) for child in children]

    assert AND[fold(operation, states)[0]] == expected
    assert AND[fold(operation, states[::-1])[0]] == expected


def test_both_operations_rank_the_same_statuses() -> None:
    assert sorted(AND) == sorted(OR)
