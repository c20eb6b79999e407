"""Spark, DuckDB and the oracle, which counts seconds, compute the same figures and timelines."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark import SparkContext
from sqlalchemy import text

from sam_pipeline.spark_jobs.compute import job
from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period
from sam_pipeline.sql.database.engine import writing
from tests.oracle.duckdb_report import compute, read_figures, read_timeline
from tests.oracle.duckdb_rules import KEYS, NAMES, SECONDS
from tests.oracle.oracle import day_report
from tests.oracle.spark import insert_exclusions
from tests.support.reports.database import Grid
from tests.support.reports.published import published_figures, published_timeline
from tests.worlds import small
from tests.worlds.model import (
    Downtime,
    Endpoint,
    Exclusion,
    Flavour,
    Function,
    Profile,
    Result,
    World,
    midnight,
)
from tests.worlds.parquet_files import write_world
from tests.worlds.profile_file import to_toml
from tests.worlds.records import result_batches, topology_batches

FIRST = date(2027, 12, 31)
DAYS = 2
Rows = set[tuple[Any, ...]]
Choice = TypeVar("Choice")


@pytest.mark.parametrize("seed", range(6))
def test_duckdb_agrees_with_the_oracle_on_any_world(seed: int, tmp_path: Path) -> None:
    world, profile = random_world(seed)

    write_world(tmp_path, world, profile)
    compute(tmp_path, world.first_day, world.last_day)

    figures, timeline = oracle_rows(world, profile)
    assert read_figures(tmp_path) == figures
    assert read_timeline(tmp_path) == timeline


def test_duckdb_and_the_oracle_end_an_open_day_at_the_same_second(tmp_path: Path) -> None:
    world, profile = random_world(6)
    until = midnight(world.last_day) + timedelta(hours=11, minutes=59, seconds=59)

    write_world(tmp_path, world, profile)
    compute(tmp_path, world.last_day, world.last_day, until)

    assert read_timeline(tmp_path) == oracle_rows(world, profile, until)[1]


def test_spark_agrees_with_duckdb_and_the_oracle_on_the_world_of_the_demo(
    spark: SparkContext, tmp_path: Path
) -> None:
    world = small.small_world(seed=5, first_day=FIRST, days=DAYS)

    published = by_spark(spark, tmp_path, world, small.PROFILE)

    assert published == by_duckdb(tmp_path, world, small.PROFILE)
    assert published == oracle_rows(world, small.PROFILE)


def test_spark_agrees_with_duckdb_and_the_oracle_on_any_world(
    spark: SparkContext, tmp_path: Path
) -> None:
    world, profile = random_world(7)

    published = by_spark(spark, tmp_path, world, profile)

    assert published == by_duckdb(tmp_path, world, profile)
    assert published == oracle_rows(world, profile)


def by_spark(
    spark: SparkContext, directory: Path, world: World, profile: Profile
) -> tuple[Rows, Rows]:
    """Published figures and timelines of all days."""
    grid = Grid(f"sqlite:///{directory}/sam.db")
    load(grid, world)
    insert_exclusions(grid.engine, world.exclusions)
    (directory / "profile.toml").write_text(to_toml(profile))
    now = int((midnight(world.last_day) + timedelta(days=30)).timestamp())
    job.run(
        spark,
        grid.reporter,
        [read_profile(directory / "profile.toml")],
        Period(world.first_day, world.last_day),
        0,
        lambda: now,
        lambda stage: None,
    )
    return (
        published_figures(grid.reader, profile.name),
        published_timeline(grid.reader, profile.name),
    )


def by_duckdb(directory: Path, world: World, profile: Profile) -> tuple[Rows, Rows]:
    write_world(directory, world, profile)
    compute(directory, world.first_day, world.last_day)
    return read_figures(directory), read_timeline(directory)


def load(grid: Grid, world: World) -> None:
    """Insert all records into the class views, in one transaction."""
    with writing(grid.loader) as connection:
        for batch in (*topology_batches(world), *result_batches(world.results, "results")):
            for record in batch.records:
                marks = ", ".join(f":{name}" for name in record)
                connection.execute(
                    text(
                        f"INSERT INTO {batch.message_class} ({', '.join(record)}) VALUES ({marks})"
                    ),
                    record,
                )


def oracle_rows(world: World, profile: Profile, until: datetime | None = None) -> tuple[Rows, Rows]:
    """Figures and timelines as `tests.oracle.duckdb_report` gives them.

    With `until`, only those of the last day.
    """
    figures: Rows = set()
    timeline: Rows = set()
    for day in world.all_days if until is None else [world.last_day]:
        report = day_report(world, profile, day, until)
        for level in KEYS:
            for key, segments in report.timelines(f"{level}s").items():
                for segment in segments:
                    span = int(segment.start.timestamp()), int(segment.end.timestamp())
                    timeline.add((level, day, *names(level, key), *span, segment.status))
            for key, figure in report.figures(f"{level}s").items() if level != "metric" else ():
                seconds = [figure.seconds.get(name[:-2].upper(), 0) for name in SECONDS]
                shares = [
                    None if percent is None else int(percent * 100_000)
                    for percent in (figure.availability, figure.reliability)
                ]
                figures.add((level, day, *names(level, key), *seconds, *shares))
    return figures, timeline


def names(level: str, key: Sequence[str]) -> tuple[str, ...]:
    name_of = dict(zip(KEYS[level], key, strict=True))
    return tuple(name_of.get(name, "") for name in NAMES)


# A random world with few different times, so that many things happen at the same second. ----------

MOMENTS = (-DAY_S - 1, -DAY_S, -7200, -1, 0, 1, 3600, 3601, 40_000, 43_200, 50_400, 86_399)
STATUSES = ("OK", "OK", "WARNING", "UNKNOWN", "CRITICAL")
FLAVOURS = ("CE", "ARC", "SRM")
METRICS = ("ping", "submit", "put")


def random_world(seed: int) -> tuple[World, Profile]:
    chance = random.Random(seed)
    profile = _profile(chance)
    hosts = [f"h{number}" for number in range(5)]
    sites = [f"S{number}" for number in range(4)]
    long_ago = midnight(FIRST) - timedelta(days=100)
    endpoints = tuple(
        Endpoint(
            site=chance.choice(sites),
            host=chance.choice(hosts),
            flavour=chance.choice(FLAVOURS),
            valid_from=chance.choice([long_ago, long_ago, midnight(FIRST), _moment(chance)]),
            valid_to=chance.choice([None, None, None, midnight(FIRST) + timedelta(days=1)]),
            vo=chance.choice(["", "ops", "other"]),
            monitored=chance.choice(["", "Y", "Y", "N"]),
        )
        for _ in range(20)
    )
    exclusions = tuple(_exclusions(chance, sites, hosts))
    results = tuple(_results(chance, hosts))
    downtimes = tuple(_downtimes(chance, sites, hosts))
    return World(FIRST, DAYS, endpoints, (), downtimes, results, exclusions), profile


def _profile(chance: random.Random) -> Profile:
    def operation() -> str:
        return chance.choice(["AND", "OR"])

    return Profile(
        name="any",
        flavours={
            name: Flavour(tuple(chance.sample(METRICS, chance.randint(1, 3))), operation())
            for name in FLAVOURS
        },
        functions=chance.choice(
            [
                {},
                {"compute": Function(("CE", "ARC"), operation()), "storage": Function(("SRM",))},
                {"all": Function(FLAVOURS, operation()), "some": Function(("CE",))},
            ]
        ),
        metrics_operation=operation(),
        functions_operation=operation(),
        vo="ops",
        validity_s=chance.choice([None, 3600, 7200]),
        validity_of=chance.choice([{}, {"ping": None}, {"ping": 1, "put": 50_000}]),
        downtimes=chance.choice(
            [("SCHEDULED/OUTAGE",), ("SCHEDULED/OUTAGE", "UNSCHEDULED/WARNING")]
        ),
    )


def _results(chance: random.Random, hosts: Sequence[str]) -> Iterator[Result]:
    for number in range(400):
        yield Result(
            host=chance.choice(hosts),
            flavour=chance.choice(FLAVOURS),
            metric=chance.choice([*METRICS, "other"]),
            status=chance.choice(STATUSES),
            measured_at=_moment(chance),
            vo=chance.choice(["ops", "ops", "other"]),
            gathered_at=f"wn{number}.example.org",
        )


def _downtimes(
    chance: random.Random, sites: Sequence[str], hosts: Sequence[str]
) -> Iterator[Downtime]:
    for number in range(5):
        start, end = _moments(chance)
        yield Downtime(
            f"DT-{number}",
            start=start,
            end=end,
            announced_at=start,
            site=chance.choice(["", *sites]),
            host=chance.choice(["", *hosts]),
            flavour=chance.choice(["", *FLAVOURS]),
            classification=chance.choice(["SCHEDULED", "UNSCHEDULED"]),
            severity=chance.choice(["OUTAGE", "WARNING"]),
        )


def _exclusions(
    chance: random.Random, sites: Sequence[str], hosts: Sequence[str]
) -> Iterator[Exclusion]:
    for kind in ("metric", "metric", "group", "group"):
        start, end = _moments(chance)
        if kind == "group":
            yield Exclusion(kind, start, end, site=chance.choice(sites))
        else:
            yield Exclusion(
                kind,
                start,
                end,
                metric=chance.choice(METRICS),
                site=chance.choice(["", *sites]),
                flavour=chance.choice(["", *FLAVOURS]),
                host=chance.choice(["", "", *hosts]),
            )


def _moments(chance: random.Random) -> tuple[datetime, datetime]:
    """Two different times, the earlier one first."""
    start, end = sorted([_moment(chance), _moment(chance)])
    return (start, end) if start < end else _moments(chance)


def _moment(chance: random.Random) -> datetime:
    second = chance.choice(MOMENTS) + DAY_S * chance.randrange(DAYS)
    return datetime.fromtimestamp(int(midnight(FIRST).timestamp()) + second, UTC)
