"""Creating the partitions of coming days (PostgreSQL only)."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, timedelta

from sqlalchemy import Engine

from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.partitions import (
    DETAILS,
    RESULTS,
    Partition,
    Partitions,
    partitions,
)


def make_partitions(engine: Engine, days: Collection[date]) -> list[Partition]:
    """Create the missing partitions of these days, and return them; none on SQLite.

    Raises:
        DatabaseRefused: only the owner and the loader may create partitions.
    """
    with reading(engine) as connection:
        before = partitions(connection)
    existing = {(partition.parent, partition.day) for partition in before}
    wanted = {(parent, day) for parent in (RESULTS, DETAILS) for day in days}
    if engine.dialect.name == "sqlite" or wanted <= existing:
        return []
    Partitions(engine).make(map(str, days))
    with reading(engine) as connection:
        names = {partition.name for partition in before}
        return [partition for partition in partitions(connection) if partition.name not in names]


def coming_days(today: date, ahead: int) -> list[date]:
    """Today and the `ahead` days after it."""
    return [today + timedelta(days=number) for number in range(ahead + 1)]
