"""Compares Spark with the oracle on batches of random worlds, and reduces a world that differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime

from pyspark import SparkContext

from tests.oracle.batch import Batch, Facts, drawn_batch
from tests.oracle.databases import DIALECTS, Databases
from tests.oracle.spark import Arrangement, spark_facts
from tests.worlds.model import World
from tests.worlds.profile_file import to_toml
from tests.worlds.records import wire_time

ROWS = ("results", "downtimes", "exclusions", "site_groups", "endpoints")


@dataclass(frozen=True)
class Checker:
    """Compares the facts of Spark and the oracle for a batch."""

    spark: SparkContext
    databases: Databases

    def check(self, seed: int, number: int, size: int) -> None:
        """Compare one batch of a seed; its number chooses the arrangement and the database.

        Raises:
            AssertionError: Spark and the oracle differ; it shows one such world, reduced.
        """
        batch = drawn_batch(seed, number, size)
        arrangement = Arrangement(
            shuffled=number,
            copies=number % 3 / 4,
            cores=1 + number % 3,
            instances_per_task=(50_000, 300, 40)[number % 3],
        )
        dialect = DIALECTS[number % 2]

        def differs(worlds: Sequence[World]) -> list[bool]:
            of_worlds = replace(batch, worlds=worlds)
            oracle, spark = of_worlds.oracle_facts(), self.facts(of_worlds, arrangement, dialect)
            return [oracle[name] != spark[name] for name in oracle]

        different = [
            world
            for world, is_different in zip(batch.worlds, differs(batch.worlds), strict=True)
            if is_different
        ]
        if different:
            reduced = replace(batch, worlds=[smallest(different[0], differs)])
            facts = self.facts(reduced, arrangement, dialect)
            head = f"seed {seed}, batch {number} of {size}, {dialect}, {arrangement}"
            raise AssertionError(
                f"{head}: {len(different)} worlds differ, one of them, reduced:\n"
                f"{differences(reduced, facts)}"
            )

    def facts(self, batch: Batch, arrangement: Arrangement, dialect: str) -> dict[str, Facts]:
        with self.databases.empty(dialect) as engine:
            return spark_facts(self.spark, engine, batch, arrangement, self.databases.directory)


def smallest(world: World, differs: Callable[[Sequence[World]], Sequence[bool]]) -> World:
    """The world without the rows that the difference does not need.

    All attempts of a round are one batch. The world is returned unchanged if it only differs
    together with the other worlds of its batch.
    """

    def rows(attempt: World) -> int:
        return sum(len(getattr(attempt, name)) for name in ROWS)

    while True:
        attempts = list(_smaller(world))
        different = [
            attempt
            for attempt, is_different in zip(attempts, differs(attempts), strict=True)
            if is_different
        ]
        if not different:
            return world
        world = min(different, key=rows)


def _smaller(world: World) -> Iterator[World]:
    """The world without some rows of one kind: all of them, a half, a quarter, or one."""
    for name in ROWS:
        rows = getattr(world, name)
        for size in sorted({len(rows), len(rows) // 2, len(rows) // 4, 1} - {0}, reverse=True):
            for at in range(0, len(rows), size):
                yield replace(world, **{name: rows[:at] + rows[at + size :]})


def differences(batch: Batch, spark: dict[str, Facts]) -> str:
    """The inputs of the batch's first world, and the facts that differ."""
    [(name, world), *_] = batch.named.items()
    oracle = batch.oracle_facts()[name]
    different = sorted(
        fact for fact in {*oracle, *spark[name]} if oracle.get(fact) != spark[name].get(fact)
    )
    lines = [*map(to_toml, batch.profiles), f"run at {wire_time(batch.setting.until)}"]
    lines += [_row(row) for row in batch.setting.exclusions]
    lines += [_row(row) for kind in ROWS for row in getattr(world, kind)]
    for fact in different[:12]:
        lines += [
            " ".join(fact),
            f"    oracle {oracle.get(fact)}",
            f"    spark  {spark[name].get(fact)}",
        ]
    return "\n".join(lines)


def _row(row: object) -> str:
    """The row with its values that are not empty."""
    values = {field.name: getattr(row, field.name) for field in fields(row)}
    present = {
        name: wire_time(value) if isinstance(value, datetime) else value
        for name, value in values.items()
        if value not in ("", None)
    }
    return f"{type(row).__name__}({', '.join(f'{key}={value}' for key, value in present.items())})"
