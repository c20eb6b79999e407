"""The class views as an SQL client and a loader see them: keys, and which of two rows counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, permutations

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
    """The rows as texts, without the ids of messages."""
    rows = [plain({**row, "messageId": "", "monitoringHost": ""}) for row in stored(engine, view)]
    return sorted(rows, key=str)


def plain(row: Values) -> Values:
    """The values of a row as texts, in the order of their names."""
    return {key: str(row[key]) for key in sorted(row) if row[key]}


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


def of_status(status: str) -> Values:
    details = None if status == "CRITICAL" else "details"
    return metric_result(metricStatus=status, summaryData=f"is {status}", detailsData=details)


ENDS = (None, "2026-11-30T00:00:00Z", "2026-11-25T00:00:00Z")
IN_ANY_ORDER: Sequence[tuple[str, Sequence[Values]]] = [
    *(
        ("metricOutput", [of_status(status) for status in pair])
        for pair in combinations(("OK", "WARNING", "UNKNOWN", "CRITICAL"), 2)
    ),
    ("serviceEndpoint", [service_endpoint(validTo=end) for end in ENDS]),
    ("siteGroup", [site_group(validTo=end) for end in ENDS]),
    (
        "downtime",
        [
            downtime(timestamp=None, description="undated"),
            downtime(timestamp="2026-11-11T00:00:00Z", startTime="2026-11-20T01:00:00Z"),
            downtime(timestamp="2026-11-12T00:00:00Z", startTime="2026-11-20T02:00:00Z"),
        ],
    ),
    (
        "siteContact",
        [
            site_contact(contact="Bob", timestamp="2026-11-18T01:00:00Z"),
            site_contact(contact="Cid", timestamp="2026-11-18T01:00:00Z"),
            site_contact(contact="", timestamp="2026-11-18T02:00:00Z"),
        ],
    ),
]
"""Rows of one key, of which the last one takes precedence over those before it."""


@pytest.mark.parametrize(("view", "rows"), IN_ANY_ORDER)
def test_of_rows_with_one_key_the_same_one_is_kept_whole_in_any_order(
    engine: Engine, store: Store, view: str, rows: Sequence[Values]
) -> None:
    key = "hostName" if "hostName" in rows[0] else "siteName"
    orders = [
        [{**row, key: f"{number}.org"} for row in order]
        for number, order in enumerate(permutations(rows))
    ]

    store(engine, view, *(row for order in orders for row in order))

    kept = [plain({**rows[-1], key: order[0][key]}) for order in orders]
    assert contents(engine, view) == sorted(kept, key=str)


@pytest.mark.parametrize(
    ("view", "first", "second"),
    [
        ("metricOutput", metric_result(), metric_result(summaryData="x", detailsData="more")),
        ("serviceEndpoint", service_endpoint(serviceURI="a"), service_endpoint(production="N")),
        ("downtime", downtime(timestamp=None), downtime(timestamp=None, description="second")),
    ],
)
def test_of_rows_of_equal_precedence_the_first_is_kept(
    engine: Engine, store: Store, view: str, first: Values, second: Values
) -> None:
    store(engine, view, first)
    store(engine, view, second)

    assert contents(engine, view) == [plain(first)]


def test_absent_and_empty_key_parts_are_equal_and_hosts_have_no_case(engine: Engine) -> None:
    bare = metric_result(voName=None, gatheredAt=None)
    empty = {**bare, "voName": "", "gatheredAt": None, "monitoringHost": ""}
    capitals = {**bare, "hostName": "CE01.Example.ORG"}

    insert(engine, "metricOutput", bare, empty, capitals, bare)

    assert stored(engine, "metricOutput") == [bare]


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


def test_reports_read_neither_a_downtime_that_ends_as_it_starts_nor_an_empty_contact(
    engine: Engine,
) -> None:
    for text, at, shown in (("Bob", 18, [("Bob",)]), ("", 19, []), ("Dan", 20, [("Dan",)])):
        contact = site_contact(contact=text, timestamp=f"2026-11-{at}T00:00:00Z")
        insert(engine, "siteContact", contact)
        assert query(engine, "SELECT contact FROM report_site_contact") == shown
    insert(engine, "downtime", downtime())
    assert len(query(engine, "SELECT * FROM report_downtime")) == 1

    cancelled = downtime(endTime="2026-11-20T08:00:00Z", timestamp="2026-11-19T00:00:00Z")
    insert(engine, "downtime", cancelled)

    assert query(engine, "SELECT * FROM report_downtime") == []
    assert len(stored(engine, "downtime")) == 1
