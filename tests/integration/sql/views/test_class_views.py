"""The class views as an SQL client and a loader see them: keys, and which of two rows counts."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.records.classes import BUILT_IN
from sam_pipeline.sql.loading.catalogue import class_views
from tests.support.builders import metric_result
from tests.support.database.letters import load_now
from tests.support.database.sql_rows import (
    EXAMPLES,
    Values,
    downtime,
    insert,
    message_of,
    query,
    service_endpoint,
    site_contact,
    site_group,
    stored,
)

LATER, EARLIER = "2026-11-30T00:00:00Z", "2026-11-25T00:00:00Z"
Store = Callable[..., None]


def load_each(engine: Engine, view: str, *rows: Values) -> None:
    """A batch of one message for each row."""
    loaded = load_now(engine, *(message_of(view, row) for row in rows))
    assert not loaded.dead_letters


@pytest.fixture(params=[insert, load_each], ids=["row by row", "in a batch"])
def store(request: pytest.FixtureRequest) -> Store:
    """Stores rows of a view: as an SQL client, or as a loader, which takes COPY on PostgreSQL."""
    chosen: Store = request.param
    return chosen


def contents(engine: Engine, view: str) -> list[Values]:
    """The rows, without the ids of messages."""
    of_loading = {"messageId": "", "monitoringHost": ""}
    return [
        {key: value for key, value in row.items() if key not in of_loading}
        for row in stored(engine, view)
    ]


def test_a_select_returns_the_inserted_values_and_a_second_copy_changes_nothing(
    engine: Engine,
) -> None:
    for view, row in EXAMPLES.items():
        copy = {**row, "messageId": "m-2"}

        insert(engine, view, row, copy, copy)

        weight = {"weight": 3} if view == "siteGroup" else {}
        assert stored(engine, view) == [{**row, **weight}]


def test_every_attribute_of_a_class_is_a_column_in_any_case(engine: Engine) -> None:
    views = {view.name.lower(): view for view in class_views(engine)}

    assert views.keys() == BUILT_IN.keys()
    for name, message_class in BUILT_IN.items():
        columns = [column.lower() for column in views[name].columns]
        assert columns == [key.lower() for key in message_class.keys]
        assert views[name].message_id_column is not None
    row = {key: f"some {key}" for key in BUILT_IN["metricoutput"].keys} | {
        "hostName": "ce01.example.org",
        "metricStatus": "CRITICAL",
        "timestamp": "2026-11-20T12:00:00Z",
    }
    insert(engine, "metricOutput", row)
    assert stored(engine, "metricOutput") == [row]
    found = query(engine, "SELECT hostName, METRICSTATUS FROM metricoutput")
    assert found == [("ce01.example.org", "CRITICAL")]


@pytest.mark.parametrize(
    "order", list(itertools.permutations(["OK", "CRITICAL", "UNKNOWN", "WARNING"], 2))
)
def test_the_row_with_the_worse_of_two_statuses_is_kept_whole(
    engine: Engine, store: Store, order: tuple[str, str]
) -> None:
    rank = ["OK", "WARNING", "UNKNOWN", "CRITICAL"].index
    rows = {
        status: metric_result(
            metricStatus=status, summaryData=f"is {status}", nagiosName=f"n-{status}"
        )
        for status in order
    }
    rows[order[0]]["detailsData"] = "all of the first"

    store(engine, "metricOutput", *rows.values())

    assert contents(engine, "metricOutput") == [rows[max(order, key=rank)]]


def test_of_two_rows_with_one_status_the_first_is_kept(engine: Engine, store: Store) -> None:
    store(engine, "metricOutput", metric_result())
    store(engine, "metricOutput", metric_result(summaryData="another", detailsData="more"))

    assert contents(engine, "metricOutput") == [metric_result()]


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
    engine: Engine, store: Store, key: str, value: str | None
) -> None:
    store(engine, "metricOutput", metric_result(), metric_result(**{key: value}))

    assert len(stored(engine, "metricOutput")) == 2


def test_absent_and_empty_key_parts_are_equal_and_hosts_have_no_case(engine: Engine) -> None:
    bare = metric_result(voName=None, gatheredAt=None)
    empty = {**bare, "voName": "", "gatheredAt": None, "monitoringHost": ""}
    capitals = {**bare, "hostName": "CE01.Example.ORG"}

    insert(engine, "metricOutput", bare, empty, capitals, bare)

    assert stored(engine, "metricOutput") == [bare]


@pytest.mark.parametrize(
    ("view", "row"), [("serviceEndpoint", service_endpoint), ("siteGroup", site_group)]
)
@pytest.mark.parametrize("order", list(itertools.permutations([None, LATER, EARLIER])))
def test_the_earliest_end_of_validity_wins(
    engine: Engine,
    store: Store,
    view: str,
    row: Callable[..., Values],
    order: tuple[str | None, ...],
) -> None:
    store(engine, view, *(row(validTo=value) for value in order))

    assert [member["validTo"] for member in stored(engine, view)] == [EARLIER]


def test_the_values_of_the_first_endpoint_row_are_kept(engine: Engine, store: Store) -> None:
    store(
        engine,
        "serviceEndpoint",
        service_endpoint(production="true", serviceURI="a"),
        service_endpoint(production="false", validTo=LATER),
    )

    [row] = stored(engine, "serviceEndpoint")
    assert (row["production"], row["serviceURI"], row["validTo"]) == ("true", "a", LATER)


@pytest.mark.parametrize("order", list(itertools.permutations([1, 2, 3])))
def test_the_newest_announcement_of_a_downtime_wins(
    engine: Engine, store: Store, order: tuple[int, ...]
) -> None:
    rows = [
        downtime(
            timestamp=f"2026-11-1{number}T00:00:00Z",
            description=f"version {number}",
            startTime=f"2026-11-20T0{number}:00:00Z",
        )
        for number in order
    ]

    store(engine, "downtime", *rows)

    [row] = stored(engine, "downtime")
    assert (row["description"], row["startTime"]) == ("version 3", "2026-11-20T03:00:00Z")


def test_a_downtime_without_a_timestamp_is_older_than_any_with_one(
    engine: Engine, store: Store
) -> None:
    store(engine, "downtime", downtime(timestamp=None, description="first"))
    store(engine, "downtime", downtime(timestamp=None, description="second"))
    assert [row["description"] for row in stored(engine, "downtime")] == ["first"]

    store(engine, "downtime", downtime(description="dated"))
    store(engine, "downtime", downtime(timestamp=None, description="third"))

    assert [row["description"] for row in stored(engine, "downtime")] == ["dated"]


def test_downtimes_without_an_id_differ_by_their_start_and_by_what_they_cover(
    engine: Engine, store: Store
) -> None:
    store(
        engine,
        "downtime",
        downtime(downtimeId=None),
        downtime(downtimeId=None, startTime="2026-11-20T09:00:00Z"),
        downtime(downtimeId="", description="the first again"),
        downtime(serviceFlavour=None),
        downtime(hostName=None, serviceFlavour=None),
    )

    covered = query(engine, "SELECT host_name, service_flavour FROM report_downtime ORDER BY 1, 2")
    host = "ce01.example.org"
    assert covered == [("", ""), (host, ""), (host, "CE"), (host, "CE")]


def test_a_downtime_that_ends_as_it_starts_is_cancelled(engine: Engine) -> None:
    insert(engine, "downtime", downtime())
    assert len(query(engine, "SELECT * FROM report_downtime")) == 1

    cancelled = downtime(endTime="2026-11-20T08:00:00Z", timestamp="2026-11-19T00:00:00Z")
    insert(engine, "downtime", cancelled)

    assert query(engine, "SELECT * FROM report_downtime") == []
    assert len(stored(engine, "downtime")) == 1


@pytest.mark.parametrize("order", list(itertools.permutations(["Bob", "Cid", None])))
def test_the_newest_contact_of_a_site_wins_in_any_order(
    engine: Engine, order: tuple[str | None, ...]
) -> None:
    """Of two announcements of one time the greater text counts; an empty one removes it."""
    time_of = {"Bob": "T01", "Cid": "T01", None: "T02"}
    rows = [
        site_contact(contact=contact or "", timestamp=f"2026-11-18{time_of[contact]}:00:00Z")
        for contact in order
    ]
    shown = "SELECT site, contact FROM report_site_contact"

    insert(engine, "siteContact", *(row for row in rows if row["contact"]))
    assert query(engine, shown) == [("EXAMPLE-LCG2", "Cid")]
    load_each(engine, "siteContact", *rows)
    assert query(engine, shown) == []
    assert [row.get("contact") for row in stored(engine, "siteContact")] == [None]
    insert(engine, "siteContact", site_contact(contact="Dan", timestamp="2026-11-20T00:00:00Z"))
    assert query(engine, shown) == [("EXAMPLE-LCG2", "Dan")]
