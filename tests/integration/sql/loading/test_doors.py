"""Rows loaded through any door, into either database, leave the same contents.

`pytest --hypothesis-profile=soak tests/integration/sql/loading/test_doors.py` searches much longer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, text

from sam_pipeline.schema.records.classes import BUILT_IN
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.errors import DRIVER_ERRORS
from sam_pipeline.sql.loading.catalogue import Catalogue, ClassView
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.staging import copy_rows
from tests.integration.conftest import EMPTY_ALL_TABLES
from tests.services.postgres import PostgresServer, drop_database, new_url
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import query
from tests.support.database.with_schema import with_schema

# A few dozen rows take each of the doors, and `test_class_views.py` has the rules one by one.
EXAMPLES = settings.default.max_examples // 12 if settings.default else 8

STATUSES = ("OK", "WARNING", "UNKNOWN", "CRITICAL")
TODAY = datetime.now(UTC).date()
"""The last day that can be due."""


class Batch(NamedTuple):
    """Rows of one class, by wire keys; None stands for an absent value."""

    view: str
    rows: Sequence[Mapping[str, str | None]]


# What is drawn --------------------------------------------------------------------------------
# From few names and times, so that keys repeat; and sometimes from all possible ones.

ODD = st.sampled_from(["É", "é", "İ", "ß", "\\", "'", '"', "\u202e", "%", ":", "\U0001f600"])
NAMES = st.sampled_from(["\\N", "%s", ":x"]) | st.text(
    st.one_of(st.characters(codec="utf-8", exclude_categories=["Cc"]), ODD), min_size=1, max_size=9
)
TEXTS = st.one_of(
    st.none(),
    st.sampled_from(["", "fine", "\\N", "a\tb\r\nc\\", "x" * 9000]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
)


def name(*known: str | None) -> st.SearchStrategy[str | None]:
    """Nearly always one of the known names."""
    return st.one_of(*[st.sampled_from(known)] * 9, NAMES)


def moment(*days_ago: int) -> st.SearchStrategy[str]:
    """One of the first or last seconds of one of the days, or noon."""
    seconds = (0, 1, 43200, 86399)
    midnight = datetime.combine(TODAY, time(), UTC)
    return st.sampled_from(
        [
            format_time(midnight - timedelta(days=days) + timedelta(seconds=second))
            for days in days_ago
            for second in seconds
        ]
    )


HOSTS = name("ce01.example.org", "CE01.Example.ORG", "É.example.org", "é.example.org")
FLAVOURS = name("CE", "SE")
SITES = name("North", "north", "Süd")
VOS = name("ops", "", None)
BAD_TIMES = st.sampled_from([None, "infinity", "2026-02-31", "2026-11-20T12:00:00.5Z"])

METRIC_OUTPUTS = st.fixed_dictionaries(
    {
        "hostName": HOSTS,
        "serviceFlavour": FLAVOURS,
        "serviceType": name("CE", None, None),
        "serviceURI": name("ce01.example.org:8443", None),
        "siteName": name("North", None, ""),
        "metricName": name("org.sam.CE-Ping", "org.sam.CE-JobSubmit"),
        "metricStatus": st.sampled_from([*STATUSES, "ok", "Critical"]),
        "timestamp": moment(20, 5, 4, 0, 1000),
        "gatheredAt": name("wn1.example.org", "WN1.example.org", "", None),
        "voName": VOS,
        "voFqan": name("/ops/Role=lcgadmin", "", None),
        "monitoringHost": name("nagios", "NAGIOS", "", None),
        "summaryData": TEXTS,
        "performanceData": TEXTS,
        "detailsData": TEXTS,
    }
)
SERVICE_ENDPOINTS = st.fixed_dictionaries(
    {
        "siteName": SITES,
        "hostName": HOSTS,
        "serviceFlavour": FLAVOURS,
        "serviceURI": TEXTS,
        "voName": VOS,
        "production": name("true", "false", None),
        "monitored": name("true", None),
        "validFrom": moment(21, 5, -3),
        "validTo": st.one_of(st.none(), moment(10, 4, 0, -9)),
    }
)
SITE_GROUPS = st.fixed_dictionaries(
    {
        "siteName": SITES,
        "groupName": name("North", "É"),
        "groupType": name("federation", "vo"),
        "weight": st.sampled_from(["0", "3", "2147483647", None]),
        "validFrom": moment(21, 5, -3),
        "validTo": st.one_of(st.none(), moment(10, 4, 0, -9)),
    }
)
SITE_CONTACTS = st.fixed_dictionaries(
    {
        "siteName": SITES,
        "contact": st.sampled_from(["+41 22 555 0100", "a@example.org", "É", "", None]),
        "timestamp": moment(21, 20),
    }
)
DOWNTIMES = st.fixed_dictionaries(
    {
        "downtimeId": name("D1", "D2", "", None),
        "siteName": name("North", "", None),
        "hostName": HOSTS,
        "serviceFlavour": name("CE", "", None),
        "startTime": moment(19, 6),
        "endTime": st.one_of(moment(19, 6), moment(6, 3, -2)),
        "classification": name("SCHEDULED"),
        "severity": name("OUTAGE", "WARNING"),
        "description": TEXTS,
        "timestamp": st.one_of(st.none(), moment(21, 20)),
    }
)
GOOD = {
    "metricOutput": METRIC_OUTPUTS,
    "serviceEndpoint": SERVICE_ENDPOINTS,
    "siteGroup": SITE_GROUPS,
    "siteContact": SITE_CONTACTS,
    "downtime": DOWNTIMES,
}
BAD = {
    "metricOutput": {
        "hostName": st.sampled_from(["", None]),
        "metricName": st.sampled_from(["", None]),
        "serviceFlavour": st.just(""),
        "metricStatus": st.sampled_from(["FINE", "", None, "cr\u0131tical"]),
        "timestamp": BAD_TIMES,
    },
    "serviceEndpoint": {"siteName": st.just(""), "validFrom": BAD_TIMES},
    "siteGroup": {"weight": st.sampled_from(["-1", "1.5", "many", ""]), "validFrom": BAD_TIMES},
    "siteContact": {"contact": st.just("x" * 256), "timestamp": BAD_TIMES},
    "downtime": {"severity": st.sampled_from(["", None]), "endTime": BAD_TIMES},
}


@st.composite
def batches(draw: st.DrawFn) -> list[Batch]:
    """Batches in which some rows repeat, in their own batch or in a later one."""
    earlier: dict[str, list[Mapping[str, str | None]]] = defaultdict(list)
    drawn: list[Batch] = []
    number = 0
    for view in draw(st.lists(st.sampled_from(sorted(GOOD)), min_size=1, max_size=8)):
        rows = []
        for _ in range(draw(st.integers(1, 8))):
            kind = draw(st.sampled_from(["new"] * 6 + ["repeated"] * 3 + ["bad"]))
            if kind == "repeated" and earlier[view]:
                row = draw(st.sampled_from(earlier[view]))
            else:
                row = draw(GOOD[view])
            if kind == "bad":
                column = draw(st.sampled_from(sorted(BAD[view])))
                row = {**row, column: draw(BAD[view][column])}
            number += 1
            rows.append({**row, "messageId": f"m-{number}", "publisher": PUBLISHER})
            earlier[view].append(row)
        drawn.append(Batch(view, rows))
    return drawn


PUBLISHER = "uid:7"

# The doors ------------------------------------------------------------------------------------

Rows = Sequence[Mapping[str, str | None]]
Door = Callable[[Connection, ClassView, Rows], object]


def one_by_one(connection: Connection, view: ClassView, rows: Rows) -> None:
    """One INSERT for each row."""
    for row in rows:
        with connection.begin_nested():
            insert_rows(connection, view, [row])


def insert_rows(connection: Connection, view: ClassView, rows: Rows) -> None:
    """One INSERT of many rows."""
    names = list(rows[0])
    marks = ", ".join(
        f"({', '.join(f':{name}{number}' for name in names)})" for number in range(len(rows))
    )
    values = {f"{name}{number}": row[name] for number, row in enumerate(rows) for name in names}
    connection.execute(text(f"INSERT INTO {view.name} ({', '.join(names)}) VALUES {marks}"), values)


def by_copy(connection: Connection, view: ClassView, rows: Rows) -> None:
    """COPY into the view."""
    in_bulk(connection, replace(view, bulk=False), rows)


def in_bulk(connection: Connection, view: ClassView, rows: Rows) -> int:
    """COPY past the trigger, as the loader does; returns how many were duplicates."""
    present = [{key.lower(): v for key, v in row.items() if v is not None} for row in rows]
    return copy_rows(connection, view, [(row, row["messageid"], PUBLISHER) for row in present])


DOORS: Mapping[str, Door] = {
    door.__name__: door for door in (one_by_one, insert_rows, by_copy, in_bulk)
}


def store_by_halving(
    connection: Connection, view: ClassView, rows: Rows, door: Door
) -> set[str | None]:
    """Store the good rows; return the message ids of the bad ones."""
    try:
        with connection.begin_nested():
            door(connection, view, rows)
        return set()
    except DRIVER_ERRORS:
        if len(rows) == 1:
            return {rows[0]["messageId"]}
    half = len(rows) // 2
    halves = [store_by_halving(connection, view, part, door) for part in (rows[:half], rows[half:])]
    return halves[0] | halves[1]


# The contents ---------------------------------------------------------------------------------

VIEWS = {
    **{
        known.name: f"SELECT {', '.join(known.keys)}, messageId FROM {known.name}"
        for known in BUILT_IN.values()
    },
    "current_status": """
        SELECT site, service_flavour, host_name, metric_name, vo, status, since, measured_at
        FROM current_status
    """,
    "report_changed_day": "SELECT day, change_no FROM report_changed_day",
    "report_topology": """
        SELECT site, host_name, service_flavour, vo, valid_from, valid_from_s, valid_to_s
        FROM report_topology
    """,
    "report_site_contact": "SELECT site, contact, announced_at FROM report_site_contact",
    "report_downtime": """
        SELECT downtime_id, site, host_name, service_flavour, start_s, end_s FROM report_downtime
    """,
}
NAME_TABLES = ("site", "host", "service_flavour", "metric", "vo", "fqan")
TABLES = {
    **{table: f"SELECT name FROM {table}" for table in NAME_TABLES},
    "site_group": "SELECT group_type, name FROM site_group",
    "claim": "SELECT class, message_id FROM claim",
    "endpoint": """
        SELECT h.name, f.name
        FROM endpoint AS e
        JOIN host AS h ON h.host_id = e.host_id
        JOIN service_flavour AS f ON f.service_flavour_id = e.service_flavour_id
    """,
    "metric_instance": """
        SELECT host_name, service_flavour, metric_name, vo, fqan FROM metric_instance_name
    """,
    "result_source": """
        SELECT
            n.host_name, n.service_flavour, n.metric_name, n.vo, n.fqan, k.service_uri,
            k.service_type, k.site_name, k.metric_type, k.data_type, k.role, k.nagios_name,
            k.encrypted
        FROM result_source AS k
        JOIN metric_instance_name AS n ON n.instance_id = k.instance_id
    """,
    "gatherer": "SELECT gathered_at, monitoring_host FROM gatherer",
}
COUNTED = (
    *TABLES,
    "instance_status",
    "metric_result",
    "endpoint_membership",
    "site_group_member",
    "site_contact",
    "announced_downtime",
)


def contents(engine: Engine) -> dict[str, Any]:
    """All that must not depend on the door: sorted rows of views and tables, and counts."""
    rows_of: dict[str, Any] = {
        name: sorted(map(plain, query(engine, statement)), key=repr)
        for name, statement in {**VIEWS, **TABLES}.items()
    }
    for table in COUNTED:
        [[count]] = query(engine, f"SELECT count(*) FROM {table}")
        rows_of[f"count of {table}"] = count
    return rows_of


def plain(row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(value.isoformat() if isinstance(value, date) else value for value in row)


def newest_statuses(results: Sequence[Sequence[Any]]) -> set[tuple[Any, ...]]:
    """The expected rows of current_status, without sites, from the rows of metricOutput."""
    keys = [*BUILT_IN["metricoutput"].keys]
    timelines: dict[tuple[str, ...], dict[str, str]] = defaultdict(dict)
    for result in results:
        row = dict(zip(keys, result[:-1], strict=True))
        timeline = timelines[
            row["serviceFlavour"], row["hostName"], row["metricName"], row["voName"] or ""
        ]
        when, status = row["timestamp"], row["metricStatus"]
        timeline[when] = max(timeline.get(when, "OK"), status, key=STATUSES.index)
    return {(*names, *newest(timeline)) for names, timeline in timelines.items()}


def newest(timeline: Mapping[str, str]) -> tuple[str, str, str]:
    """The last status, the time since which it holds, and the time of its last result."""
    measured_at = max(timeline)
    status = timeline[measured_at]
    other_at = max((when for when in timeline if timeline[when] != status), default="")
    return status, min(when for when in timeline if when > other_at), measured_at


# The databases --------------------------------------------------------------------------------


class Database(NamedTuple):
    """A database as its owner and as a loader."""

    owner: Engine
    loader: Engine


@pytest.fixture(scope="module")
def databases(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Database]]:
    """PostgreSQL: one for each door and one for all doors in turns; and one of SQLite."""
    urls = {door: new_url(postgres) for door in (*DOORS, "mixed")}
    urls["sqlite"] = f"sqlite:///{tmp_path_factory.mktemp('doors') / 'sam.db'}"
    with ExitStack() as stack:
        opened = {}
        for name, url in urls.items():
            if name != "sqlite":
                stack.callback(drop_database, postgres, url)
            engine = with_schema(url)
            stack.callback(engine.dispose)
            opened[name] = Database(engine, stack.enter_context(acting_as("loader", engine)))
        yield opened


def empty(engine: Engine) -> None:
    with writing(engine) as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(EMPTY_ALL_TABLES)
            return
        connection.execute(text("PRAGMA defer_foreign_keys = ON"))
        for table in (*COUNTED, "metric_result_detail", "changed_day"):
            connection.execute(text(f"DELETE FROM {table}"))


# It is loaded first: days before the first one with results are not due, and otherwise the time of
# a fold would decide which days are due for changed topology.
FIRST = {
    **dict.fromkeys(BUILT_IN["metricoutput"].keys),
    "hostName": "first.example.org",
    "serviceFlavour": "CE",
    "metricName": "org.sam.CE-Ping",
    "metricStatus": "OK",
    "timestamp": format_time(datetime.combine(TODAY, time(), UTC) - timedelta(days=1001)),
    "messageId": "first",
    "publisher": PUBLISHER,
}


def load_all(
    database: Database, drawn: Sequence[Batch], doors: Sequence[str]
) -> tuple[dict[str, Any], list[set[str | None]]]:
    """The contents afterwards, and the refused rows of each batch."""
    empty(database.owner)
    catalogue = Catalogue(database.loader)
    refused = []
    for batch, door in zip([Batch("metricOutput", [FIRST]), *drawn], doors, strict=True):
        view = catalogue.find(batch.view)
        assert view is not None
        with writing(database.loader) as connection:
            refused.append(store_by_halving(connection, view, batch.rows, DOORS[door]))
        if batch.rows == [FIRST]:
            fold_all(database.loader)
    fold_all(database.loader)
    return contents(database.owner), refused


def has_repeated_keys(batch: Batch) -> bool:
    """Whether two rows of the batch have the same key, but for upper and lower case."""
    names = BUILT_IN[batch.view.lower()].natural_key
    keys = {tuple((row.get(name) or "").lower() for name in names) for row in batch.rows}
    return len(keys) < len(batch.rows)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(drawn=batches(), data=st.data())
def test_every_door_leaves_the_same_contents(
    databases: Mapping[str, Database], drawn: list[Batch], data: st.DataObject
) -> None:
    turns = {name: [name] * (len(drawn) + 1) for name in DOORS}
    turns["mixed"] = [data.draw(st.sampled_from(sorted(DOORS))) for _ in range(len(drawn) + 1)]
    turns["sqlite"] = turns["one_by_one"]

    outcomes = {name: load_all(databases[name], drawn, doors) for name, doors in turns.items()}

    by_sqlite, refused = outcomes.pop("sqlite")
    for door, (by_door, refused_by_door) in outcomes.items():
        assert refused_by_door == refused, door
        for name in by_sqlite.keys() - {"report_changed_day"}:
            assert by_door[name] == by_sqlite[name], (door, name)
        days, by_row = set(by_door["report_changed_day"]), set(by_sqlite["report_changed_day"])
        if door == "one_by_one" or not any(map(has_repeated_keys, drawn)):
            assert days == by_row, door
        # A statement whose later rows undo what its earlier rows changed has not changed the day.
        assert days <= by_row, door
    assert {row[1:] for row in by_sqlite["current_status"]} == newest_statuses(
        by_sqlite["metricOutput"]
    )
