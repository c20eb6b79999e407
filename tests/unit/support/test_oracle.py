"""Checks the oracle against figures calculated by hand, since it judges the reports."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from tests.oracle.oracle import (
    AND,
    CODE,
    DAY_S,
    OR,
    STATUS_OF,
    DayReport,
    Segment,
    Table,
    Trend,
    day_report,
    fold,
    is_outside,
    judged,
    period,
    ranked,
    rounded,
    trend,
)
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
)

DAY = date(2026, 11, 10)
START = datetime(2026, 11, 10, tzinfo=UTC)
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
ENDPOINT = Endpoint("ALFA", "ce01.alfa", "CE", LONG_AGO)
PROFILE = Profile(name="p", flavours={"CE": Flavour(("ping",)), "SRM": Flavour(("put",))})


def at(hour: int, minute: int = 0, second: int = 0) -> datetime:
    return START + timedelta(hours=hour, minutes=minute, seconds=second)


def result(status: str, when: datetime, host: str = "ce01.alfa", **changes: Any) -> Result:
    default = Result(host=host, flavour="CE", metric="ping", status=status, measured_at=when)
    return replace(default, **changes)


def report(
    *results: Result,
    endpoints: tuple[Endpoint, ...] = (ENDPOINT,),
    groups: tuple[SiteGroup, ...] = (),
    downtimes: tuple[Downtime, ...] = (),
    exclusions: tuple[Exclusion, ...] = (),
    profile: Profile = PROFILE,
    until: datetime | None = None,
) -> DayReport:
    world = World(DAY, 1, endpoints, groups, downtimes, results, exclusions)
    return day_report(world, profile, DAY, until)


def folded(operation: Table, *children: str) -> str:
    return STATUS_OF[fold(operation, [bytes([CODE[child]]) for child in children])[0]]


def site_seconds(day: DayReport, site: str = "ALFA") -> dict[str, int]:
    return {
        status: seconds
        for status, seconds in day.figures("sites")[(site,)].seconds.items()
        if seconds
    }


def spans(day: DayReport, site: str = "ALFA") -> list[tuple[float, float, str]]:
    """The site's timeline in hours."""
    hour = timedelta(hours=1)
    return [
        ((segment.start - START) / hour, (segment.end - START) / hour, segment.status)
        for segment in day.timelines("sites")[(site,)]
    ]


def test_the_day_starts_missing_and_the_last_state_runs_to_midnight() -> None:
    day = report(result("OK", at(6)), result("CRITICAL", at(18)))

    figures = day.figures("sites")[("ALFA",)]

    assert site_seconds(day) == {"MISSING": 6 * 3600, "OK": 12 * 3600, "CRITICAL": 6 * 3600}
    assert figures.availability == Decimal("66.66667")  # 12 of 18 known hours
    assert figures.reliability == Decimal("66.66667")


def test_the_state_at_midnight_comes_from_the_previous_day_at_most() -> None:
    just_inside = report(result("OK", START - timedelta(days=1)))
    just_outside = report(result("OK", START - timedelta(days=1, seconds=1)))

    assert site_seconds(just_inside) == {"OK": DAY_S}
    assert site_seconds(just_outside) == {"MISSING": DAY_S}


def test_a_result_at_midnight_belongs_to_the_new_day() -> None:
    day = report(result("OK", START), result("CRITICAL", START + timedelta(days=1)))

    assert site_seconds(day) == {"OK": DAY_S}


def test_the_worse_of_two_simultaneous_results_counts_in_either_order() -> None:
    ok, unknown = result("OK", at(1)), result("UNKNOWN", at(1))

    assert site_seconds(report(ok, unknown)) == site_seconds(report(unknown, ok))
    assert site_seconds(report(ok, unknown))["UNKNOWN"] == 23 * 3600


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


def test_the_topology_of_a_day_is_that_of_its_first_moment() -> None:
    begins_now = Endpoint("A", "h", "CE", START)
    begins_later = Endpoint("B", "h", "CE", START + timedelta(seconds=1))
    ends_now = Endpoint("C", "h", "CE", LONG_AGO, START)
    ends_later = Endpoint("D", "h", "CE", LONG_AGO, START + timedelta(seconds=1))

    day = report(endpoints=(begins_now, begins_later, ends_now, ends_later))

    assert {site for site, _, _ in day.endpoints} == {"A", "D"}


@pytest.mark.parametrize("changes", [{"monitored": "N"}, {"production": "N"}])
def test_unmonitored_endpoints_are_not_expected(changes: dict[str, Any]) -> None:
    day = report(endpoints=(replace(ENDPOINT, **changes),))

    assert day.endpoints == {}


def test_a_downtime_overrides_every_state_and_does_not_affect_reliability() -> None:
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


def test_a_downtime_covers_a_site_a_host_or_a_flavour() -> None:
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


def test_a_result_counts_until_its_validity_ends_and_not_a_second_longer() -> None:
    profile = replace(PROFILE, validity_s=3600)
    last = [(4, 5, "OK"), (5, 24, "MISSING")]

    day = report(result("OK", at(1)), result("OK", at(2)), result("OK", at(4)), profile=profile)

    assert spans(day) == [(0, 1, "MISSING"), (1, 3, "OK"), (3, 4, "MISSING"), *last]


def test_validity_continues_past_midnight_and_may_end_at_midnight() -> None:
    late = result("OK", START - timedelta(hours=1))

    runs_on = report(late, profile=replace(PROFILE, validity_s=3601))
    ends = report(late, profile=replace(PROFILE, validity_s=3600))

    assert site_seconds(runs_on) == {"OK": 1, "MISSING": DAY_S - 1}
    assert site_seconds(ends) == {"MISSING": DAY_S}


def test_the_validity_of_a_metric_overrides_that_of_the_profile() -> None:
    longer = replace(PROFILE, validity_s=1, validity_of={"ping": 7200})
    off = replace(PROFILE, validity_s=1, validity_of={"ping": None})
    other = replace(PROFILE, validity_s=None, validity_of={"put": 1})

    assert site_seconds(report(result("OK", START), profile=longer))["OK"] == 7200
    assert site_seconds(report(result("OK", START), profile=off)) == {"OK": DAY_S}
    assert site_seconds(report(result("OK", START), profile=other)) == {"OK": DAY_S}


def test_an_expired_result_is_not_replaced_by_an_older_one() -> None:
    """Rule 3 considers only the newest result, even if an older one would still be valid."""
    profile = replace(PROFILE, validity_s=3600)
    older, newer = result("OK", at(0, 30)), result("CRITICAL", at(0, 40))

    assert spans(report(older, newer, profile=profile))[-1] == (5 / 3, 24, "MISSING")


@pytest.mark.parametrize(
    ("limits", "alerting", "quiet"),
    [
        ("10", [-1, 11], [0, 5, 10]),
        ("10:", [9], [10, 1000]),
        ("~:10", [11], [10, -1000]),
        ("10:20", [9, 21], [10, 20]),
        ("@10:20", [10, 15, 20], [9, 21]),
        ("@10", [0, 10], [-1, 11]),
        ("-2.5:2.5", [-3, 3], [-2, 2]),
    ],
)
def test_a_range_triggers_outside_its_bounds(
    limits: str, alerting: list[int], quiet: list[int]
) -> None:
    """As the plugin guidelines define it; ARGO does the opposite."""
    assert all(is_outside(limits, Fraction(value)) for value in alerting)
    assert not any(is_outside(limits, Fraction(value)) for value in quiet)


SLOW = Threshold("ping", "time", warning="30", critical="60")


@pytest.mark.parametrize(
    ("status", "performance_data", "judgement"),
    [
        ("OK", "time=30s;30;60;0", "OK"),
        ("OK", "time=30.001s", "WARNING"),
        ("OK", "size=99 time=61", "CRITICAL"),
        ("CRITICAL", "time=31", "WARNING"),  # the level replaces a worse status, too
        ("CRITICAL", "time=5", "CRITICAL"),
        ("UNKNOWN", "", "UNKNOWN"),
        ("OK", "uptime=99", "OK"),
        ("OK", "time=U", "OK"),
        ("OK", "'time'=99ms", "CRITICAL"),
    ],
)
def test_a_threshold_replaces_the_status_where_it_triggers(
    status: str, performance_data: str, judgement: str
) -> None:
    measured = result(status, START, performance_data=performance_data)

    assert judged(measured, replace(PROFILE, thresholds=(SLOW,))) == judgement


@pytest.mark.parametrize(
    ("rules", "judgement"),
    [
        ([SLOW], "CRITICAL"),
        ([replace(SLOW, flavour="CE", critical="80", warning="50")], "WARNING"),
        ([SLOW, replace(SLOW, flavour="CE", critical="80", warning="50")], "WARNING"),
        ([replace(SLOW, flavour="CE", critical="80", warning="75"), SLOW], "OK"),
        ([replace(SLOW, flavour="SRM", critical="80", warning="75"), SLOW], "CRITICAL"),
        ([replace(SLOW, metric="put")], "OK"),
        (
            [
                replace(SLOW, host="ce01.alfa", critical="~:100", warning="~:50"),
                replace(SLOW, flavour="CE", critical="20"),
            ],
            "WARNING",
        ),
        (
            [
                replace(SLOW, host="ce01.alfa", critical="20"),
                replace(SLOW, host="ce01.alfa", flavour="CE", critical="", warning=""),
            ],
            "OK",
        ),
    ],
)
def test_the_most_specific_of_several_thresholds_applies(
    rules: list[Threshold], judgement: str
) -> None:
    measured = result("OK", START, performance_data="time=70")

    assert judged(measured, replace(PROFILE, thresholds=tuple(rules))) == judgement


def test_thresholds_apply_before_the_worse_of_simultaneous_results_is_chosen() -> None:
    critical = result("CRITICAL", START, gathered_at="wn1", performance_data="time=31")
    ok = result("OK", START, gathered_at="wn2", performance_data="time=1")

    day = report(critical, ok, profile=replace(PROFILE, thresholds=(SLOW,)))

    assert site_seconds(day) == {"WARNING": DAY_S}


def test_the_worse_of_two_copies_of_a_result_is_judged_as_a_whole() -> None:
    critical = result("CRITICAL", START, performance_data="time=31")
    slow = result("OK", START, performance_data="time=99")

    for results in ((critical, slow), (slow, critical)):
        day = report(*results, profile=replace(PROFILE, thresholds=(SLOW,)))
        assert site_seconds(day) == {"WARNING": DAY_S}


def test_results_of_an_excluded_monitoring_host_are_ignored_including_both_ends() -> None:
    exclusion = Exclusion("monitoring-host", at(6), at(12), monitoring_host="bad.mon")
    results = [result("CRITICAL", at(hour), monitoring_host="bad.mon") for hour in (6, 12)]
    trusted = [result("OK", START), result("WARNING", at(9), monitoring_host="good.mon")]
    later = result("CRITICAL", at(12, 0, 1), monitoring_host="bad.mon")

    day = report(*results, *trusted, later, exclusions=(exclusion,))

    assert spans(day)[:2] == [(0, 9, "OK"), (9, 12 + 1 / 3600, "WARNING")]


def test_excluding_one_monitoring_host_leaves_what_another_measured_at_the_same_time() -> None:
    exclusion = Exclusion("monitoring-host", at(6), at(12), monitoring_host="bad.mon")
    worse = result("CRITICAL", at(6), monitoring_host="bad.mon")
    copy = result("WARNING", at(6), monitoring_host="good.mon")

    assert spans(report(worse, copy))[-1] == (6, 24, "CRITICAL")
    assert spans(report(worse, copy, exclusions=(exclusion,)))[-1] == (6, 24, "WARNING")


def test_results_of_an_excluded_monitoring_host_are_ignored_on_the_previous_day_too() -> None:
    """An older result of another host is then the newest (older ARGO versions: MISSING)."""
    start = START - timedelta(hours=5)
    exclusion = Exclusion("monitoring-host", start, at(12), monitoring_host="bad.mon")
    newest = result("CRITICAL", START - timedelta(hours=1), monitoring_host="bad.mon")
    older = result("OK", START - timedelta(hours=9), monitoring_host="good.mon")

    assert site_seconds(report(newest, older, exclusions=(exclusion,))) == {"OK": DAY_S}


def test_an_instance_whose_results_are_all_excluded_is_missing() -> None:
    exclusion = Exclusion("monitoring-host", START, at(24), monitoring_host="bad.mon")
    only = result("OK", at(3), monitoring_host="bad.mon")

    assert site_seconds(report(only, exclusions=(exclusion,))) == {"MISSING": DAY_S}


TWO_METRICS = replace(PROFILE, flavours={"CE": Flavour(("ping", "submit"))})


def test_an_excluded_metric_is_skipped_by_the_fold() -> None:
    exclusion = Exclusion("metric", at(6), at(12), metric="ping", site="ALFA")
    results = [result("CRITICAL", START), result("OK", START, metric="submit")]

    day = report(*results, exclusions=(exclusion,), profile=TWO_METRICS)

    assert spans(day) == [(0, 6, "CRITICAL"), (6, 12, "OK"), (12, 24, "CRITICAL")]
    assert day.timelines("metrics")["ALFA", "CE", "ce01.alfa", "ping"][1] == Segment(
        at(6), at(12), "EXCLUDED"
    )


def test_a_fully_excluded_period_has_no_known_time() -> None:
    """ARGO counts it as down: 50 and 50 where this is 100 and 100."""
    exclusion = Exclusion("metric", START, at(12), metric="ping")

    day = report(result("OK", START), exclusions=(exclusion,))
    figures = day.figures("sites")[("ALFA",)]

    assert site_seconds(day) == {"EXCLUDED": 12 * 3600, "OK": 12 * 3600}
    assert (figures.availability, figures.reliability) == (Decimal(100), Decimal(100))


def test_a_downtime_covers_an_excluded_endpoint() -> None:
    exclusion = Exclusion("metric", START, at(24), host="ce01.alfa")
    downtime = Downtime("1", at(6), at(12), LONG_AGO, site="ALFA")

    day = report(result("OK", START), exclusions=(exclusion,), downtimes=(downtime,))

    assert site_seconds(day) == {"EXCLUDED": 18 * 3600, "DOWNTIME": 6 * 3600}


@pytest.mark.parametrize(
    "selectors",
    [{"metric": "put"}, {"site": "BETA"}, {"flavour": "SRM"}, {"host": "ce02.alfa"}],
)
def test_an_exclusion_of_another_metric_changes_nothing(selectors: dict[str, str]) -> None:
    exclusion = Exclusion("metric", START, at(24), **selectors)

    assert site_seconds(report(result("OK", START), exclusions=(exclusion,))) == {"OK": DAY_S}


def test_an_excluded_group_is_unknown_while_its_services_keep_their_states() -> None:
    exclusion = Exclusion("group", at(6), at(18), site="ALFA")
    downtime = Downtime("1", at(12), at(15), LONG_AGO, site="ALFA")
    groups = (SiteGroup("ALFA", "federation", "F", LONG_AGO),)
    broken = result("CRITICAL", at(12))

    day = report(
        result("OK", START),
        broken,
        groups=groups,
        downtimes=(downtime,),
        exclusions=(exclusion,),
    )

    assert site_seconds(day) == {"OK": 6 * 3600, "UNKNOWN": 12 * 3600, "CRITICAL": 6 * 3600}
    assert day.figures("functions")["ALFA", "CE"].seconds["UNKNOWN"] == 0
    assert day.figures("services")["ALFA", "CE"].seconds["DOWNTIME"] == 3 * 3600
    assert day.groups["federation", "F"].availability == Decimal(50)


# Any two different states make UNKNOWN, which is neither of the two.
DISAGREE = tuple((a, b, a if a == b else "UNKNOWN") for a in AND for b in AND if a <= b)


def test_a_custom_operation_may_return_a_status_that_no_child_has() -> None:
    assert folded(DISAGREE, "OK", "CRITICAL") == "UNKNOWN"
    assert folded(DISAGREE, "CRITICAL", "OK", "CRITICAL") == "UNKNOWN"
    assert folded(DISAGREE, "CRITICAL", "CRITICAL") == "CRITICAL"
    assert folded(DISAGREE, "CRITICAL", "EXCLUDED") == "CRITICAL"
    assert folded(DISAGREE, "EXCLUDED", "EXCLUDED") == "EXCLUDED"


def test_a_custom_operation_works_in_every_fold() -> None:
    other = Endpoint("ALFA", "ce02.alfa", "CE", LONG_AGO)
    profile = replace(
        PROFILE,
        flavours={"CE": Flavour(("ping",), endpoints_operation="DISAGREE")},
        operations={"DISAGREE": DISAGREE},
    )

    day = report(
        result("OK", START),
        result("WARNING", START, host=other.host),
        endpoints=(ENDPOINT, other),
        profile=profile,
    )

    assert site_seconds(day) == {"UNKNOWN": DAY_S}


def test_a_flavour_may_take_part_in_several_functions_or_in_none() -> None:
    profile = Profile(
        name="p",
        flavours={name: Flavour(("ping",)) for name in ("CE", "ARC", "SRM")},
        functions={"compute": Function(("CE", "ARC")), "all": Function(("ARC",))},
    )
    endpoints = [Endpoint("ALFA", f"{name}.alfa", name, LONG_AGO) for name in profile.flavours]
    results = [
        result(status, START, host=row.host, flavour=row.flavour)
        for row, status in zip(endpoints, ("OK", "WARNING", "CRITICAL"), strict=True)
    ]

    day = report(*results, endpoints=tuple(endpoints), profile=profile)

    assert {key[1]: segments[0].status for key, segments in day.timelines("functions").items()} == {
        "compute": "OK",
        "all": "WARNING",
    }
    assert {key[1] for key in day.services} == {"CE", "ARC", "SRM"}
    assert site_seconds(day) == {"WARNING": DAY_S}


def test_a_site_whose_flavours_serve_no_function_is_not_reported() -> None:
    profile = replace(PROFILE, functions={"storage": Function(("SRM",))})

    day = report(result("OK", START), profile=profile)

    assert (set(day.services), day.functions, day.sites) == ({("ALFA", "CE")}, {}, {})


def test_only_results_of_the_profiles_fqan_count() -> None:
    profile = replace(PROFILE, fqan="/ops/Role=pilot")
    pilot = result("OK", START, fqan="/ops/Role=pilot")

    day = report(pilot, result("CRITICAL", at(1)), profile=profile)

    assert site_seconds(day) == {"OK": DAY_S}


def test_a_profile_for_results_without_a_vo_ignores_results_with_one() -> None:
    of_a_vo = Endpoint("BETA", "ce01.beta", "CE", LONG_AGO, vo="ops")

    day = report(
        result("OK", START, vo=""),
        result("CRITICAL", at(1), vo="ops"),
        endpoints=(ENDPOINT, of_a_vo),
        profile=replace(PROFILE, vo=""),
    )

    assert site_seconds(day) == {"OK": DAY_S}
    assert set(day.sites) == {("ALFA",)}


def test_a_profile_without_a_vo_expects_the_endpoints_of_all_vos() -> None:
    of_a_vo = Endpoint("BETA", "ce01.beta", "CE", LONG_AGO, vo="ops")

    assert set(report(endpoints=(ENDPOINT, of_a_vo)).sites) == {("ALFA",), ("BETA",)}


def test_an_endpoint_of_two_sites_counts_in_both_and_a_downtime_only_at_its_own_site() -> None:
    twin = replace(ENDPOINT, site="BETA")
    downtime = Downtime("1", at(0), at(24), LONG_AGO, site="BETA")

    day = report(result("OK", START), endpoints=(ENDPOINT, twin), downtimes=(downtime,))

    assert site_seconds(day, "ALFA") == {"OK": DAY_S}
    assert site_seconds(day, "BETA") == {"DOWNTIME": DAY_S}


def test_trends_count_the_changes_of_the_merged_segments() -> None:
    flapping = [result("OK", START), result("CRITICAL", at(3)), result("CRITICAL", at(4))]
    steady = report(result("OK", START))

    [site] = report(*flapping, result("OK", at(5))).timelines("sites").values()

    assert trend(site) == Trend(2, at(3), at(5))
    assert trend(steady.timelines("sites")["ALFA",]) == Trend(0, None, None)


def test_a_change_at_midnight_is_not_counted() -> None:
    before, midnight_one = result("OK", START - timedelta(hours=1)), result("CRITICAL", START)

    [site] = report(before, midnight_one).timelines("sites").values()

    assert trend(site).changes == 0


def test_known_defects_of_argo_are_not_reproduced() -> None:
    """The exact figures of cases where ARGO's engines are known to be wrong."""
    first, second = (
        Downtime(name, at(start), at(end), LONG_AGO, site="ALFA")
        for name, start, end in (("1", 8, 12), ("2", 14, 15))
    )
    yesterday = Downtime("3", START - timedelta(hours=4), START, LONG_AGO, site="ALFA")
    morning = Downtime("4", at(10), at(11), LONG_AGO, site="ALFA")

    # Rows of the first minutes are not lost.
    assert site_seconds(report(result("OK", at(0, 2, 29))))["OK"] == DAY_S - 149
    # All downtimes count, and each ends when it ends.
    steady = report(result("OK", START), downtimes=(first, second))
    assert site_seconds(steady)["DOWNTIME"] == 5 * 3600
    # A downtime that ends at midnight leaves the next day alone.
    assert site_seconds(report(result("OK", START), downtimes=(yesterday,))) == {"OK": DAY_S}
    # A recovery at the second at which a downtime ends is seen.
    recovered = report(
        result("OK", START),
        result("CRITICAL", at(10, 30)),
        result("OK", at(11)),
        downtimes=(morning,),
    )
    assert recovered.figures("sites")["ALFA",].availability == Decimal("95.83333")
    # An instance with a state of yesterday only is still there.
    assert site_seconds(report(result("WARNING", START - timedelta(hours=2)))) == {"WARNING": DAY_S}


def test_unknown_and_downtime_all_day_leave_no_reliability() -> None:
    """264 and 24 of 288 slots: there a residue of floats made it 0.0, elsewhere -1."""
    downtime = Downtime("1", at(22), at(24), LONG_AGO, site="ALFA")

    figures = report(result("UNKNOWN", START), downtimes=(downtime,)).figures("sites")["ALFA",]

    assert (figures.availability, figures.reliability) == (Decimal(0), None)


@pytest.mark.parametrize(
    ("state", "availability", "reliability"),
    [("CRITICAL", "50", "100"), ("OK", "50", "100")],
)
def test_failures_during_a_downtime_affect_availability_only(
    state: str, availability: str, reliability: str
) -> None:
    downtime = Downtime("1", at(12), at(24), LONG_AGO, site="ALFA")

    day = report(result("OK", START), result(state, at(12)), downtimes=(downtime,))
    figures = day.figures("sites")["ALFA",]

    assert figures.availability == Decimal(availability)
    assert figures.reliability == Decimal(reliability)


def test_with_one_of_two_metrics_missing_only_a_failure_is_known() -> None:
    silent = report(result("OK", START), profile=TWO_METRICS).figures("sites")["ALFA",]
    failing = report(result("OK", START), result("CRITICAL", at(23)), profile=TWO_METRICS)

    assert silent.availability is None
    assert failing.figures("sites")["ALFA",].availability == Decimal(0)


def test_a_period_is_not_the_mean_of_its_days() -> None:
    """Day one: 50 % of 24 known hours; day two: 100 % of 12. The mean of the days would be 75."""
    half = report(result("OK", START), result("CRITICAL", at(12))).figures("sites")["ALFA",]
    short = report(result("OK", at(12))).figures("sites")["ALFA",]

    assert (half.availability, short.availability) == (Decimal(50), Decimal(100))
    assert period([half, short]).availability == Decimal("66.66667")  # 24 of 36 hours


def test_a_site_of_weight_zero_still_counts_a_little() -> None:
    endpoints = tuple(replace(ENDPOINT, site=site, host=site) for site in ("A", "B"))
    groups = (
        SiteGroup("A", "federation", "F", LONG_AGO, weight=99),
        SiteGroup("B", "federation", "F", LONG_AGO, weight=0),
    )

    day = report(
        result("OK", START, host="A"),
        result("CRITICAL", START, host="B"),
        endpoints=endpoints,
        groups=groups,
    )

    assert day.groups["federation", "F"].availability == Decimal("99.00990")  # 100 to 1


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


def test_adjacent_segments_touch_and_differ() -> None:
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
    table = ranked({"AND": AND, "OR": OR}[operation])

    assert folded(table, *children) == expected
    assert folded(table, *reversed(children)) == expected


def test_both_operations_rank_the_same_statuses() -> None:
    assert sorted(AND) == sorted(OR)
