"""Several loaders at once that load the same new names and the same results."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.messages.decode import read
from sam_pipeline.schema.messages.message import JSON, Message, new_message
from sam_pipeline.schema.records.json_form import write_json
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.schema.records.text import ReadRecord, Record
from sam_pipeline.sql.database.engine import make_engine, writing
from sam_pipeline.sql.database.transaction import load_transaction
from sam_pipeline.sql.database.version import upgrade
from sam_pipeline.sql.loading.batch import Batch
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.fold import fold, fold_all, take_changes
from sam_pipeline.sql.loading.insert import Inserted, insert_batch
from sam_pipeline.sql.loading.load import decode_batch, load
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import (
    downtime,
    query,
    service_endpoint,
    site_contact,
    site_group,
)

LOADERS = 8
STATUSES = ("OK", "WARNING", "UNKNOWN", "CRITICAL")


def shuffled_results(seed: int) -> list[Record]:
    """The same hosts, metrics and times for every seed, in another order, with other statuses."""
    rng = random.Random(seed)
    records = [
        metric_result(
            hostName=f"host{number % 40:02d}.example.org",
            metricName=f"org.sam.M{number % 7}",
            voName=f"vo{number % 3}",
            siteName=f"SITE-{number % 11}",
            gatheredAt=f"wn{number % 5}.example.org",
            timestamp=f"2026-11-20T{number % 12:02d}:00:00Z",
            metricStatus=rng.choice(STATUSES),
        )
        for number in range(400)
    ]
    rng.shuffle(records)
    return records


def messages(seed: int) -> list[Message]:
    records = shuffled_results(seed)
    return [metric_message(*records[at : at + 50]) for at in range(0, len(records), 50)]


def worst(all_records: Sequence[Record]) -> dict[tuple[str, ...], str]:
    """The worst status of each result, by its key."""
    keys = ("hostName", "metricName", "voName", "timestamp", "gatheredAt")
    status_of: dict[tuple[str, ...], str] = {}
    for record in all_records:
        key = tuple(record[name] for name in keys)
        status_of[key] = max(status_of.get(key, "OK"), record["metricStatus"], key=STATUSES.index)
    return status_of


def test_concurrent_loaders_neither_deadlock_nor_duplicate(engine: Engine) -> None:
    def load_all(seed: int) -> int:
        with acting_as("loader", engine) as loader:
            catalogue = Catalogue(loader)
            outcomes = [load(loader, catalogue, [message], NOW) for message in messages(seed)]
            return sum(outcome.rows + outcome.duplicates for outcome in outcomes)

    with ThreadPoolExecutor(LOADERS) as pool:
        loaded = list(pool.map(load_all, range(LOADERS), timeout=120))

    assert loaded == [400] * LOADERS
    rows = query(
        engine,
        """
        SELECT hostName, metricName, voName, timestamp, gatheredAt, metricStatus
        FROM metricOutput
        """,
    )
    expected = worst([record for seed in range(LOADERS) for record in shuffled_results(seed)])
    assert {row[:5]: row[5] for row in rows} == expected
    assert len(rows) == len(expected)
    for table, names in (("host", 40), ("metric", 7), ("vo", 3), ("fqan", 1)):
        assert query(engine, f"SELECT count(*), count(DISTINCT name) FROM {table}") == [
            (names, names)
        ]
    assert query(engine, "SELECT count(*), count(DISTINCT gathered_at) FROM gatherer") == [(5, 5)]


# Only on PostgreSQL: two doors, partitions made on demand, statuses and days folded later ---------

DOORS: Mapping[str, Callable[[random.Random], bool]] = {
    "bulk door": lambda _: True,
    "view": lambda _: False,
    "either": lambda rng: rng.random() < 0.5,
}
"""Whether a class of a batch goes by the bulk door."""

SITES, DAYS = 12, 6


def all_classes(seed: int) -> list[Message]:
    """Messages of each class, one of them with a row that the database refuses.

    The keys are the same for every seed, in another order; which of two rows wins differs.
    """
    rng = random.Random(seed)
    results = [
        metric_result(
            hostName=f"host{number % 40:02d}.example.org",
            metricName=f"org.sam.M{number % 7}",
            voName=f"vo{number % 3}",
            gatheredAt=f"wn{number % 5}.example.org",
            timestamp=f"2026-11-{1 + number % DAYS:02d}T{number % 24:02d}:00:00Z",
            metricStatus=rng.choice(STATUSES),
            detailsData=f"of loader {seed}",
        )
        for number in range(240)
    ]
    others = {
        "serviceEndpoint": [
            service_endpoint(
                siteName=f"SITE-{number}",
                hostName=f"host{number:02d}.example.org",
                validTo=f"2027-01-{10 + seed:02d}T00:00:00Z",
            )
            for number in range(SITES)
        ],
        "siteGroup": [
            *(site_group(siteName=f"SITE-{number}", validTo=None) for number in range(SITES)),
            site_group(siteName="SITE-X", weight="-1"),
        ],
        "siteContact": [
            site_contact(
                siteName=f"SITE-{number}",
                timestamp=f"2026-11-{10 + seed:02d}T00:00:00Z",
                contact=f"of loader {seed}",
            )
            for number in range(SITES)
        ],
        "downtime": [
            downtime(
                downtimeId=f"D{number}",
                siteName=f"SITE-{number}",
                timestamp=f"2026-11-{10 + seed:02d}T00:00:00Z",
                description=f"of loader {seed}",
            )
            for number in range(SITES)
        ],
    }
    rng.shuffle(results)
    all_messages = [metric_message(*results[at : at + 40]) for at in range(0, len(results), 40)]
    for name, rows in others.items():
        rng.shuffle(rows)
        all_messages += [
            new_message(name, write_json(half), content_type=JSON)  # type: ignore[arg-type]
            for half in (rows[: SITES // 2], rows[SITES // 2 :])
        ]
    rng.shuffle(all_messages)
    return all_messages


@pytest.fixture
def new_postgres(postgres_url: str) -> Iterator[Engine]:
    """A database without a partition."""
    engine = make_engine(postgres_url)
    upgrade(engine)
    yield engine
    engine.dispose()


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


@pytest.mark.parametrize("door", DOORS)
def test_concurrent_loaders_lose_nothing_whichever_door_they_use(
    new_postgres: Engine, door: str
) -> None:
    engine = new_postgres

    def load_all(seed: int) -> list[Inserted]:
        rng, to_load = random.Random(seed), all_classes(seed)
        return [
            insert_by(loader, to_load[at : at + 4], DOORS[door], rng)
            for at in range(0, len(to_load), 4)
        ]

    def number_changes() -> None:
        with writing(reporter) as connection:
            take_changes(connection)

    with (
        acting_as("loader", engine) as loader,
        acting_as("reporter", engine) as reporter,
        repeating(lambda: fold(loader), number_changes),
        ThreadPoolExecutor(LOADERS) as pool,
    ):
        inserted = list(pool.map(load_all, range(LOADERS), timeout=120))
    fold_all(engine)

    for batches in inserted:
        assert sum(batch.rows + batch.duplicates for batch in batches) == 240 + 4 * SITES
        [refused] = [failure.text for batch in batches for failure in batch.failures]
        assert "weight" in refused
    assert_everything_is_stored(engine)


def insert_by(
    engine: Engine,
    messages: Sequence[Message],
    is_bulk: Callable[[random.Random], bool],
    rng: random.Random,
) -> Inserted:
    """Load a batch as `load` does, but through the door that `is_bulk` chooses."""
    batch: Batch = decode_batch(Catalogue(engine), messages, NOW, Limits())
    for part in batch.by_view.values():
        part.view = replace(part.view, bulk=is_bulk(rng))
    return load_transaction(engine, lambda connection: insert_batch(connection, batch))


def assert_everything_is_stored(engine: Engine) -> None:
    results = [
        record
        for seed in range(LOADERS)
        for message in all_classes(seed)
        if message.message_class == "metricOutput"
        for record in records_of(message)
    ]
    expected = worst(results)
    rows = query(
        engine,
        """
        SELECT hostName, metricName, voName, timestamp, gatheredAt, metricStatus, detailsData
        FROM metricOutput
        """,
    )
    assert {row[:5]: row[5] for row in rows} == expected
    assert len(rows) == len(expected)
    assert all(row[6] for row in rows)
    names = {key[:3] for key in expected}
    assert query(engine, "SELECT count(*) FROM metric_instance") == [(len(names),)]
    assert query(engine, "SELECT count(*) FROM current_status") == [(len(names),)]
    days = {f"2026-11-{1 + day:02d}" for day in range(DAYS + 1)}
    assert days <= {str(row[0]) for row in query(engine, "SELECT day FROM report_changed_day")}
    assert set(query(engine, "SELECT siteName, validTo FROM serviceEndpoint")) == {
        (f"SITE-{number}", "2027-01-10T00:00:00Z") for number in range(SITES)
    }
    assert sorted(query(engine, "SELECT siteName FROM siteGroup")) == sorted(
        (f"SITE-{number}",) for number in range(SITES)
    )
    assert set(query(engine, "SELECT siteName, contact FROM siteContact")) == {
        (f"SITE-{number}", f"of loader {LOADERS - 1}") for number in range(SITES)
    }
    assert sorted(query(engine, "SELECT downtimeId, description FROM downtime")) == sorted(
        (f"D{number}", f"of loader {LOADERS - 1}") for number in range(SITES)
    )


def records_of(message: Message) -> list[Record]:
    return [record.fields for record in read(message) if isinstance(record, ReadRecord)]
