"""Several loaders at once that meet the same new names and the same results."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Engine

from schema.message import Message
from schema.record import Record
from sql.catalogue import Catalogue
from sql.load import load
from tests.builders import NOW, metric_message, metric_result
from tests.integration.roles import acting_as
from tests.integration.sql_rows import query

LOADERS = 8
STATUSES = ("OK", "WARNING", "UNKNOWN", "CRITICAL")


def some_results(seed: int) -> list[Record]:
    """The same hosts, metrics and moments for every seed, in another order and status."""
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
    records = some_results(seed)
    return [metric_message(*records[at : at + 50]) for at in range(0, len(records), 50)]


def worst(all_records: Sequence[Record]) -> dict[tuple[str, ...], str]:
    keys = ("hostName", "metricName", "voName", "timestamp", "gatheredAt")
    found: dict[tuple[str, ...], str] = {}
    for record in all_records:
        key = tuple(record[name] for name in keys)
        found[key] = max(found.get(key, "OK"), record["metricStatus"], key=STATUSES.index)
    return found


def test_loaders_at_once_neither_deadlock_nor_duplicate(engine: Engine) -> None:
    def load_all(seed: int) -> int:
        with acting_as("loader", engine) as loader:
            catalogue = Catalogue(loader)
            return sum(load(loader, catalogue, [one], NOW).rows for one in messages(seed))

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
    expected = worst([record for seed in range(LOADERS) for record in some_results(seed)])
    assert {row[:5]: row[5] for row in rows} == expected
    assert len(rows) == len(expected)
    for table, names in (("host", 45), ("metric", 7), ("vo", 3), ("fqan", 1)):
        assert query(engine, f"SELECT count(*), count(DISTINCT name) FROM {table}") == [
            (names, names)
        ]
