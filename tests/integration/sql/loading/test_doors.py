"""Rows loaded through any door, into either database, leave the same contents."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Connection, Engine, text

from sam_pipeline.schema.records.classes import BUILT_IN
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.errors import DRIVER_ERRORS
from sam_pipeline.sql.loading.catalogue import Catalogue, ClassView
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.staging import copy_rows
from tests.support.builders import metric_result
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import query
from tests.support.database.with_schema import with_schema
from tests.worlds.statements import random_worlds

WORLDS = 50
PUBLISHER = "uid:7"
ODD: Mapping[str, Sequence[str]] = {
    "hostName": ("{}.EXAMPLE.org", "{}.example.org", "É.{}", "é.{}"),
    "siteName": ("{}", "{}", "Süd {}", "\\N{}"),
    "summaryData": ("a\tb\r\nc\\", "\\N", "", "x" * 9000),
    "voFqan": ("/ops/Role=lcgadmin", ""),
    "voName": ("ops", "", "\U0001f600"),
    "serviceURI": ("'{}'", '"', "%s :x"),
    "messageId": ("m-{}",),
}
"""Other spellings of values, which some rows have."""
BAD: Mapping[str, Sequence[tuple[str, str | None]]] = {
    "metricOutput": [
        *(("hostName", ""), ("metricName", None), ("metricStatus", "cr\u0131tical")),
        *(("timestamp", "infinity"), ("timestamp", "2026-11-20T12:00:00.5Z")),
    ],
    "serviceEndpoint": [("siteName", ""), ("validFrom", "2026-02-31")],
    "siteGroup": [("weight", "-1"), ("weight", "1.5"), ("validFrom", None)],
    "siteContact": [("contact", "x" * 256), ("timestamp", "infinity")],
    "downtime": [("severity", ""), ("endTime", None)],
}

Row = Mapping[str, str | None]
Door = Callable[[Connection, ClassView, Sequence[Row]], object]


class Batch(NamedTuple):
    view: str
    rows: Sequence[Row]


def batches(seed: int) -> Iterator[Batch]:
    """Rows of few keys, of which some repeat in their batch or in a later one, and some are bad."""
    chance = random.Random(seed)
    said = [
        one for world in random_worlds(seed, WORLDS, (PUBLISHER,), hosts=("h2",)) for one in world
    ]
    earlier: dict[str, list[dict[str, str | None]]] = {view: [] for view in BAD}
    number = 0
    while said:
        view, rows = said[0].message_class, list[Row]()
        of_view = [one for one in said if one.message_class == view][: chance.randint(1, 8)]
        said = [one for one in said if one not in of_view]
        for one in of_view:
            number += 1
            row: dict[str, str | None] = dict.fromkeys(BUILT_IN[view.lower()].keys)
            row |= dict(one.record)
            for key in ODD:
                if key in row and chance.random() < 0.3:
                    row[key] = chance.choice(ODD[key]).format(row[key] or "")
            if earlier[view] and chance.random() < 0.3:
                row = chance.choice(earlier[view])
            earlier[view].append(row)
            if chance.random() < 0.1:
                row = row | dict([chance.choice(BAD[view])])
            rows.append({**row, "messageId": f"m-{number}", "publisher": PUBLISHER})
        yield Batch(view, rows)


# The doors ------------------------------------------------------------------------------------


def one_by_one(connection: Connection, view: ClassView, rows: Sequence[Row]) -> None:
    """One INSERT for each row."""
    for row in rows:
        with connection.begin_nested():
            insert_rows(connection, view, [row])


def insert_rows(connection: Connection, view: ClassView, rows: Sequence[Row]) -> None:
    """One INSERT of many rows."""
    names = list(rows[0])
    marks = ", ".join(f"({', '.join(f':{name}{n}' for name in names)})" for n in range(len(rows)))
    values = {f"{name}{n}": row[name] for n, row in enumerate(rows) for name in names}
    connection.execute(text(f"INSERT INTO {view.name} ({', '.join(names)}) VALUES {marks}"), values)


def by_copy(connection: Connection, view: ClassView, rows: Sequence[Row]) -> None:
    """COPY into the view."""
    in_bulk(connection, replace(view, bulk=False), rows)


def in_bulk(connection: Connection, view: ClassView, rows: Sequence[Row]) -> int:
    """COPY past the trigger, as the loader does."""
    present = [{key.lower(): v for key, v in row.items() if v is not None} for row in rows]
    return copy_rows(connection, view, [(row, row["messageid"], PUBLISHER) for row in present])


DOORS: Mapping[str, Door] = {d.__name__: d for d in (one_by_one, insert_rows, by_copy, in_bulk)}


def store_by_halving(
    connection: Connection, view: ClassView, rows: Sequence[Row], door: Door
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

INSTANCE = "n.host_name, n.service_flavour, n.metric_name, n.vo, n.fqan"
STATEMENTS = {
    **{
        known.name: f"SELECT {', '.join(known.keys)}, messageId FROM {known.name}"
        for known in BUILT_IN.values()
    },
    "current_status": """
        SELECT site, service_flavour, host_name, metric_name, vo, status, since, measured_at
        FROM current_status
    """,
    "report_changed_day": "SELECT day FROM report_changed_day",
    **{
        table: f"SELECT name FROM {table}"
        for table in ("site", "host", "service_flavour", "metric", "vo", "fqan")
    },
    "site_group": "SELECT group_type, name FROM site_group",
    "claim": "SELECT class, message_id FROM claim",
    "metric_instance": f"SELECT {INSTANCE} FROM metric_instance_name AS n",
    "result_source": f"""
        SELECT {INSTANCE}, k.service_uri, k.service_type, k.site_name, k.metric_type, k.data_type,
            k.role, k.nagios_name, k.encrypted
        FROM result_source AS k
        JOIN metric_instance_name AS n ON n.instance_id = k.instance_id
    """,
    "gatherer": "SELECT gathered_at, monitoring_host FROM gatherer",
    **{
        f"count of {table}": f"SELECT count(*) FROM {table}"
        for table in (
            *("metric_instance", "instance_status", "metric_result", "endpoint_membership"),
            *("site_group_member", "site_contact", "announced_downtime"),
        )
    },
}


def contents(engine: Engine) -> dict[str, Any]:
    """All that must not depend on the door: sorted rows of views and tables."""

    def plain(row: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(value.isoformat() if isinstance(value, date) else value for value in row)

    return {
        name: sorted(map(plain, query(engine, statement)), key=repr)
        for name, statement in STATEMENTS.items()
    }


def loaded(url: str, doors: Sequence[str], seed: int) -> tuple[dict[str, Any], list[Any]]:
    """The contents of a new database, and the message ids of the bad rows of each batch."""
    owner = with_schema(url)
    # Days before the first one with results are not due, so it is loaded first.
    first = metric_result(timestamp="2026-10-01T00:00:00Z", messageId="m-0", publisher=PUBLISHER)
    refused = []
    with acting_as("loader", owner) as loader:
        catalogue, chance = Catalogue(loader), random.Random(seed)
        for batch in [Batch("metricOutput", [first]), *batches(seed)]:
            view = catalogue.find(batch.view)
            assert view is not None
            with writing(loader) as connection:
                door = DOORS[chance.choice(doors)]
                refused.append(store_by_halving(connection, view, batch.rows, door))
            if len(refused) % 20 == 1:
                fold_all(loader)
        fold_all(loader)
    found = contents(owner)
    owner.dispose()
    return found, refused


@pytest.mark.parametrize("doors", [[door] for door in DOORS] + [[*DOORS]], ids="+".join)
def test_every_door_of_postgresql_leaves_the_contents_of_sqlite(
    postgres_url: str, tmp_path: Path, doors: list[str]
) -> None:
    seed = 8 + len(doors)  # 9: late results of several statuses in one fold

    expected, refused = loaded(f"sqlite:///{tmp_path / 'sam.db'}", ["one_by_one"], seed)
    found, refused_here = loaded(postgres_url, doors, seed)

    assert refused_here == refused
    assert sum(map(len, refused)) > 5
    # SQLite, which compares them as texts, may keep a repetition more.
    assert {*found.pop("claim")} <= {*expected.pop("claim")}
    for name, rows in expected.items():
        assert rows and found[name] == rows, name
