"""Batches of random worlds, judged; of a wrong world as little as is wrong is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime

from pyspark.sql import SparkSession

from tests.oracle.batch import Batch, Facts, drawn_batch
from tests.oracle.databases import DIALECTS, Databases
from tests.oracle.spark import Arrangement, spark_facts
from tests.worlds.model import World
from tests.worlds.profile_file import to_toml
from tests.worlds.records import wire_time

ROWS = ("results", "downtimes", "exclusions", "site_groups", "endpoints")


@dataclass(frozen=True)
class Checker:
    """Compares what Spark and the oracle say of a batch."""

    spark: SparkSession
    databases: Databases

    def check(self, seed: int, number: int, size: int) -> None:
        """One batch of a seed, in an arrangement of its own, on either database by turns.

        Raises:
            AssertionError: tells a wrong world, made as small as it goes.
        """
        batch = drawn_batch(seed, number, size)
        arrangement = Arrangement(
            shuffled=number,
            copies=number % 3 / 4,
            partitions=1 + number % 4,
            cores=1 + number % 3,
            compiled=number % 5 == 4,
        )
        dialect = DIALECTS[number % 2]

        def wrong(worlds: Sequence[World]) -> list[bool]:
            judged = replace(batch, worlds=worlds)
            oracle, spark = judged.oracle_facts(), self.facts(judged, arrangement, dialect)
            return [oracle[name] != spark[name] for name in oracle]

        found = [
            world
            for world, is_wrong in zip(batch.worlds, wrong(batch.worlds), strict=True)
            if is_wrong
        ]
        if found:
            small = replace(batch, worlds=[smallest(found[0], wrong)])
            answers = self.facts(small, arrangement, dialect)
            head = f"seed {seed}, batch {number} of {size}, {dialect}, {arrangement}"
            raise AssertionError(
                f"{head}: {len(found)} worlds are wrong, one of them:\n{told(small, answers)}"
            )

    def facts(self, batch: Batch, arrangement: Arrangement, dialect: str) -> dict[str, Facts]:
        with self.databases.empty(dialect) as engine:
            return spark_facts(self.spark, engine, batch, arrangement, self.databases.directory)


def smallest(world: World, wrong: Callable[[Sequence[World]], Sequence[bool]]) -> World:
    """The world without the rows that it is wrong without; all attempts of a round are one batch.

    As it was, if it is only wrong in the company it had.
    """
    while True:
        attempts = list(_smaller(world))
        found = [each for each, is_wrong in zip(attempts, wrong(attempts), strict=True) if is_wrong]
        if not found:
            return world
        world = min(found, key=lambda each: sum(len(getattr(each, name)) for name in ROWS))


def _smaller(world: World) -> Iterator[World]:
    """Without some rows of a kind: all of them, a half, a quarter, one."""
    for name in ROWS:
        rows = getattr(world, name)
        for size in sorted({len(rows), len(rows) // 2, len(rows) // 4, 1} - {0}, reverse=True):
            for at in range(0, len(rows), size):
                yield replace(world, **{name: rows[:at] + rows[at + size :]})


def told(batch: Batch, spark: dict[str, Facts]) -> str:
    """The inputs of the batch's first world, and where the answers differ."""
    [(name, world), *_] = batch.named.items()
    oracle = batch.oracle_facts()[name]
    answers = sorted(
        fact for fact in {*oracle, *spark[name]} if oracle.get(fact) != spark[name].get(fact)
    )
    lines = [*map(to_toml, batch.profiles), f"run at {wire_time(batch.setting.until)}"]
    lines += [_row(row) for row in batch.setting.exclusions]
    lines += [_row(row) for kind in ROWS for row in getattr(world, kind)]
    for fact in answers[:12]:
        lines += [
            " ".join(fact),
            f"    oracle {oracle.get(fact)}",
            f"    spark  {spark[name].get(fact)}",
        ]
    return "\n".join(lines)


def _row(row: object) -> str:
    """What is in the row but for what is empty."""
    values = {field.name: getattr(row, field.name) for field in fields(row)}
    given = {
        name: wire_time(value) if isinstance(value, datetime) else value
        for name, value in values.items()
        if value not in ("", None)
    }
    return f"{type(row).__name__}({', '.join(f'{name}={value}' for name, value in given.items())})"
