"""Rows loaded through any door, into either database, leave the same contents."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Connection, Engine, text

from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.records.classes import BUILT_IN, METRIC_OUTPUT, STATEMENTS
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.schema.records.text import Record
from sam_pipeline.sql.database.engine import load_transaction, writing
from sam_pipeline.sql.database.statements import HISTORIES
from sam_pipeline.sql.errors import DRIVER_ERRORS, DatabaseAway
from sam_pipeline.sql.loading.catalogue import Catalogue, ClassView
from sam_pipeline.sql.loading.fold import fold, fold_all, take_changes
from sam_pipeline.sql.loading.insert import Inserted, copy_rows, insert_batch
from sam_pipeline.sql.loading.load import decode_batch
from tests.support.builders import NOW, metric_result
from tests.support.database.dialects import only_on
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import (
    Values,
    downtime,
    message_of,
    query,
    service_endpoint,
    site_contact,
    site_group,
)
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
            # Without a timestamp a statement is said when it arrives, which is not the same twice.
            row["timestamp"] = row["timestamp"] or "2026-11-02T10:00:02Z"
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
CONTENTS = {
    "metricOutput": f"SELECT {', '.join(METRIC_OUTPUT.keys)}, messageId FROM metricOutput",
    **{
        known.name: f"SELECT {', '.join(known.keys)}, messageId, source FROM {known.name}"
        for known in STATEMENTS
    },
    # Which of equal statements are kept depends on when they arrived.
    **{
        HISTORIES[known.name]: f"""
            SELECT DISTINCT {", ".join(key for key in known.keys if key != "timestamp")}
            FROM {HISTORIES[known.name]}
        """
        for known in STATEMENTS
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
    "result_repeat": "SELECT message_id FROM result_repeat",
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
        for table in ("metric_instance", "instance_status", "metric_result")
    },
}


def contents(engine: Engine) -> dict[str, Any]:
    """All that must not depend on the door: sorted rows of views and tables."""

    def plain(row: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(value.isoformat() if isinstance(value, date) else value for value in row)

    return {
        name: sorted(map(plain, query(engine, statement)), key=repr)
        for name, statement in CONTENTS.items()
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
    for name, rows in expected.items():
        assert (rows or name == "result_repeat") and found[name] == rows, name


# Several loaders at once --------------------------------------------------------------------------

LOADERS = 8
STATUSES = ("OK", "WARNING", "UNKNOWN", "CRITICAL")
SITES, DAYS, RESULTS = 12, 6, 240


def results(seed: int) -> list[Record]:
    """The same keys for every seed, in another order, with other statuses."""
    rng = random.Random(seed)
    records = [
        metric_result(
            hostName=f"host{number % 40:02d}.example.org",
            metricName=f"org.sam.M{number % 7}",
            voName=f"vo{number % 3}",
            gatheredAt=f"wn{number % 5}.example.org",
            timestamp=f"2026-11-{1 + number % DAYS:02d}T{number % 24:02d}:00:00Z",
            metricStatus=rng.choice(STATUSES),
            detailsData=f"of loader {seed}",
        )
        for number in range(RESULTS)
    ]
    rng.shuffle(records)
    return records


def all_classes(seed: int) -> list[Message]:
    """Messages of each class, one of them with a row that the database refuses.

    The keys are the same for every seed, in another order; the last seed has the last word.
    """
    rng, mine = random.Random(seed), f"of loader {seed}"
    at = f"2026-11-{10 + seed:02d}T00:00:00Z"
    sites = [f"SITE-{number}" for number in range(SITES)]
    rows: dict[str, list[Values]] = {
        "serviceEndpoint": [
            service_endpoint(
                siteName=site,
                hostName=f"host{number:02d}.example.org",
                timestamp=at,
                validTo=f"2027-01-{10 + seed:02d}T00:00:00Z",
            )
            for number, site in enumerate(sites)
        ],
        "siteGroup": [
            *(site_group(siteName=site) for site in sites),
            site_group(siteName="SITE-X", weight="-1"),
        ],
        "siteContact": [site_contact(siteName=s, timestamp=at, contact=mine) for s in sites],
        "downtime": [
            downtime(downtimeId=site, siteName=site, timestamp=at, description=mine)
            for site in sites
        ],
    }
    messages = [message_of("metricOutput", *results(seed)[n : n + 40]) for n in range(0, 240, 40)]
    for name, of_class in rows.items():
        rng.shuffle(of_class)
        messages += [message_of(name, *half) for half in (of_class[:6], of_class[6:])]
    rng.shuffle(messages)
    return messages


@contextmanager
def repeating(*actions: Callable[[], object]) -> Iterator[None]:
    """Repeat the actions while the block runs; their errors are raised at its end."""
    finished = threading.Event()

    def repeat(action: Callable[[], object]) -> None:
        while not finished.wait(0.01):
            action()

    with ThreadPoolExecutor(len(actions)) as pool:
        running = [pool.submit(repeat, action) for action in actions]
        try:
            yield
        finally:
            finished.set()
        for future in running:
            future.result()


def test_concurrent_loaders_lose_nothing_whichever_door_they_use(own_engine: Engine) -> None:
    """On PostgreSQL they choose between COPY and the view, and make partitions on demand."""

    def load_all(seed: int) -> list[Inserted]:
        rng, to_load, inserted = random.Random(seed), all_classes(seed), []
        for at in range(0, len(to_load), 4):
            batch = decode_batch(Catalogue(loader), to_load[at : at + 4], NOW, Limits())
            for part in batch.by_view.values():
                part.view = replace(part.view, bulk=part.view.bulk and rng.random() < 0.5)
            insert = lambda connection, batch=batch: insert_batch(connection, batch)  # noqa: E731
            inserted.append(load_transaction(loader, insert))
        return inserted

    def number_changes() -> None:
        with writing(reporter) as connection:
            take_changes(connection)

    with (
        acting_as("loader", own_engine) as loader,
        acting_as("reporter", own_engine) as reporter,
        repeating(lambda: fold(loader), number_changes),
        ThreadPoolExecutor(LOADERS) as pool,
    ):
        loaded = list(pool.map(load_all, range(LOADERS), timeout=120))
    fold_all(own_engine)

    for batches in loaded:
        assert (
            sum(batch.counts.rows + batch.counts.duplicates for batch in batches)
            == RESULTS + 4 * SITES
        )
        [refused] = [failure.text for batch in batches for failure in batch.failures]
        assert "weight" in refused
    assert_everything_is_stored(own_engine)


def assert_everything_is_stored(engine: Engine) -> None:
    keys = ("hostName", "metricName", "voName", "timestamp", "gatheredAt")
    names = (*keys, "metricStatus", "detailsData")
    sent = [tuple(r[name] for name in names) for seed in range(LOADERS) for r in results(seed)]
    assert sorted(query(engine, f"SELECT {', '.join(names)} FROM metricOutput")) == sorted(sent)
    instances = len({row[:3] for row in sent})
    tables = {"metric_instance": instances, "host": 41, "metric": 7, "vo": 4, "gatherer": 5}
    for table, count in {**tables, "current_status": instances}.items():
        assert query(engine, f"SELECT count(*) FROM {table}") == [(count,)], table
    days = {f"2026-11-{1 + day:02d}" for day in range(DAYS + 1)}
    assert days <= {str(row[0]) for row in query(engine, "SELECT day FROM report_changed_day")}
    last = f"of loader {LOADERS - 1}"
    for statement, expected in {
        "SELECT siteName, validTo FROM serviceEndpoint": "2027-01-17T00:00:00Z",
        "SELECT siteName, groupName FROM siteGroup": "North",
        "SELECT siteName, contact FROM siteContact": last,
        "SELECT downtimeId, description FROM downtime": last,
    }.items():
        found = sorted(query(engine, statement))
        assert found == sorted((f"SITE-{number}", expected) for number in range(SITES))


# Days that become due, on PostgreSQL: SQLite has one writer at a time -----------------------------

MARKED = "SELECT CAST(day AS text) FROM changed_day WHERE change_no IS NULL ORDER BY day"
MARK = text("SELECT mark_days(ARRAY[CAST(:day AS timestamptz)], ARRAY[CAST(:end AS timestamptz)])")
DUE = ["2026-11-18", "2026-11-19", "2026-11-20"]
IN_A_SECOND = text("SET LOCAL lock_timeout = '1s'")


def mark(connection: Connection, day: str) -> None:
    """What the triggers of a loader do for a row that counts on one day."""
    connection.execute(MARK, {"day": f"{day}T00:00:00Z", "end": f"{day}T00:00:01Z"})


@pytest.fixture
def marked(engine: Engine) -> Engine:
    """Three days are due."""
    with writing(engine) as connection:
        for day in DUE:
            connection.execute(text("INSERT INTO changed_day (day) VALUES (:day)"), {"day": day})
    return engine


@only_on("postgresql")
def test_loaders_mark_days_that_are_due_in_any_order_without_a_deadlock(marked: Engine) -> None:
    with writing(marked) as one, writing(marked) as other:
        for connection, day in ((one, 0), (other, 1), (one, 1), (other, 0)):
            connection.execute(IN_A_SECOND)
            mark(connection, DUE[day])

    assert query(marked, MARKED) == [(day,) for day in DUE]


@only_on("postgresql")
def test_a_report_waits_for_a_loader_whose_day_was_due_before(marked: Engine) -> None:
    """Otherwise it would number a change that it does not read."""
    with writing(marked) as loader:
        mark(loader, DUE[0])
        with pytest.raises(DatabaseAway, match="lock timeout"), writing(marked) as reporter:
            reporter.execute(IN_A_SECOND)
            take_changes(reporter)

    with writing(marked) as reporter:
        take_changes(reporter)
    assert query(marked, MARKED) == []
    with writing(marked) as loader:
        mark(loader, DUE[1])
    assert query(marked, MARKED) == [(DUE[1],)]
