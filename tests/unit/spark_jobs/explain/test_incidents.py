"""Incidents: what begins and ends one, their figures, and causes that sites share."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sam_pipeline.spark_jobs.explain.causes import Failure
from sam_pipeline.spark_jobs.explain.incidents.figures import figures_of
from sam_pipeline.spark_jobs.explain.incidents.incident import (
    Incident,
    find_incidents,
    with_causes,
)
from sam_pipeline.spark_jobs.explain.incidents.shared_causes import shared_causes
from sam_pipeline.spark_jobs.rules.days import moment
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


def test_sites_whose_incidents_overlap_in_time_and_cause_share_it() -> None:
    def at_once(text: str, *incidents: str) -> Sequence[Incident]:
        times = (one.split() for one in incidents)
        return [incident(site, start, end, failure(text, start, end)) for site, start, end in times]

    [one] = shared_causes(
        [
            *at_once("no host ce1.a.org", "A 10:00 12:00", "D 14:00 15:00"),
            *at_once("no host ce7.b.org", "B 11:00 13:00"),
            *at_once("disk full", "C 11:00 13:00"),
        ]
    )
    chain = shared_causes(at_once("slow", "A 10:00 12:00", "B 11:00 14:00", "C 13:00 15:00"))

    assert (one.sites, one.start, one.end) == (["A", "B"], at("11:00"), at("12:00"))
    assert [shared.sites for shared in chain] == [["A", "B"]]  # those that failed at once
    assert shared_causes(at_once("slow", "A 10:00 11:00", "A 11:00 12:00")) == []
