"""Exports of CRIC, OSG, VOs and argo-connectors as rows, and what is left out."""

from __future__ import annotations

import json
import logging
from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.schema.errors import RecordRefused
from sam_pipeline.sql.imports.feed_rows import ALL_TYPES, FeedRows, FeedRules, taken
from sam_pipeline.sql.imports.formats.argo import read_argo
from sam_pipeline.sql.imports.formats.cric import read_cric
from sam_pipeline.sql.imports.formats.osg import FACILITY, SITE, osg_time, read_osg
from sam_pipeline.sql.imports.formats.vofeed import read_vo_feed
from sam_pipeline.sql.imports.table import time_format_argument, time_in
from sam_pipeline.sql.topology.view_rows import Row
from tests.support.feed_samples import (
    ARGO_DOWNTIMES,
    ARGO_TOPOLOGY,
    CE,
    CRIC_DOWNTIME,
    DOORS,
    OSG_DOWNTIME_YAML,
    OSG_GROUP_YAML,
    STORAGE,
    VO_FEED,
    osg_contacts,
    osg_downtime,
    osg_downtimes,
    osg_group,
    osg_resource,
    osg_service,
    osg_summary,
)

LEAVING_OUT = FeedRules(keep_going=True)


def written(directory: Path, name: str, contents: object) -> list[Path]:
    """The file with a text, or with a document in JSON."""
    path = directory / name
    path.write_text(contents if isinstance(contents, str) else json.dumps(contents))
    return [path]


def values(rows: Sequence[Row] | None, *keys: str) -> list[tuple[str, ...]]:
    """These values of the rows in order, "" for missing ones."""
    return sorted(tuple(row.get(key, "") for key in keys) for row in rows or ())


def flags(rows: Sequence[Row] | None) -> Mapping[tuple[str, str], str]:
    """Production and monitored, by host and flavour."""
    return {
        (row["hostName"], row["serviceFlavour"]): row["production"] + row["monitored"]
        for row in rows or ()
    }


# CRIC


def services(tmp_path: Path, **services: object) -> FeedRows:
    return read_cric({"endpoints": written(tmp_path, "services.json", services)})


def test_each_protocol_of_a_storage_has_its_own_flavour_state_and_flags(tmp_path: Path) -> None:
    rows = services(tmp_path, EXAMPLE_SE=STORAGE)

    assert rows.left_out == []
    assert flags(rows.endpoints) == {
        ("se01.example.org", "SRM"): "YY",
        ("se01.example.org", "WEBDAV"): "YY",
        ("xrootd.example.org", "XROOTD"): "YN",
    }


def test_a_protocol_says_more_than_its_service_and_the_service_what_the_protocol_does_not(
    tmp_path: Path,
) -> None:
    door = {"endpoint": "https://a:1", "flavour": "HTTPS"}
    unreported = {**STORAGE, "in_report": False, "is_monitored": False, "protocols": {"d": door}}
    reported = {"d": {**door, "in_report": True, "is_monitored": True}}

    assert flags(services(tmp_path, a=unreported).endpoints) == {("a", "HTTPS"): "NN"}
    rows = services(tmp_path, a={**unreported, "protocols": reported})
    assert flags(rows.endpoints) == {("a", "HTTPS"): "YY"}
    rows = services(tmp_path, a={**CE, "status": "testing"})
    assert flags(rows.endpoints) == {("ce01.example.org", "HTCONDOR-CE"): "NY"}


def test_nothing_of_a_closed_site_is_read(tmp_path: Path) -> None:
    assert services(tmp_path, a={**STORAGE, "rcsite_state": "DISABLED"}).endpoints == []
    assert services(tmp_path, a={**STORAGE, "state": "DISABLED"}).endpoints == []


def test_services_without_a_site_are_ignored_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    rows = services(tmp_path, ce=CE, ORPHAN={**STORAGE, "rcsite": ""}, WAIF={**CE, "rcsite": None})

    assert values(rows.endpoints, "hostName") == [("ce01.example.org",)]
    assert rows.left_out == []
    assert "ignoring 2 services without a site, such as ORPHAN" in caplog.text


def test_an_odd_protocol_is_left_out_and_the_other_services_are_taken(tmp_path: Path) -> None:
    odd = {**STORAGE, "protocols": {"x": {**DOORS["SE-SRM"], "is_monitored": "yes"}}}

    rows = services(tmp_path, odd=odd, ce=CE)

    [left_out] = rows.left_out
    assert "services.json: odd: is_monitored must be true or false" in str(left_out)
    assert len(taken(rows, LEAVING_OUT).endpoints or ()) == 1


def test_sites_of_cric_can_be_chosen_by_their_country(tmp_path: Path) -> None:
    rows = services(tmp_path, a=STORAGE, b={**CE, "rcsite": "OTHER", "country_code": "YY"})

    for country in ("xx", "exampleland"):
        rules = FeedRules(countries=[country])
        assert {row["siteName"] for row in taken(rows, rules).endpoints or ()} == {"EXAMPLE-LCG2"}


@pytest.mark.parametrize(
    "document",
    [
        {"4711": CRIC_DOWNTIME},
        [CRIC_DOWNTIME],
        {"EXAMPLE-LCG2": {"4711": {**CRIC_DOWNTIME, "id": None, "rc_site": None}}},
        {"EXAMPLE-LCG2": [{**CRIC_DOWNTIME, "rc_site": None, "rcsite": "EXAMPLE-LCG2"}]},
    ],
    ids=["by-id", "list", "by-site-and-id", "lists-by-site"],
)
def test_downtimes_of_cric_are_read_in_each_of_their_forms(tmp_path: Path, document: Any) -> None:
    rows = read_cric({"downtimes": written(tmp_path, "x.json", document)})

    assert rows.left_out == []
    common = {
        "downtimeId": "4711",
        "siteName": "EXAMPLE-LCG2",
        "startTime": "2026-11-05T08:00:00Z",
        "endTime": "2026-11-05T12:00:00Z",
        "classification": "SCHEDULED",
        "severity": "OUTAGE",
        "description": "new switches",
        "announcedAt": "2026-11-01T09:30:00Z",
    }
    assert taken(rows, FeedRules()).downtimes == [
        {**common, "serviceFlavour": "XROOTD"},
        {**common, "serviceFlavour": "SRM"},
    ]


def test_a_downtime_of_cric_affects_its_services_or_else_the_whole_site(tmp_path: Path) -> None:
    door = {"name": "SE-WEBDAV", "endpoint": "davs://SE01.example.org:2880", "flavour": "WEBDAV"}
    document = {
        "1": {**CRIC_DOWNTIME, "id": 1, "affected_services": [door, "CE"]},
        "2": {**CRIC_DOWNTIME, "id": 2, "affected_services": ""},
        "3": {**CRIC_DOWNTIME, "id": 3, "affected_services": 7},
    }

    rows = read_cric({"downtimes": written(tmp_path, "x.json", document)})

    assert values(rows.downtimes, "downtimeId", "hostName", "serviceFlavour") == [
        ("1", "", "CE"),
        ("1", "se01.example.org", "WEBDAV"),
        ("2", "", ""),
    ]
    assert "x.json: 3: the affected services must be a list" in str(rows.left_out[0])


# OSG


def osg(tmp_path: Path, *groups: str) -> FeedRows:
    return read_osg({"endpoints": written(tmp_path, "rgsummary.xml", osg_summary(*groups))})


def test_services_of_active_resources_are_endpoints_of_their_resource_group(
    tmp_path: Path,
) -> None:
    uri = "<uri_override>se.example.edu:1094</uri_override>"
    silent = "<WLCGInformation><InteropMonitoring>False</InteropMonitoring></WLCGInformation>"
    rows = osg(
        tmp_path,
        osg_group(
            "EXAMPLE_T2",
            osg_resource("ce.example.edu", osg_service("CE")),
            osg_resource(
                "se.example.edu",
                osg_service("WebDAV", "<Monitored>false</Monitored>"),
                osg_service("XRootD component", uri),
            ),
            osg_resource("gone.example.edu", osg_service("CE"), active="False"),
            osg_resource("quiet.example.edu", osg_service("Squid"), more=silent),
        ),
        osg_group("ITB", osg_resource("test.example.edu", osg_service("CE")), grid="OSG ITB"),
        osg_group("OLD", osg_resource("o", osg_service("CE"))).replace(
            "<Disable>False</Disable><Facility>", "<Disable>True</Disable><Facility>"
        ),
    )

    endpoints = taken(rows, FeedRules()).endpoints
    assert flags(endpoints) == {
        ("ce.example.edu", "HTCONDOR-CE"): "YY",
        ("se.example.edu", "WEBDAV"): "YN",
        ("se.example.edu", "XROOTD"): "YY",
        ("quiet.example.edu", "Squid"): "YN",
        ("test.example.edu", "HTCONDOR-CE"): "NY",
    }
    assert ("EXAMPLE_T2", "se.example.edu:1094") in values(endpoints, "siteName", "serviceURI")


def test_a_resource_group_has_a_facility_a_site_and_administrators(tmp_path: Path) -> None:
    administrators = osg_contacts("Administrative Contact", "Zoë Z", "Ann A", "B" * 250)
    resources = [
        osg_resource("a", osg_service("CE"), more=administrators),
        osg_resource("b", osg_service("CE"), more=osg_contacts("Security Contact", "Nobody")),
    ]

    rows = osg(tmp_path, osg_group("EXAMPLE_T2", *resources))

    names = {kind: values(found, "siteName", "groupName") for kind, found in rows.groups.items()}
    assert names == {
        FACILITY: [("EXAMPLE_T2", "University of Example")],
        SITE: [("EXAMPLE_T2", "Example Campus")],
    }
    assert values(rows.contacts, "siteName", "contact") == [("EXAMPLE_T2", "Ann A, Zoë Z")]


def test_a_downtime_of_osg_is_one_row_per_service_with_the_severity_of_gocdb(
    tmp_path: Path,
) -> None:
    text = osg_downtimes(
        osg_downtime(Severity="Intermittent Outage"),
        past=osg_downtime(ID="7", CreatedTime="Nov 01, 2026 08:05 AM UTC"),
    )

    rows = read_osg({"downtimes": written(tmp_path, "x.xml", text)})

    assert rows.left_out == []
    keys = ("downtimeId", "serviceFlavour", "severity", "description", "announcedAt")
    assert values(taken(rows, FeedRules()).downtimes, *keys) == [
        ("1005710", "HTCONDOR-CE", "WARNING", "Intermittent Outage: New switches", ""),
        ("1005710", "WEBDAV", "WARNING", "Intermittent Outage: New switches", ""),
        ("7", "HTCONDOR-CE", "OUTAGE", "New switches", "2026-11-01T08:05:00Z"),
        ("7", "WEBDAV", "OUTAGE", "New switches", "2026-11-01T08:05:00Z"),
    ]
    place = values(rows.downtimes, "siteName", "hostName", "startTime", "endTime")[0]
    assert place == ("EXAMPLE_T2", "ce.example.edu", "2026-11-05T13:00:00Z", "2026-11-06T00:30:00Z")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mar 28, 2026 22:00 -0500", "2026-03-29T03:00:00Z"),
        ("Mar 28, 2026 9:00 +0530", "2026-03-28T03:30:00Z"),
        ("Mar  8, 2026 22:00 UTC", "2026-03-08T22:00:00Z"),
        ("Mar 28, 2026 22:00", "2026-03-28T22:00:00Z"),
        ("Mar 28, 2026 22:00 PM UTC", "2026-03-28T22:00:00Z"),
        ("Mar 28, 2026 03:00 PM UTC", "2026-03-28T15:00:00Z"),
        ("Mar 28, 2026 00:30 AM UTC", "2026-03-28T00:30:00Z"),
        ("Mar 28, 2026 12:30 AM UTC", "2026-03-28T00:30:00Z"),
        ("Mar 28, 2026 12:30 PM UTC", "2026-03-28T12:30:00Z"),
    ],
)
def test_times_of_osg_have_a_zone_or_are_in_utc(text: str, expected: str) -> None:
    assert osg_time(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Not Available",
        "Mär 28, 2026 22:00",
        "Feb 30, 2026 10:00 UTC",
        "Mar 28, 2026 22:00 CST",
        "Mar 28, 2026 25:00 UTC",
        "Mar 28, 2026 22:00 -9900",
        "2026-03-28T22:00:00Z",
    ],
)
def test_other_times_are_not_guessed(text: str) -> None:
    with pytest.raises(RecordRefused, match="not a time"):
        osg_time(text)


def test_downtimes_of_the_repository_find_their_host_in_the_file_of_their_group(
    tmp_path: Path,
) -> None:
    written(tmp_path, "EXAMPLE_T2.yaml", OSG_GROUP_YAML)
    paths = written(tmp_path, "EXAMPLE_T2_downtime.yaml", OSG_DOWNTIME_YAML)

    rows = read_osg({"downtimes": paths})

    assert rows.left_out == []
    assert rows.downtimes == [
        {
            "downtimeId": "017",
            "siteName": "EXAMPLE_T2",
            "hostName": "ce.example.edu",
            "serviceFlavour": "HTCONDOR-CE",
            "startTime": "2026-03-29T03:00:00Z",
            "endTime": "2026-03-30T09:00:00Z",
            "classification": "UNSCHEDULED",
            "severity": "OUTAGE",
            "description": "Severe: Power & cooling",
            "announcedAt": "2026-03-29T03:10:00Z",
        }
    ]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "  Services:\n  - CE\n",
            "  Services:\n  - CE\n  Class: SCHEDULED\n",
            "Class appears twice",
        ),
        ("EXAMPLE_CE", "GONE_CE", "EXAMPLE_T2.yaml has no host for the resource 'GONE_CE'"),
        ("  - CE\n", "    CE: {}\n", "Services must be a list"),
        ("Severe", "Catastrophic", "Severity must be one of Outage, Severe"),
        ("  ID: 017\n", "", "has no ID"),
        ("Mar 30", "Mar 20", "is before startTime"),
    ],
)
def test_an_odd_downtime_of_the_repository_is_left_out_and_named_by_its_line(
    tmp_path: Path, old: str, new: str, reason: str
) -> None:
    written(tmp_path, "EXAMPLE_T2.yaml", OSG_GROUP_YAML)
    assert old in OSG_DOWNTIME_YAML
    text = OSG_DOWNTIME_YAML.replace("017", "18") + OSG_DOWNTIME_YAML.replace(old, new, 1)
    paths = written(tmp_path, "EXAMPLE_T2_downtime.yaml", text)

    rows = read_osg({"downtimes": paths})

    [left_out] = rows.left_out
    assert str(left_out).startswith(f"{paths[0]}, line 12: ") and reason in str(left_out)
    assert values(rows.downtimes, "downtimeId") == [("18",)]


# VO feeds


def test_habits_of_vo_feeds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "vofeed.xml"
    path.write_bytes(VO_FEED.encode("iso-8859-1"))

    rows = read_vo_feed({"feed": [path]})

    assert rows.left_out == []
    assert values(rows.endpoints, "hostName", "production") == [
        ("ce01.example.org", ""),
        ("se01.example.org", "N"),
    ]
    assert {row["siteName"] for row in rows.endpoints or ()} == {"EXAMPLE-LCG2"}
    assert "ignoring 1 site without a name, such as that of T3_XX_Other" in caplog.text
    assert values(rows.groups[ALL_TYPES], "groupName", "groupType") == [
        ("T2_XX_Example", "CMS_Site"),
        ("T2_XX_Example:X", "GGUS_Site"),
        ("Tier-2", "CMS_Tier"),
        ("Tier3s + Tier2s", "CMS_Group"),
    ]
    assert rows.contacts == [{"siteName": "EXAMPLE-LCG2", "contact": "José"}]


def test_an_odd_service_of_a_feed_is_left_out_and_its_neighbours_are_taken(tmp_path: Path) -> None:
    text = VO_FEED.replace('"False"', '"maybe"').replace('"ce01.example.org" fl', '"a b" fl')
    text = text.replace("  </atp_site>", '<service hostname="c" flavour="CE"/></atp_site>', 1)

    rows = read_vo_feed({"feed": written(tmp_path, "x.xml", text.replace("ISO-8859-1", "UTF-8"))})

    assert values(rows.endpoints, "hostName") == [("c",)]
    assert [item.where for item in rows.left_out] == [f"{tmp_path / 'x.xml'}, line 4"] * 2


# argo-connectors


def test_a_table_of_services_is_endpoints_and_contacts(tmp_path: Path) -> None:
    rows = read_argo({"endpoints": written(tmp_path, "x.csv", ARGO_TOPOLOGY)})

    assert rows.left_out == []
    keys = ("siteName", "hostName", "serviceFlavour", "serviceURI", "production")
    assert values(rows.endpoints, *keys) == [
        ("Files", "dev.example.eu", "nextcloud", "https://dev.example.eu:8443/x", "N"),
        ("Files", "files.example.eu", "nextcloud", "https://files.example.eu/", "Y"),
    ]
    assert rows.contacts == [{"siteName": "Files", "contact": "a@example.eu, b@example.eu"}]


def test_downtimes_of_one_service_are_told_apart_by_their_start(tmp_path: Path) -> None:
    paths = written(tmp_path, "x.csv", ARGO_DOWNTIMES)

    rows = read_argo({"downtimes": paths}, time_format="%m/%d/%Y %H:%M")

    assert rows.left_out == []
    keys = ("downtimeId", "hostName", "endTime", "classification", "description")
    assert values(rows.downtimes, *keys) == [
        (
            "t_1 2026-02-03T08:00:00Z",
            "files.example.eu",
            "2026-02-04T19:00:00Z",
            "SCHEDULED",
            "disks, all of them",
        ),
        (
            "t_1 2026-03-01T08:00:00Z",
            "files.example.eu",
            "2026-03-01T09:30:00Z",
            "SCHEDULED",
            "",
        ),
    ]


def test_other_times_need_a_format(tmp_path: Path) -> None:
    rows = read_argo({"downtimes": written(tmp_path, "x.csv", ARGO_DOWNTIMES)})

    assert rows.downtimes == []
    assert "x.csv, line 2: '2/3/2026 8:00' is not a time" in str(rows.left_out[0])
    assert "--time-format" in str(rows.left_out[0])


def test_a_line_with_too_few_values_is_left_out(tmp_path: Path) -> None:
    text = ARGO_TOPOLOGY + "t_3,https://half.exa"

    [left_out] = read_argo({"endpoints": written(tmp_path, "x.csv", text)}).left_out

    assert "x.csv, line 5: has 2 values for 7 columns" in str(left_out)


@pytest.mark.parametrize(
    ("time_format", "problem"),
    [
        ("%m/%d/%Y %H:%M", None),
        ("%b %d, %Y %I:%M %p %z", None),
        ("%d.%m. %H:%M", "must contain day, month, year"),
        ("%Y-%m-%d", "must contain day, month, year"),
        ("%H:%M", "must contain day, month, year"),
        ("%Q", "not a format"),
    ],
)
def test_a_format_says_the_day_and_the_time(time_format: str, problem: str | None) -> None:
    if problem is None:
        assert time_format_argument(time_format) == time_format
    else:
        with pytest.raises(ArgumentTypeError, match=problem):
            time_format_argument(time_format)


def test_a_time_in_a_format_has_its_zone_or_is_in_utc() -> None:
    assert time_in("%d/%m/%Y %H:%M", "2/3/2026 8:00") == "2026-03-02T08:00:00Z"
    assert time_in("%d/%m/%Y %H:%M %z", "2/3/2026 8:00 +0200") == "2026-03-02T06:00:00Z"
    assert time_in(None, "2026-03-02 08:00") == "2026-03-02T08:00:00Z"
    with pytest.raises(ValueError, match="in the format"):
        time_in("%d/%m/%Y %H:%M", "2026-03-02 08:00")
