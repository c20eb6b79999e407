"""The endpoints that are expected on a day, and the downtimes that cover them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.spark_jobs.inputs.announced import (
    MONITORING_HOST,
    Announced,
    Downtime,
    Exclusion,
    GroupMember,
    Membership,
)
from sam_pipeline.spark_jobs.inputs.expected import Cover, DayExpectation, expect
from sam_pipeline.spark_jobs.inputs.observed import percentile
from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start

DAY = date(2026, 11, 14)
START = day_start(DAY)
END = START + DAY_S
LATER = END + DAY_S


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    path = tmp_path / "profile.toml"
    path.write_text(
        'name = "x"\nvalidity_s = "off"\nvo = "ops"\n[flavours.CE]\nmetrics = ["a", "b"]\n'
    )
    return read_profile(path)


def membership(**changes: Any) -> Membership:
    plain = Membership("A", "CE", "h1", "", None, None, START, None)
    return dataclasses.replace(plain, **changes)


def downtime(**changes: Any) -> Downtime:
    times = (START + 100, START + 200)
    plain = Downtime("1", "", "h1", "CE", *times, "SCHEDULED", "OUTAGE", "")
    return dataclasses.replace(plain, **changes)


def expected_on(
    profile: Profile,
    memberships: Sequence[Membership],
    downtimes: Sequence[Downtime] = (),
    exclusions: Sequence[Exclusion] = (),
    members: Sequence[GroupMember] = (),
) -> DayExpectation:
    return expect(DAY, Announced(memberships, downtimes, exclusions, members), profile, LATER)


def endpoints(
    profile: Profile, *memberships: Membership, members: Sequence[GroupMember] = ()
) -> list[str]:
    expected = expected_on(profile, memberships, members=members)
    return [" ".join(endpoint) for endpoint in expected.endpoints]


def exclusion(kind: str, **changes: Any) -> Exclusion:
    plain = Exclusion(1, kind, "", "", "", "", "", START + 100, START + 200, "why", "who")
    return dataclasses.replace(plain, **changes)


MONITORED = {"valid_from": START - 100, "monitored": "Y"}


@pytest.mark.parametrize(
    ("announced", "expected"),
    [
        ([{"valid_to": START + 1}, {"host_name": "h2", "valid_from": START + 1}], "A CE h1"),
        ([{"valid_to": START}], ""),
        ([{"valid_from": START - 50, "monitored": "N"}, MONITORED], ""),  # the newest governs
        *(([{name: flag}], "") for name, flag in (("production", "N"), ("monitored", " False "))),
        *(([{"production": flag, "monitored": flag}], "A CE h1") for flag in (None, "true")),
        ([{"valid_to": START}, {"site": "B"}], "B CE h1"),  # it moves
        ([{"vo": "ops"}, {"vo": "physics", "host_name": "h2"}], "A CE h1"),
        # A newer row of another VO does not govern, nor that of a VO those of all.
        ([{"vo": "ops", "valid_from": START - 50}, {"vo": "physics", "monitored": "N"}], "A CE h1"),
        ([{"valid_from": START - 50}, {"vo": "ops", "monitored": "N"}], "A CE h1"),
        ([{"service_flavour": "SRM"}], ""),  # the profile does not name it
        ([{}, {"site": "B"}], "A CE h1, B CE h1"),
    ],
)
def test_endpoints_are_expected_as_the_newest_announcement_before_midnight_says(
    profile: Profile, announced: list[dict[str, Any]], expected: str
) -> None:
    rows = [membership(**changes) for changes in announced]

    assert ", ".join(endpoints(profile, *rows)) == expected


def test_without_a_vo_endpoints_of_all_vos_are_expected_with_each_metric(profile: Profile) -> None:
    members = [membership(vo="ops"), membership(vo="physics", host_name="h2")]
    any_vo = dataclasses.replace(profile, vo=None)

    assert endpoints(any_vo, *members) == ["A CE h1", "A CE h2"]
    assert expected_on(any_vo, members).instances(any_vo) == 4


@pytest.mark.parametrize(
    ("announced", "kinds", "covered"),
    [
        (-3600, "SCHEDULED/OUTAGE", [(100, 200)]),  # in time
        (-3590, "SCHEDULED/OUTAGE", [(110, 200)]),
        (-3590, "UNSCHEDULED/OUTAGE", [(100, 110)]),
        (500, "SCHEDULED/OUTAGE", []),  # when it was over
        (500, "UNSCHEDULED/OUTAGE", [(100, 200)]),
        (None, "SCHEDULED/OUTAGE", [(100, 200)]),
    ],
)
def test_a_downtime_is_scheduled_after_its_notice(
    profile: Profile, announced: int | None, kinds: str, covered: list[tuple[int, int]]
) -> None:
    """Announced that many seconds after midnight, with a notice of an hour and 100 seconds."""
    strict = dataclasses.replace(profile, notice_s=3700, downtimes=(kinds,))
    at = None if announced is None else START + announced

    day = expected_on(strict, [membership()], [downtime(announced=at)])

    assert [(cover.start - START, cover.end - START) for cover in day.covers] == covered


@pytest.mark.parametrize(
    ("named", "covered"),
    [
        ({"host_name": "h1", "service_flavour": ""}, [(100, 200)]),
        ({"host_name": "", "service_flavour": "", "site": "A"}, [(100, 200)]),
        *(({name: value}, []) for name, value in (("host_name", "h2"), ("severity", "WARNING"))),
        ({"start": START - 500, "end": END + 500}, [(0, DAY_S)]),  # it is cut to the day
        ({"start": START - 500, "end": START}, []),
    ],
)
def test_a_downtime_that_counts_covers_an_endpoint_a_host_or_a_site(
    profile: Profile, named: dict[str, Any], covered: list[tuple[int, int]]
) -> None:
    covers = expected_on(profile, [membership()], [downtime(**named)]).covers

    assert [(cover.start - START, cover.end - START) for cover in covers] == covered


# One grid site with two sites of the VO, one of which has another grid site as well.
NORTH = membership(site="North", grid_site="GRID-1")
SOUTH = membership(site="South", host_name="h2", grid_site="GRID-1")
SOUTH_ELSEWHERE = membership(site="South", host_name="h3", grid_site="GRID-2")


@pytest.mark.parametrize(
    ("site", "host", "covered"),
    [
        ("GRID-1", "", "North h1, South h2"),
        ("GRID-2", "", "South h3"),
        ("South", "", "South h2, South h3"),
        ("GRID-1", "h2", "South h2"),
        ("South", "h2", "South h2"),
        ("GRID-2", "h2", ""),
        ("North", "h2", ""),
        ("", "h2", "South h2"),
        ("GRID-3", "", ""),
    ],
)
def test_a_downtime_names_the_site_of_the_vo_or_the_grid_site(
    profile: Profile, site: str, host: str, covered: str
) -> None:
    announced = downtime(site=site, host_name=host, service_flavour="")

    day = expected_on(profile, [NORTH, SOUTH, SOUTH_ELSEWHERE], [announced])

    assert ", ".join(f"{cover.site} {cover.host_name}" for cover in day.covers) == covered
    # What explains the day later knows only names.
    assert covered == ", ".join(
        f"{names[0]} {names[2]}"
        for names in day.endpoints
        if any(found.covers(*names) for found in day.downtimes)
    )


def test_the_grid_sites_of_all_vos_that_count_are_known(profile: Profile) -> None:
    of_vos = [
        membership(vo="ops", grid_site="GRID-1"),
        membership(vo="physics", grid_site="GRID-2"),
        membership(vo="ops", grid_site="GRID-3", valid_from=START - 50),  # until the first
        membership(vo="tests", grid_site="GRID-4", monitored="N"),
    ]
    downtimes = [downtime(site=f"GRID-{number}", host_name="") for number in range(1, 5)]

    def applying(profile: Profile) -> list[str]:
        return [found.site for found in expected_on(profile, of_vos, downtimes).downtimes]

    assert applying(profile) == ["GRID-1"]
    assert applying(dataclasses.replace(profile, vo=None)) == ["GRID-1", "GRID-2"]


@pytest.mark.parametrize(
    ("sites", "groups", "expected"),
    [
        ((), (), "T1_A, T2_B, t1_c"),
        (("T1_*",), (), "T1_A"),  # upper and lower case differ
        (("*_?",), (), "T1_A, T2_B, t1_c"),
        ((), ("tier/1",), "T1_A, t1_c"),
        ((), ("*/DE",), "T2_B"),
        (("T1_*",), ("country/*", "tier/3"), "T1_A, T2_B"),
        (("X*",), (), ""),
    ],
)
def test_only_sites_of_the_patterns_are_expected(
    profile: Profile, sites: tuple[str, ...], groups: tuple[str, ...], expected: str
) -> None:
    members = [GroupMember("tier", "1", "T1_A", None), GroupMember("tier", "1", "t1_c", None)]
    members.append(GroupMember("country", "DE", "T2_B", None))
    chosen = dataclasses.replace(profile, sites=sites, groups=groups)

    found = endpoints(
        chosen, *(membership(site=site) for site in ("T1_A", "T2_B", "t1_c")), members=members
    )

    assert ", ".join(name.split()[0] for name in found) == expected


def test_an_excluded_host_changes_the_day_after_too(profile: Profile) -> None:
    def digest(*exclusions: Exclusion) -> str:
        return expected_on(profile, [membership()], [], exclusions).exclusions_digest

    gone = exclusion(MONITORING_HOST, monitoring_host="m1", start=START - 100, end=START - 50)

    assert digest(gone) != digest()
    assert digest(dataclasses.replace(gone, start=START - 2 * DAY_S, end=START - DAY_S)) != digest()
    assert digest(dataclasses.replace(gone, end=START - DAY_S - 1)) == digest()
    profile = dataclasses.replace(profile, validity_of={"ping": 3 * DAY_S})
    assert digest(dataclasses.replace(gone, end=START - 3 * DAY_S, start=0)) != digest()
    assert digest(dataclasses.replace(gone, end=START - 3 * DAY_S - 1, start=0)) == digest()


def test_digests_do_not_depend_on_order(profile: Profile) -> None:
    members = [membership(), membership(site="B")]
    announced = [downtime(), downtime(start=START, end=START + 5)]
    one = expected_on(profile, members, announced)
    two = expected_on(profile, members[::-1], announced[::-1])

    assert one.topology_digest == two.topology_digest
    assert one.downtimes_digest == two.downtimes_digest
    assert one.covers[0] == Cover("endpoint", "A", "CE", "h1", "", START, START + 5)
    assert expected_on(profile, members[:1]).topology_digest != one.topology_digest


@given(st.lists(st.integers(0, 9), min_size=1))
def test_the_percentile_is_the_least_value_that_enough_values_do_not_exceed(
    values: list[int],
) -> None:
    nearest = percentile(sorted(values), 99)

    enough = math.ceil(len(values) * 99 / 100)
    assert sum(value <= nearest for value in values) >= enough
    assert sum(value < nearest for value in values) < enough
