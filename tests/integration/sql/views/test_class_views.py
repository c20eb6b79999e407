"""The class views as an SQL client sees them."""

from __future__ import annotations

import itertools

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.records.classes import BUILT_IN
from sam_pipeline.sql.errors import StatementFailed
from sam_pipeline.sql.loading.catalogue import Catalogue, class_views
from tests.support.builders import metric_result
from tests.support.database.sql_rows import (
    EXAMPLES,
    Values,
    downtime,
    insert,
    query,
    service_endpoint,
    site_contact,
    site_group,
    stored,
)

LATER, EARLIER = "2026-11-30T00:00:00Z", "2026-11-25T00:00:00Z"


@pytest.mark.parametrize("view", EXAMPLES)
def test_a_select_returns_the_inserted_values(engine: Engine, view: str) -> None:
    insert(engine, view, EXAMPLES[view])

    [row] = stored(engine, view)
    weight = {"weight": 3} if view == "siteGroup" else {}
    assert row == {**EXAMPLES[view], **weight}


@pytest.mark.parametrize("view", EXAMPLES)
def test_a_second_copy_changes_nothing(engine: Engine, view: str) -> None:
    copy = {**EXAMPLES[view], "messageId": "m-2"}

    insert(engine, view, EXAMPLES[view], copy, copy)

    [row] = stored(engine, view)
    assert row.get("messageId") == EXAMPLES[view].get("messageId")


def test_every_attribute_of_a_class_is_a_column(engine: Engine) -> None:
    views = {view.name.lower(): view for view in class_views(engine)}

    assert views.keys() == BUILT_IN.keys()
    for name, message_class in BUILT_IN.items():
        assert [column.lower() for column in views[name].columns] == [
            key.lower() for key in message_class.keys
        ]
        assert views[name].message_id_column is not None


def test_every_attribute_of_a_metric_result_is_stored(engine: Engine) -> None:
    row = {key: f"some {key}" for key in BUILT_IN["metricoutput"].keys} | {
        "hostName": "ce01.example.org",
        "metricStatus": "CRITICAL",
        "timestamp": "2026-11-20T12:00:00Z",
    }

    insert(engine, "metricOutput", row)

    assert stored(engine, "metricOutput") == [row]


def test_column_names_are_found_in_any_case(engine: Engine) -> None:
    insert(engine, "metricOutput", metric_result())

    assert query(engine, "SELECT hostName, METRICSTATUS FROM metricoutput") == [
        ("ce01.example.org", "OK")
    ]


@pytest.mark.parametrize(
    "order", list(itertools.permutations(["OK", "CRITICAL", "UNKNOWN", "WARNING"], 2))
)
def test_the_row_with_the_worse_of_two_statuses_is_kept_whole(
    engine: Engine, order: tuple[str, str]
) -> None:
    rank = ["OK", "WARNING", "UNKNOWN", "CRITICAL"].index
    rows = {
        status: metric_result(
            metricStatus=status,
            summaryData=f"is {status}",
            detailsData=f"all {status}",
            messageId=f"m-{status}",
            nagiosName=f"n-{status}",
        )
        for status in order
    }

    insert(engine, "metricOutput", *rows.values())

    assert stored(engine, "metricOutput") == [rows[max(order, key=rank)]]


def test_a_worse_result_without_details_removes_the_details(engine: Engine) -> None:
    insert(engine, "metricOutput", metric_result(detailsData="fine"))

    insert(engine, "metricOutput", metric_result(metricStatus="CRITICAL"))

    [row] = stored(engine, "metricOutput")
    assert "detailsData" not in row


def test_of_two_rows_with_one_status_the_first_is_kept(engine: Engine) -> None:
    insert(engine, "metricOutput", metric_result())

    insert(engine, "metricOutput", metric_result(summaryData="another", detailsData="more"))

    assert stored(engine, "metricOutput") == [metric_result()]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hostName", "ce02.example.org"),
        ("serviceFlavour", "ARC-CE"),
        ("metricName", "org.sam.CE-Ping"),
        ("voName", "atlas"),
        ("voName", None),
        ("voFqan", "/ops/Role=pilot"),
        ("timestamp", "2026-11-20T12:00:01Z"),
        ("gatheredAt", None),
        ("monitoringHost", "nagios.example.org"),
    ],
)
def test_every_part_of_the_natural_key_distinguishes_results(
    engine: Engine, key: str, value: str | None
) -> None:
    insert(engine, "metricOutput", metric_result(), metric_result(**{key: value}))

    assert len(stored(engine, "metricOutput")) == 2


def test_absent_and_empty_key_parts_are_equal(engine: Engine) -> None:
    bare = metric_result(voName=None, gatheredAt=None)
    empty = {**bare, "voName": "", "gatheredAt": None, "monitoringHost": ""}

    insert(engine, "metricOutput", bare, empty, bare)

    assert stored(engine, "metricOutput") == [bare]


def test_host_names_are_compared_without_case(engine: Engine) -> None:
    insert(engine, "metricOutput", metric_result(), metric_result(hostName="CE01.Example.ORG"))

    assert stored(engine, "metricOutput") == [metric_result()]


@pytest.mark.parametrize(
    "name",
    [
        "'; DROP TABLE host; --",
        "select",
        'a "quoted" name',
        "\u202egro.elpmaxe",
        "100 %",
        "ä\\n\\N",
        "x" * 500,
        "no unit\\u001fseparator",
    ],
)
def test_odd_names_are_stored_unchanged(engine: Engine, name: str) -> None:
    row = metric_result(metricName=name, siteName=name, voName=name, summaryData=name)

    insert(engine, "metricOutput", row)

    assert stored(engine, "metricOutput") == [row]


@pytest.mark.parametrize(
    ("view", "changes", "column"),
    [
        ("metricOutput", {"metricStatus": "FINE"}, "metricStatus"),
        ("metricOutput", {"metricStatus": None}, "metricStatus"),
        ("metricOutput", {"hostName": ""}, "hostName"),
        ("metricOutput", {"serviceFlavour": None}, "serviceFlavour"),
        ("metricOutput", {"metricName": None}, "metricName"),
        ("metricOutput", {"metricName": "a\x1fb"}, "unit separator"),
        ("metricOutput", {"siteName": "a\\\x1fb"}, "unit separator"),
        ("metricOutput", {"timestamp": None}, "timestamp"),
        ("metricOutput", {"timestamp": "infinity"}, "timestamp"),
        ("metricOutput", {"timestamp": "2026-11-20T12:00:00.5Z"}, "timestamp"),
        ("serviceEndpoint", {"siteName": None}, "siteName"),
        ("serviceEndpoint", {"validFrom": None}, "validFrom"),
        ("serviceEndpoint", {"validTo": "-infinity"}, "validTo"),
        ("siteGroup", {"groupType": None}, "groupType"),
        ("siteGroup", {"weight": -1}, "weight"),
        ("siteContact", {"siteName": ""}, "siteName"),
        ("siteContact", {"timestamp": "infinity"}, "timestamp"),
        ("siteContact", {"contact": "x" * 256}, "contact"),
        ("downtime", {"siteName": None, "hostName": None}, "hostName"),
        ("downtime", {"endTime": "2026-11-20T07:59:59Z"}, "endTime"),
        ("downtime", {"severity": ""}, "severity"),
    ],
)
def test_a_bad_row_is_refused_by_column_and_leaves_nothing(
    engine: Engine, view: str, changes: Values, column: str
) -> None:
    with pytest.raises(StatementFailed, match=column):
        insert(engine, view, {**EXAMPLES[view], **changes})

    assert stored(engine, view) == []
    assert query(engine, "SELECT name FROM host") == []


@pytest.mark.parametrize("weight", ["many", "1.5", "", " "])
def test_a_weight_must_be_a_whole_number(engine: Engine, weight: str) -> None:
    with pytest.raises(StatementFailed):
        insert(engine, "siteGroup", site_group(weight=weight))


@pytest.mark.parametrize("row", [service_endpoint, site_group])
@pytest.mark.parametrize("order", list(itertools.permutations([None, LATER, EARLIER])))
def test_the_earliest_end_of_validity_wins(
    engine: Engine, row: type[Values], order: tuple[str | None, ...]
) -> None:
    view = "serviceEndpoint" if row is service_endpoint else "siteGroup"

    insert(engine, view, *(row(validTo=value) for value in order))

    assert [member["validTo"] for member in stored(engine, view)] == [EARLIER]


def test_the_values_of_the_first_endpoint_row_are_kept(engine: Engine) -> None:
    insert(engine, "serviceEndpoint", service_endpoint(production="true", serviceURI="a"))

    insert(engine, "serviceEndpoint", service_endpoint(production="false", validTo=LATER))

    [row] = stored(engine, "serviceEndpoint")
    assert (row["production"], row["serviceURI"], row["validTo"]) == ("true", "a", LATER)


@pytest.mark.parametrize("order", list(itertools.permutations([1, 2, 3])))
def test_the_newest_announcement_of_a_downtime_wins(engine: Engine, order: tuple[int, ...]) -> None:
    rows = [
        downtime(
            timestamp=f"2026-11-1{number}T00:00:00Z",
            description=f"version {number}",
            startTime=f"2026-11-20T0{number}:00:00Z",
        )
        for number in order
    ]

    insert(engine, "downtime", *rows)

    [row] = stored(engine, "downtime")
    assert (row["description"], row["startTime"]) == ("version 3", "2026-11-20T03:00:00Z")


@pytest.mark.parametrize("order", list(itertools.permutations(["Ann", "Bob", "Cid", None])))
def test_the_newest_contact_of_a_site_wins_in_any_order(
    engine: Engine, order: tuple[str | None, ...]
) -> None:
    time_of = {"Ann": "T00", "Bob": "T01", "Cid": "T01", None: "T02"}
    rows = [
        site_contact(contact=contact, timestamp=f"2026-11-18{time_of[contact]}:00:00Z")
        for contact in order
    ]

    insert(engine, "siteContact", *(row for row in rows if row["contact"]))
    with_contact = query(engine, "SELECT site, contact FROM report_site_contact")
    insert(engine, "siteContact", *rows)
    removed = query(engine, "SELECT site, contact FROM report_site_contact")

    # Of two announcements of one time the greater text counts, whichever arrives first.
    assert with_contact == [("EXAMPLE-LCG2", "Cid")]
    assert removed == []
    assert [row.get("contact") for row in stored(engine, "siteContact")] == [None]


def test_an_empty_contact_removes_it_until_a_newer_one(engine: Engine) -> None:
    insert(engine, "siteContact", site_contact())
    insert(engine, "siteContact", site_contact(contact="", timestamp="2026-11-19T00:00:00Z"))
    insert(engine, "siteContact", site_contact(contact="late"))
    assert query(engine, "SELECT contact FROM report_site_contact") == []

    insert(engine, "siteContact", site_contact(contact="Ann", timestamp="2026-11-20T00:00:00Z"))

    assert query(engine, "SELECT contact FROM report_site_contact") == [("Ann",)]


def test_a_downtime_without_a_timestamp_is_older_than_any_with_one(engine: Engine) -> None:
    insert(engine, "downtime", downtime(timestamp=None, description="first"))
    insert(engine, "downtime", downtime(timestamp=None, description="second"))
    assert [row["description"] for row in stored(engine, "downtime")] == ["first"]

    insert(engine, "downtime", downtime(description="dated"))
    insert(engine, "downtime", downtime(timestamp=None, description="third"))

    assert [row["description"] for row in stored(engine, "downtime")] == ["dated"]


def test_downtimes_without_an_id_differ_by_their_start(engine: Engine) -> None:
    insert(
        engine,
        "downtime",
        downtime(downtimeId=None),
        downtime(downtimeId=None, startTime="2026-11-20T09:00:00Z"),
        downtime(downtimeId="", description="the first again"),
    )

    assert len(stored(engine, "downtime")) == 2


def test_a_downtime_that_ends_as_it_starts_is_cancelled(engine: Engine) -> None:
    insert(engine, "downtime", downtime())
    assert len(query(engine, "SELECT * FROM report_downtime")) == 1

    cancelled = downtime(endTime="2026-11-20T08:00:00Z", timestamp="2026-11-19T00:00:00Z")
    insert(engine, "downtime", cancelled)

    assert query(engine, "SELECT * FROM report_downtime") == []
    assert len(stored(engine, "downtime")) == 1


def test_a_downtime_may_be_of_a_host_or_of_a_whole_site(engine: Engine) -> None:
    insert(
        engine,
        "downtime",
        downtime(serviceFlavour=None),
        downtime(hostName=None, serviceFlavour=None),
    )

    covered = query(engine, "SELECT host_name, service_flavour FROM report_downtime ORDER BY 1")
    assert covered == [("", ""), ("ce01.example.org", "")]


def test_the_catalogue_finds_a_class_in_any_case(catalogue: Catalogue) -> None:
    for name in ("metricOutput", "METRICOUTPUT", "metricoutput"):
        view = catalogue.find(name)
        assert view is not None
        assert view.name.lower() == "metricoutput"


@pytest.mark.parametrize(
    "name", [None, "", "host", "report_result", 'x"; DROP TABLE host', "é" * 9999]
)
def test_only_class_views_are_classes(catalogue: Catalogue, name: str | None) -> None:
    assert catalogue.find(name) is None
