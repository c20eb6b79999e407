"""The endpoints that are expected on a day, and the downtimes that cover them."""

from __future__ import annotations

import dataclasses
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.spark_jobs.inputs.announced import (
    MONITORING_HOST,
    Downtime,
    Exclusion,
    Membership,
)
from sam_pipeline.spark_jobs.inputs.expected import Cover, expect
from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start
from sam_pipeline.spark_jobs.rules.levels import GROUP, METRIC

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


def endpoints(profile: Profile, *memberships: Membership) -> list[str]:
    expected = expect(DAY, memberships, [], [], profile, LATER)
    return [
        f"{endpoint.site} {endpoint.service_flavour} {endpoint.host_name}"
        for endpoint in expected.endpoints
    ]


def spans(profile: Profile, *downtimes: Downtime, now: int = LATER) -> list[tuple[int, int]]:
    expected = expect(DAY, [membership()], downtimes, [], profile, now)
    assert all(cover[:5] == ("endpoint", "A", "CE", "h1", "") for cover in expected.covers)
    return [(cover.start - START, cover.end - START) for cover in expected.covers]


def exclusion(kind: str, **changes: Any) -> Exclusion:
    plain = Exclusion(1, kind, "", "", "", "", "", START + 100, START + 200, "why", "who")
    return dataclasses.replace(plain, **changes)


def covers(profile: Profile, *exclusions: Exclusion) -> list[str]:
    """The excluded ones of two metrics on two endpoints of a site."""
    members = [membership(), membership(host_name="h2")]
    expected = expect(DAY, members, [], exclusions, profile, LATER)
    assert all((cover.start, cover.end) == (START + 100, START + 200) for cover in expected.covers)
    return [" ".join(filter(None, cover[:5])) for cover in expected.covers]


def test_an_endpoint_is_expected_from_the_first_midnight_of_its_validity(profile: Profile) -> None:
    valid = membership(valid_to=START + 1)
    late, gone = membership(host_name="h2", valid_from=START + 1), membership(valid_to=START)

    assert endpoints(profile, valid, late) == ["A CE h1"]
    assert endpoints(profile, gone) == []


def test_the_newest_announcement_governs(profile: Profile) -> None:
    older = membership(valid_from=START - 100, monitored="Y")
    newer = membership(valid_from=START - 50, monitored="N")

    assert endpoints(profile, newer, older) == []


@pytest.mark.parametrize("flag", ["N", "no", " False ", "0"])
@pytest.mark.parametrize("name", ["production", "monitored"])
def test_a_flag_can_exclude_an_endpoint(profile: Profile, name: str, flag: str) -> None:
    assert endpoints(profile, membership(**{name: flag})) == []


@pytest.mark.parametrize("flag", [None, "Y", "1", "true"])
def test_any_other_value_of_a_flag_means_yes(profile: Profile, flag: str | None) -> None:
    assert endpoints(profile, membership(production=flag, monitored=flag)) == ["A CE h1"]


def test_endpoints_of_another_vo_are_not_expected(profile: Profile) -> None:
    own, other = membership(vo="ops"), membership(vo="physics", host_name="h2")

    assert endpoints(profile, own, other) == ["A CE h1"]
    any_vo = dataclasses.replace(profile, vo=None)
    assert endpoints(any_vo, own, other) == ["A CE h1", "A CE h2"]


def test_flavours_the_profile_does_not_name_are_not_expected(profile: Profile) -> None:
    assert endpoints(profile, membership(service_flavour="SRM")) == []


def test_an_endpoint_at_two_sites_is_expected_at_both(profile: Profile) -> None:
    assert endpoints(profile, membership(), membership(site="B")) == ["A CE h1", "B CE h1"]


def test_each_expected_metric_is_an_instance(profile: Profile) -> None:
    expected = expect(DAY, [membership(), membership(site="B")], [], [], profile, LATER)

    assert expected.instances(profile) == 4


@pytest.mark.parametrize(
    "named",
    [
        {"host_name": "h1", "service_flavour": "CE"},
        {"host_name": "h1", "service_flavour": ""},
        {"host_name": "", "service_flavour": "", "site": "A"},
        {"host_name": "h1", "service_flavour": "CE", "site": "A"},
    ],
)
def test_a_downtime_is_of_an_endpoint_a_host_or_a_site(
    profile: Profile, named: dict[str, str]
) -> None:
    assert spans(profile, downtime(**named)) == [(100, 200)]


@pytest.mark.parametrize(
    "named",
    [{"host_name": "h2"}, {"service_flavour": "SRM"}, {"site": "B"}, {"severity": "WARNING"}],
)
def test_other_downtimes_do_not_count(profile: Profile, named: dict[str, str]) -> None:
    assert spans(profile, downtime(**named)) == []


def test_a_downtime_is_cut_to_the_day_and_to_now(profile: Profile) -> None:
    long = downtime(start=START - 500, end=END + 500)

    assert spans(profile, long) == [(0, DAY_S)]
    assert spans(profile, long, now=START + 300) == [(0, 300)]
    assert spans(profile, downtime(start=START - 500, end=START)) == []
    assert spans(profile, downtime(start=END, end=END + 500)) == []


@pytest.mark.parametrize(
    ("named", "covered"),
    [
        ({"metric_name": "a"}, ["metric A CE h1 a", "metric A CE h2 a"]),
        ({"metric_name": "a", "host_name": "h2"}, ["metric A CE h2 a"]),
        ({"metric_name": "a", "site": "A", "host_name": "h1"}, ["metric A CE h1 a"]),
        ({"metric_name": "a", "service_flavour": "SRM"}, []),
        ({"metric_name": "a", "site": "B"}, []),
        ({"metric_name": "unknown"}, []),
    ],
)
def test_an_excluded_metric_covers_the_instances_that_its_selectors_match(
    profile: Profile, named: dict[str, str], covered: list[str]
) -> None:
    assert covers(profile, exclusion(METRIC, **named)) == covered


def test_an_excluded_group_covers_only_its_site(profile: Profile) -> None:
    assert covers(profile, exclusion(GROUP, site="A"), exclusion(GROUP, site="B")) == ["site A"]


def test_an_excluded_group_covers_no_site_that_serves_no_function(profile: Profile) -> None:
    idle = dataclasses.replace(profile, functions=())

    assert covers(idle, exclusion(GROUP, site="A")) == []


def test_an_excluded_host_changes_the_day_after_too(profile: Profile) -> None:
    def digest(*exclusions: Exclusion) -> str:
        return expect(DAY, [membership()], [], exclusions, profile, LATER).exclusions_digest

    gone = exclusion(MONITORING_HOST, monitoring_host="m1", start=START - 100, end=START - 50)

    assert digest(gone) != digest()
    assert digest(dataclasses.replace(gone, start=START - 2 * DAY_S, end=START - DAY_S)) != digest()
    assert digest(dataclasses.replace(gone, end=START - DAY_S - 1)) == digest()
    assert covers(profile, gone) == []


def test_an_exclusion_of_another_day_changes_nothing(profile: Profile) -> None:
    before = exclusion(METRIC, metric_name="a", start=START - 100, end=START)
    after = exclusion(METRIC, metric_name="a", start=END, end=END + 1)

    assert covers(profile, before, after) == []


def test_digests_do_not_depend_on_order(profile: Profile) -> None:
    members = [membership(), membership(site="B")]
    announced = [downtime(), downtime(start=START, end=START + 5)]
    one = expect(DAY, members, announced, [], profile, LATER)
    two = expect(DAY, members[::-1], announced[::-1], [], profile, LATER)

    assert one.topology_digest == two.topology_digest
    assert one.downtimes_digest == two.downtimes_digest
    assert one.covers[0] == Cover("endpoint", "A", "CE", "h1", "", START, START + 5)
    assert expect(DAY, members[:1], [], [], profile, LATER).topology_digest != one.topology_digest
