"""Incidents: their begin and end, their figures, and causes that sites share."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from sam_pipeline.spark_jobs.explain.causes import Cause, Failure
from sam_pipeline.spark_jobs.explain.incidents import (
    Incident,
    figures_of,
    find_incidents,
    shared_causes,
    with_causes,
)
from sam_pipeline.spark_jobs.rules.days import DAY_S, moment
from sam_pipeline.spark_jobs.rules.levels import SITE
from sam_pipeline.spark_jobs.runs.published import Segment
from tests.support.reports.site_day import at

HOUR = 3600
START = at("00:00")


def segments(*stretches: str) -> list[Segment]:
    """Segments of site A; hours after 24 are of the next day."""
    found = []
    for stretch in stretches:
        times, status = stretch.split()
        start, end = (START + int(hour) * HOUR for hour in times.split("-"))
        found.append(Segment(moment(start).date(), SITE, ("A",), start, end, status))
    return found


def incident(site: str, start: str, end: str, *failures: Failure) -> Incident:
    return with_causes(Incident(site, at(start), at(end), False, False), failures)


def failure(text: str, start: str, end: str, **more: object) -> Failure:
    of_cause = ("CE", "h1", "ping", "CRITICAL", at(start), text, "m-1")
    return Failure(*of_cause, until=at(end), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("stretches", "hours"),
    [
        ("0-6 OK, 6-24 CRITICAL, 24-30 CRITICAL, 30-48 OK", [(6, 30)]),  # it goes on over midnight
        *(
            (f"5-6 CRITICAL, 6-7 {status}, 7-9 CRITICAL, 9-24 OK", [(5, 9)])
            for status in ("UNKNOWN", "MISSING", "EXCLUDED")
        ),
        *(
            (f"5-6 CRITICAL, 6-7 {status}, 7-9 CRITICAL, 9-24 OK", [(5, 6), (7, 9)])
            for status in ("OK", "WARNING", "DOWNTIME")
        ),
        ("5-6 CRITICAL, 6-9 MISSING, 9-24 OK", [(5, 6)]),
        ("0-24 CRITICAL, 48-72 CRITICAL", [(0, 24), (48, 72)]),  # a day without figures ends it
    ],
)
def test_an_incident_lasts_until_its_last_critical_second_before_the_site_is_seen_up(
    stretches: str, hours: list[tuple[int, int]]
) -> None:
    incidents = find_incidents("A", segments(*stretches.split(", ")), START)

    assert [((i.start - START) // HOUR, (i.end - START) // HOUR) for i in incidents] == hours


def test_an_incident_is_open_until_the_site_was_seen_up() -> None:
    ends = ("8-24 CRITICAL", "8-24 MISSING", "8-24 OK", "8-24 DOWNTIME")
    found = [find_incidents("A", segments("0-7 OK", "7-8 CRITICAL", end), START) for end in ends]

    assert [one.is_open for [one] in found] == [True, True, False, False]


def test_incidents_that_reach_beyond_the_period_do_not_count_in_the_mean_time_to_repair() -> None:
    incidents = find_incidents(
        "A",
        segments("0-2 CRITICAL", "2-8 OK", "8-9 CRITICAL", "9-20 OK", "20-24 CRITICAL"),
        START,
    )
    figures = figures_of(incidents, 17 * HOUR)

    assert [one.began_before for one in incidents] == [True, False, False]
    assert (figures.number, figures.open, figures.mttr_s) == (3, 1, HOUR)
    assert (figures.longest_s, figures.total_s) == (4 * HOUR, 7 * HOUR)
    assert figures.mtbf_s == 17 * HOUR // 3
    nothing = figures_of([], 86_400)
    assert (nothing.number, nothing.mttr_s, nothing.mtbf_s) == (0, None, None)


def test_only_failures_that_cost_availability_during_an_incident_are_its_causes() -> None:
    found = incident(
        "A",
        "10:00",
        "12:00",
        failure("began before, held on", "08:00", "11:00"),
        failure("over before", "08:00", "10:00"),
        failure("after", "12:00", "13:00"),
        failure("made up for", "10:30", "11:00", costs=False),
    )

    assert [cause.text for cause in found.causes] == ["began before, held on"]
    # A failure that lasts over midnight is counted once.
    halves = failure("down", "~23:00", "00:00"), failure("down", "~23:00", "02:00")
    assert [cause.count for cause in incident("A", "~23:00", "02:00", *halves).causes] == [1]


MONTH_S = 31 * DAY_S


def begun(
    site: str, start: int, host: str = "nagios1", text: str = "HTTP 507", rounds: int = 1
) -> Incident:
    """An incident, and the failures of `rounds` rounds of an hourly probe."""
    names = ("CE", f"ce1.{site}", "submit", "CRITICAL")
    failures = [
        Failure(*names, second, text, "", until=second + HOUR, monitoring_host=host)
        for second in range(start, start + rounds * HOUR, HOUR)
    ]
    cause = Cause("CE", "submit", "CRITICAL", text, failures)
    return Incident(site, start, start + rounds * HOUR, False, False, [cause])


def independent(chance: random.Random, sites: int, at_minute_0: bool) -> list[Incident]:
    """Independent incidents with one message; of many sites, some have very many of them."""
    numbers = [0, 1, 2, 3, 5, 40] if sites > 100 else [0, 1]
    incidents = []
    for site in range(sites):
        for _ in range(chance.choice(numbers)):
            start = START + chance.randrange(MONTH_S)
            if at_minute_0:
                start += chance.randrange(120) - start % HOUR
            incidents.append(begun(f"S{site}", start))
    return incidents


def test_a_shared_cause_is_one_message_at_three_sites_within_one_interval_of_the_probe() -> None:
    def shared(*incidents: Incident) -> list[tuple[Sequence[str], Sequence[str]]]:
        return [(one.sites, one.monitoring_hosts) for one in shared_causes(incidents, MONTH_S)]

    together = [begun("A", START), begun("B", START + 1800, "m2"), begun("C", START + HOUR - 1)]

    assert shared(*together) == [(["A", "B", "C"], ["nagios1", "m2"])]
    assert shared(*together[:2]) == []
    assert shared(*together[:2], begun("B", START + 2000)) == []
    assert shared(*together[:2], begun("C", START + HOUR)) == []
    assert shared(*together[:2], begun("C", START, text="disk full")) == []
    assert shared(*together[:2], replace(together[2], began_before=True)) == []
    # The same message every hour of the month is nothing to look into when it comes three times.
    usual = [begun("D", START + hour * HOUR) for hour in range(744)]
    assert shared(*together, *usual) == []


@pytest.mark.parametrize("at_minute_0", [False, True])
@pytest.mark.parametrize("sites", [60, 1000])
def test_independent_failures_with_one_message_share_no_cause(
    sites: int, at_minute_0: bool
) -> None:
    for seed in range(5):
        world = independent(random.Random(seed), sites, at_minute_0)

        assert [one.sites for one in shared_causes(world, MONTH_S)] == []


def test_an_outage_behind_a_monitoring_host_comes_first_and_names_it() -> None:
    chance = random.Random(1)
    nine = START + 13 * DAY_S + 9 * HOUR
    behind = [f"S{number}" for number in range(20)]
    unreachable = [
        begun(site, nine + chance.randrange(HOUR), "nagios2", "Network is unreachable", rounds=3)
        for site in behind
    ]
    later = [begun(f"T{number}", nine + 5 * DAY_S + number, text="expired") for number in range(5)]

    first, second = shared_causes([*independent(chance, 1000, True), *later, *unreachable], MONTH_S)

    assert (first.text, first.sites) == ("Network is unreachable", sorted(behind))
    assert first.measured_by == "measured by nagios2"
    assert nine <= first.start < nine + HOUR and nine + 3 * HOUR <= first.end < nine + 4 * HOUR
    assert (second.text, len(second.sites)) == ("expired", 5)
