"""Random small worlds from the archive: figures, timelines and facts equal those of the database.

The database of the results and the one that the reports from the archive are stored in are two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from sqlalchemy import Engine, text

from sam_pipeline.spark_jobs.compute import storage
from sam_pipeline.spark_jobs.config import ARCHIVE, AUTO
from sam_pipeline.spark_jobs.inputs.archive.days import ArchivedDays
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.runs.archived import archived_days
from sam_pipeline.sql.archive.store import LocalStore
from sam_pipeline.sql.archive.writing import results as writing_results
from sam_pipeline.sql.archive.writing.day import archive_day
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.loading.fold import take_changes
from tests.oracle.batch import Batch, drawn_batch
from tests.oracle.databases import DIALECTS, Databases
from tests.oracle.spark import Arrangement, fill, run, stored_facts
from tests.services.postgres import PostgresServer, fresh_database
from tests.worlds.drawn_setting import Setting

SEED = 25
BATCHES, SIZE = 4, 40
_RUNS = text(
    "SELECT report, day, results_read, results_ignored, instances, results_digest,"
    " topology_digest, downtimes_digest, exclusions_digest, input_digest, downtimes, exclusions"
    " FROM report_run WHERE state = 'published' ORDER BY report, day"
)


@pytest.fixture(scope="module")
def databases(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Databases:
    return Databases(tmp_path_factory.mktemp("worlds"), fresh_database(postgres))


@pytest.fixture
def figures(tmp_path: Path) -> Iterator[Engine]:
    """An empty SQLite database for what is computed from the archive."""
    others = tmp_path / "figures"
    others.mkdir()
    with Databases(others, f"sqlite:///{others}/unused.db").empty("sqlite") as engine:
        yield engine


@pytest.mark.parametrize("number", range(BATCHES))
def test_reports_from_the_archive_equal_those_from_the_database(
    spark: SparkContext,
    databases: Databases,
    figures: Engine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    """Thresholds, exclusions, VOs, downtimes, late results and open days are among the worlds.

    The days are read in many small row groups, and computed in one job or in several.
    """
    monkeypatch.setattr(writing_results, "ROWS_PER_GROUP", 40)
    monkeypatch.setattr(writing_results, "ROWS_PER_FILE", 200)
    monkeypatch.setattr(storage, "_INSTANCE_DAYS_AT_ONCE", number * 500)
    batch = drawn_batch(SEED, number, SIZE)
    arrangement = Arrangement(
        shuffled=number,
        cores=1 + number % 3,
        instances_per_task=(50_000, 300, 40)[number % 3],
    )
    store = local_store(tmp_path)
    with databases.empty(DIALECTS[number % 2]) as engine:
        fill(engine, batch, arrangement)
        archive(engine, store, days_read(batch.setting))
        run(spark, engine, batch, arrangement, tmp_path)
        of_database = published(engine, batch.setting)

    archived = chosen(figures, store, ARCHIVE, batch)
    run(spark, figures, batch, arrangement, tmp_path, archived)

    facts, runs = published(figures, batch.setting)
    assert facts == of_database[0]
    assert runs == of_database[1]
    assert facts


@pytest.mark.parametrize("from_archive", [(0, 2), (-1, 1)])
def test_days_of_both_sources_make_one_report(
    spark: SparkContext,
    databases: Databases,
    tmp_path: Path,
    from_archive: tuple[int, ...],
) -> None:
    """Days are numbered from the first one of the report; -1 is the day before it."""
    batch = drawn_batch(SEED, BATCHES, 20)
    store = local_store(tmp_path)
    days = [batch.setting.first_day + timedelta(days=number) for number in from_archive]
    with databases.empty("sqlite") as engine:
        fill(engine, batch, Arrangement())
        archive(engine, store, days)
        run(spark, engine, batch, Arrangement(), tmp_path)
        facts, runs = published(engine, batch.setting)

        archived = chosen(engine, store, AUTO, batch)
        run(spark, engine, batch, Arrangement(), tmp_path, archived)

        assert set(archived.manifests) == {*days} & {*days_read(batch.setting)}
        assert published(engine, batch.setting) == (facts, runs)


def chosen(engine: Engine, store: LocalStore, source: str, batch: Batch) -> ArchivedDays:
    with reading(engine) as connection:
        period = Period(batch.setting.days[0], batch.setting.days[-1])
        return archived_days(connection, store, source, period)


def local_store(directory: Path) -> LocalStore:
    root = directory / "archive"
    root.mkdir()
    return LocalStore(root)


def archive(engine: Engine, store: LocalStore, days: list[date]) -> None:
    with writing(engine) as connection:
        change_no = take_changes(connection)
    for day in days:
        archive_day(engine, store, day, change_no)


def days_read(setting: Setting) -> list[date]:
    return [setting.first_day - timedelta(days=1), *setting.days]


def published(engine: Engine, setting: Setting) -> tuple[Mapping[Any, Any], list[Any]]:
    """All facts of the report views, and what the published runs have read."""
    with reading(engine) as connection:
        runs = [list(map(str, row)) for row in connection.execute(_RUNS)]
    return dict(stored_facts(engine, setting.first_day)), runs
