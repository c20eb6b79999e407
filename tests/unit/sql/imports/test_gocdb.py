"""Exports of GOCDB as rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.gocdb import NGI, SCOPE, read_downtimes, read_endpoints, read_groups
from tests.support.database.gocdb_files import (
    document,
    downtime,
    listed_site,
    nested_downtime,
    page,
    service_endpoint,
    site,
    write,
)

START, END = 1_763_971_200, 1_763_985_600
DOWNTIME = {
    "downtimeId": "5001G0",
    "siteName": "EXAMPLE-LCG2",
    "hostName": "ce01.example.org",
    "serviceFlavour": "CE",
    "startTime": "2025-11-24T08:00:00Z",
    "endTime": "2025-11-24T12:00:00Z",
    "classification": "SCHEDULED",
    "severity": "OUTAGE",
    "description": "new switches",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "export.xml"


def refused(file: Path, *elements: str) -> list[str]:
    """The lines of the error about endpoints."""
    with pytest.raises(BadInput) as caught:
        read_endpoints([write(file, document(*elements))])
    return str(caught.value).splitlines()


def test_an_endpoint_has_site_host_flavour_uri_and_flags(file: Path) -> None:
    write(file, document(service_endpoint(host="CE01.Example.org.", monitored="n", url=" a:1 ")))

    assert read_endpoints([file]) == [
        {
            "siteName": "EXAMPLE-LCG2",
            "hostName": "ce01.example.org",
            "serviceFlavour": "CE",
            "serviceURI": "a:1",
            "production": "Y",
            "monitored": "N",
        }
    ]


def test_pages_are_joined_within_and_across_files(file: Path, tmp_path: Path) -> None:
    first, second, third = (service_endpoint(host=f"{name}.org") for name in "abc")
    write(file, page(first), page(second))
    other = write(tmp_path / "page3.xml", page(second, third), page())

    hosts = [row["hostName"] for row in read_endpoints([file, other])]

    assert hosts == ["a.org", "b.org", "c.org"]


def test_of_services_with_one_host_and_flavour_the_monitored_one_counts(file: Path) -> None:
    services = [
        service_endpoint(production="N", url="a:1", key="1G0"),
        service_endpoint(url="b:2", key="2G0"),
        service_endpoint(monitored="N", url="c:3", key="3G0"),
    ]

    for order in (services, services[::-1]):
        rows = read_endpoints([write(file, document(*order))])
        assert [row["serviceURI"] for row in rows] == ["b:2"]


def test_missing_flags_are_left_out(file: Path) -> None:
    write(file, document(service_endpoint(production="", monitored="")))

    [row] = read_endpoints([file])

    assert not {"production", "monitored"} & row.keys()


def test_all_bad_elements_are_reported_with_their_lines(file: Path) -> None:
    lines = refused(
        file,
        service_endpoint(),
        service_endpoint(host="two words", key="2G0"),
        service_endpoint(production="x", key="3G0"),
        service_endpoint(site="", key="4G0"),
        site(),
    )

    name = str(file)
    size = service_endpoint().count("\n")
    starts = [
        f"{name}, line {3 + size}: SERVICE_ENDPOINT 2G0: hostName 'two words'",
        f"{name}, line {3 + 2 * size}: SERVICE_ENDPOINT 3G0: IN_PRODUCTION must be Y or N",
        f"{name}, line {3 + 3 * size}: SERVICE_ENDPOINT 4G0: serviceEndpoint needs siteName",
        f"{name}, line {3 + 4 * size}: SITE 14G0: is <SITE>, not <SERVICE_ENDPOINT>",
        "nothing was changed: ",
    ]
    assert len(lines) == len(starts)
    assert all(map(str.startswith, lines, starts)), lines


def test_of_many_bad_elements_the_first_are_reported(file: Path) -> None:
    lines = refused(file, *[service_endpoint(host="?")] * 50)

    assert len(lines) == 22
    assert lines[20] == "… and 30 more"


def test_a_site_belongs_to_its_ngi_and_its_scopes(file: Path) -> None:
    write(file, document(site("A", "NGI_SI", ["EGI"]), site("B", "NGI_CH", [])))

    assert read_groups([file]) == {
        NGI: [
            {"siteName": "A", "groupName": "NGI_SI", "groupType": "NGI"},
            {"siteName": "B", "groupName": "NGI_CH", "groupType": "NGI"},
        ],
        SCOPE: [{"siteName": "A", "groupName": "EGI", "groupType": "scope"}],
    }


def test_a_list_of_sites_has_no_scopes(file: Path) -> None:
    write(file, document(listed_site("A & B", "NGI_SI"), listed_site("C", "")))

    assert read_groups([file]) == {
        NGI: [{"siteName": "A & B", "groupName": "NGI_SI", "groupType": "NGI"}]
    }


def test_a_site_without_scopes_gives_an_empty_list_of_scopes(file: Path) -> None:
    write(file, document(site("A", "NGI_SI", [])))

    assert read_groups([file])[SCOPE] == []


def test_both_methods_give_the_same_downtimes(file: Path, tmp_path: Path) -> None:
    services = [("ce01.example.org", "CE"), ("SE01.example.org", "SRM")]
    flat = write(file, document(*(downtime(host=host, flavour=name) for host, name in services)))
    nested = write(tmp_path / "nested.xml", document(nested_downtime(*services)))

    other = {**DOWNTIME, "hostName": "se01.example.org", "serviceFlavour": "SRM"}
    assert read_downtimes([flat]) == read_downtimes([nested]) == [DOWNTIME, other]


def test_formatted_times_are_used_where_epoch_seconds_are_missing(file: Path) -> None:
    text = document(downtime())
    for name, value in (("START_DATE", START), ("END_DATE", END)):
        text = text.replace(f"<{name}>{value}</{name}>", "")
    write(file, text)

    [row] = read_downtimes([file])

    assert (row["startTime"], row["endTime"]) == ("2025-11-24T09:00:00Z", "2025-11-24T13:00:00Z")


def test_a_downtime_without_services_is_ignored(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert read_downtimes([write(file, document(nested_downtime()))]) == []
    assert "5001G0" in caplog.text


@pytest.mark.parametrize(
    ("element", "message"),
    [
        (downtime(start=END, end=START), "before startTime"),
        (downtime(key=""), "has no PRIMARY_KEY"),
        (downtime(host="", site=""), "hostName or siteName"),
        (downtime(severity=""), "needs severity"),
        (downtime().replace(f"{START}", "soon"), "'soon' is not a time"),
    ],
)
def test_an_invalid_downtime_is_refused(file: Path, element: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_downtimes([write(file, document(element))])


def test_two_versions_of_one_downtime_are_refused(file: Path) -> None:
    write(file, page(downtime()), page(downtime(end=END + 60)))

    with pytest.raises(BadInput, match="two versions"):
        read_downtimes([file])
