"""The facts of a batch by way of a database and Spark: the only module here that runs the job."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark import SparkContext
from sqlalchemy import Engine, text

from sam_pipeline.schema.messages.message import Message
from sam_pipeline.spark_jobs.compute import job
from sam_pipeline.spark_jobs.compute.run import Run
from sam_pipeline.spark_jobs.inputs.archive.days import FROM_DATABASE, ArchivedDays
from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.levels import GROUP
from sam_pipeline.spark_jobs.rules.seconds import rounded
from sam_pipeline.spark_jobs.runs.published import published_reports
from sam_pipeline.spark_jobs.runs.summary import period_figures
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.load import load
from tests.oracle.batch import FIGURE_LEVELS, Batch, Facts, spans
from tests.oracle.duckdb_rules import KEYS
from tests.oracle.oracle import STATUSES, GroupFigures, Segment, Trend
from tests.support.reports.stored import moment_of, percentages
from tests.worlds.drawn_setting import DAYS
from tests.worlds.model import Downtime, Exclusion, World, midnight
from tests.worlds.profile_file import to_toml
from tests.worlds.records import (
    downtime_record,
    endpoint_record,
    result_record,
    site_group_record,
    wire_time,
    wlcg_text,
)

_WORLD = re.compile(r"\bw\d+(?=-)")


@dataclass(frozen=True)
class Arrangement:
    """Order and copies of the input, and how it is sliced, none of which may change a figure."""

    shuffled: int = 0
    copies: float = 0.2
    cores: int = 2
    instances_per_task: int = 50_000


def spark_facts(
    spark: SparkContext, engine: Engine, batch: Batch, arrangement: Arrangement, directory: Path
) -> dict[str, Facts]:
    """Spark's facts by the names of the worlds, computed in an empty database."""
    fill(engine, batch, arrangement)
    run(spark, engine, batch, arrangement, directory)
    facts: dict[str, Facts] = {name: {} for name in batch.named}
    for fact, value in stored_facts(engine, batch.setting.first_day):
        name = _WORLD.search(" ".join(fact))
        assert name, f"not of a world: {fact}"
        facts[name.group()][fact] = value
    return facts


def run(
    spark: SparkContext,
    engine: Engine,
    batch: Batch,
    arrangement: Arrangement,
    directory: Path,
    archived: ArchivedDays = FROM_DATABASE,
) -> None:
    """Compute the reports of all days of the setting, at its time."""
    path = directory / "profile.toml"
    profiles = []
    for profile in batch.profiles:
        path.write_text(to_toml(profile))
        profiles.append(read_profile(path))
    period = Period(batch.setting.days[0], batch.setting.days[-1])
    now = int(batch.setting.until.timestamp())
    with cut(arrangement.cores, arrangement.instances_per_task):
        job.compute(Run(spark, engine, lambda: now), profiles, period, 1, archived)


def fill(engine: Engine, batch: Batch, arrangement: Arrangement) -> None:
    """Load the worlds as the consumer does: messages, in two transactions."""
    chance = random.Random(arrangement.shuffled)
    catalogue = Catalogue(engine)
    now = midnight(batch.setting.days[-1]) + timedelta(days=3)
    worlds = list(batch.named.values())
    messages = list(_messages(worlds, arrangement, chance))
    chance.shuffle(messages)
    half = len(messages) // 2
    for part in (messages[:half], messages[half:]):
        loaded = load(engine, catalogue, part, now)
        assert not loaded.dead_letters
    downtimes = [row for world in worlds for row in world.downtimes]
    downtimes += chance.sample(downtimes, int(len(downtimes) * arrangement.copies))
    insert_downtimes(engine, chance.sample(downtimes, len(downtimes)))
    exclusions = [exclusion for world in batch.named.values() for exclusion in world.exclusions]
    insert_exclusions(engine, [*exclusions, *batch.setting.exclusions])


def insert_downtimes(engine: Engine, downtimes: Sequence[Downtime]) -> None:
    """Insert the downtimes as messages that arrived at their times."""
    rows = []
    for number, downtime in enumerate(downtimes):
        about = {"publisher": "key:a", "messageId": f"m{number}"}
        assert downtime.arrived_at
        rows.append(
            {**downtime_record(downtime), **about, "receivedAt": wire_time(downtime.arrived_at)}
        )
    names = sorted({name for row in rows for name in row})
    marks = ", ".join(f":{name}" for name in names)
    statement = text(f"INSERT INTO downtime ({', '.join(names)}) VALUES ({marks})")
    with writing(engine) as connection:
        for row in rows:
            connection.execute(statement, {name: row.get(name) for name in names})


def insert_exclusions(engine: Engine, exclusions: Sequence[Exclusion]) -> None:
    """Insert the exclusions as decisions that are in force."""
    columns = {
        "kind": "kind",
        "monitoring_host": "monitoring_host",
        "metric_name": "metric",
        "site": "site",
        "service_flavour": "flavour",
        "host_name": "host",
        "start_time": "start",
        "end_time": "end",
        "added_at": "start",
    }
    statement = text(
        f"INSERT INTO exclusion ({', '.join(columns)}, reason, who)"
        f" VALUES ({', '.join(f':{name}' for name in columns)}, 'drawn', 'chance')"
    )
    is_sqlite = engine.dialect.name == "sqlite"
    with writing(engine) as connection:
        for exclusion in exclusions:
            values = {column: getattr(exclusion, name) for column, name in columns.items()}
            for name in ("start_time", "end_time", "added_at") if is_sqlite else ():
                values[name] = int(values[name].timestamp())
            connection.execute(statement, values)


def stored_facts(engine: Engine, first_day: date) -> Iterator[tuple[tuple[str, ...], object]]:
    """All facts in the report views."""
    start = midnight(first_day)
    timelines: dict[tuple[str, ...], list[Segment]] = {}
    for row in _rows(engine, "status_timeline"):
        fact = ("timeline", *_names(row, row["level"]))
        segment = Segment(moment_of(row["start_time"]), moment_of(row["end_time"]), row["status"])
        timelines.setdefault(fact, []).append(segment)
    for fact, segments in timelines.items():
        yield fact, spans(sorted(segments, key=lambda segment: segment.start), start)
    for level in FIGURE_LEVELS:
        for row in _rows(engine, f"{level[:-1]}_availability"):
            seconds = {status: int(row[f"{status.lower()}_s"]) for status in STATUSES}
            yield ("figures", *_names(row, level[:-1])), (seconds, *percentages(row))
    for row in _rows(engine, "group_availability"):
        means = GroupFigures(*percentages(row), row["sites_expected"], row["sites_known"])
        group = (row["group_type"], row["group_name"])
        yield ("group", row["report"], str(row["day"]), *group), means
    for row in _rows(engine, "group_month"):
        means = GroupFigures(*percentages(row), row["sites_expected"], row["sites_known"])
        group = (row["group_type"], row["group_name"])
        yield ("group month", row["report"], str(row["month"]), *group), means
    yield from _groups_of_ranges(engine, first_day)
    for row in _rows(engine, "status_trend"):
        first, last = row["first_change"], row["last_change"]
        changes = Trend(row["changes"], first and moment_of(first), last and moment_of(last))
        yield ("trend", *_names(row, row["level"])), changes


def _groups_of_ranges(engine: Engine, first_day: date) -> Iterator[tuple[tuple[str, ...], object]]:
    """The groups over every range of days, as `sam-report show` adds them up."""
    days = [first_day + timedelta(days=number) for number in range(DAYS)]
    with reading(engine) as connection:
        reports = published_reports(connection, None, Period(days[0], days[-1]))
        for report, (first, last) in product(reports, combinations_with_replacement(days, 2)):
            for figure in period_figures(connection, report, GROUP, Period(first, last)):
                values = map(rounded, (figure.availability, figure.reliability))
                assert figure.sites_expected is not None and figure.sites_known is not None
                means = GroupFigures(*values, figure.sites_expected, figure.sites_known)
                yield ("groups", report, str(first), str(last), *figure.names), means


def _messages(
    worlds: Sequence[World], arrangement: Arrangement, chance: random.Random
) -> Iterator[Message]:
    records = {
        "serviceEndpoint": [endpoint_record(row) for world in worlds for row in world.endpoints],
        "siteGroup": [site_group_record(row) for world in worlds for row in world.site_groups],
        "metricOutput": [result_record(row) for world in worlds for row in world.results],
    }
    for name, rows in records.items():
        rows += chance.sample(rows, int(len(rows) * arrangement.copies))
        chance.shuffle(rows)
        for at in range(0, len(rows), 200):
            body = "".join(map(wlcg_text, rows[at : at + 200]))
            yield Message({"messageClass": name}, body.encode())


@contextmanager
def cut(cores: int, instances_per_task: int) -> Iterator[None]:
    """Cut the results into slices for so many cores, and the sites into groups for the tasks."""
    with (
        patch.object(SparkContext, "defaultParallelism", cores),
        patch.object(job, "INSTANCES_PER_TASK", instances_per_task),
    ):
        yield


def _rows(engine: Engine, view: str) -> Sequence[Mapping[str, Any]]:
    with reading(engine) as connection:
        return connection.execute(text(f"SELECT * FROM {view}")).mappings().all()


def _names(row: Mapping[str, Any], level: str) -> tuple[str, ...]:
    """The level as the oracle names it, the report, the day, and the names of the thing."""
    return (f"{level}s", row["report"], str(row["day"]), *(row[name] for name in KEYS[level]))
