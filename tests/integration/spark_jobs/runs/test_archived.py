"""Which days a run reads from the archive, and what happens when its files are not intact."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext
from sqlalchemy import text

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.spark_jobs.compute import job
from sam_pipeline.spark_jobs.compute.run import Run
from sam_pipeline.spark_jobs.config import ARCHIVE, AUTO, DATABASE
from sam_pipeline.spark_jobs.inputs.archive.days import FROM_DATABASE, ArchivedDays
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period
from sam_pipeline.spark_jobs.runs.origin import ResultOrigin, change_numbers
from sam_pipeline.sql.archive.day import archive_day
from sam_pipeline.sql.archive.manifest import MANIFESTS, RESULTS, Manifest
from sam_pipeline.sql.archive.record import number_changes
from sam_pipeline.sql.archive.store import LocalStore
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.errors import ArchiveAway, ArchiveDamaged, NotArchived
from sam_pipeline.sql.loading.fold import fold_all
from tests.support.reports.database import DAY, LATER, Grid, profile
from tests.support.reports.published import published_timeline

BEFORE, NEXT = DAY - timedelta(days=1), DAY + timedelta(days=1)
PERIOD = Period(DAY, NEXT)


@pytest.fixture
def grid(small_grid: Grid) -> Grid:
    """Three days of a metric, that is down on the second day in the evening."""
    grid = small_grid
    grid.endpoint("A", "SRM", "h1")
    for day, status in ((BEFORE, "OK"), (DAY, "CRITICAL"), (NEXT, "OK")):
        grid.result("SRM h1 put", "00:10", "OK", day=day)
        grid.result("SRM h1 put", "18:00", status, day=day)
    fold_all(grid.engine)
    return grid


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    root = tmp_path / "archive"
    root.mkdir()
    return LocalStore(root)


def archive(grid: Grid, store: LocalStore, *days: date) -> list[Manifest]:
    change_no = number_changes(grid.engine)
    return [archive_day(grid.engine, store, day, change_no) for day in days]


def another_database(directory: Path) -> Grid:
    other = Grid(f"sqlite:///{directory}/other.db")  # a copy of a template, like all in the tests
    with writing(other.engine) as connection:
        connection.execute(text("UPDATE database_identity SET database_id = 'another'"))
    return other


def chosen(
    grid: Grid,
    store: LocalStore | None,
    source: str = AUTO,
    period: Period = PERIOD,
    look_back: int = 1,
) -> ArchivedDays:
    with reading(grid.engine) as connection:
        return ResultOrigin(source, store).archived_days(connection, period, look_back)


def run(spark: SparkContext, grid: Grid, directory: Path, archived: ArchivedDays) -> None:
    at = Run(spark, grid.reporter, lambda: LATER)
    job.compute(at, [profile(directory)], PERIOD, 99, archived)


def forget(grid: Grid, before: date) -> None:
    """Delete results as a prune does, with the horizon."""
    with writing(grid.engine) as connection:
        connection.execute(
            text("DELETE FROM metric_result WHERE measured_at < unixepoch(:day)"),
            {"day": str(before)},
        )
        connection.execute(text("DELETE FROM changed_day WHERE day < :day"), {"day": str(before)})
        connection.execute(text("INSERT INTO horizon (day) VALUES (:day)"), {"day": str(before)})


def test_auto_takes_days_from_the_archive_whose_version_has_all_changes(
    grid: Grid, store: LocalStore
) -> None:
    archive(grid, store, BEFORE, DAY, NEXT)
    grid.result("SRM h1 put", "20:00", "OK")  # of the day, which changes the next one, too
    fold_all(grid.engine)
    number_changes(grid.engine)

    assert set(chosen(grid, store).manifests) == {BEFORE}
    archive(grid, store, DAY)
    assert chosen(grid, store).versions([BEFORE, DAY, NEXT]) == {BEFORE: 1, DAY: 2}
    assert chosen(grid, store, DATABASE) is chosen(grid, None) is FROM_DATABASE


def test_the_archive_alone_must_have_all_days_and_the_day_before(
    grid: Grid, store: LocalStore
) -> None:
    archive(grid, store, BEFORE, NEXT)

    with pytest.raises(NotArchived, match=f"{DAY} is not in the archive"):
        chosen(grid, store, ARCHIVE)
    with pytest.raises(NotArchived, match=f"{DAY} is not in the archive"):
        chosen(grid, store, ARCHIVE, Period(NEXT, NEXT))
    assert list(chosen(grid, store, ARCHIVE, Period(BEFORE, BEFORE)).absent) == [
        BEFORE - timedelta(days=1)
    ]
    absent = chosen(grid, store, ARCHIVE, Period(BEFORE, BEFORE), look_back=3).absent
    assert [(BEFORE - day).days for day in absent] == [3, 2, 1]
    with pytest.raises(NotArchived, match=f"{DAY} is not in the archive"):
        chosen(grid, store, ARCHIVE, Period(NEXT, NEXT), look_back=3)
    with pytest.raises(ConfigError, match="no archive is configured"):
        chosen(grid, None, ARCHIVE)


def test_auto_reads_the_database_while_the_archive_is_away_unless_days_were_pruned(
    grid: Grid, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    away = LocalStore(tmp_path / "not-mounted")

    assert chosen(grid, away) is FROM_DATABASE
    assert "not-mounted" in caplog.text
    forget(grid, NEXT)
    with pytest.raises(ArchiveAway, match="not-mounted"):
        chosen(grid, away)


def test_a_run_from_the_archive_has_seen_the_changes_of_the_version(
    grid: Grid, store: LocalStore, tmp_path: Path
) -> None:
    days = [DAY + timedelta(days=number) for number in range(4)]
    period = Period(days[0], days[-1])
    manifests = archive(grid, store, *days)
    archived = ArchivedDays(store.source(), dict(zip(days, manifests, strict=True)))
    other = another_database(tmp_path)

    def numbers(grid: Grid, look_back: int = 1) -> list[int]:
        with reading(grid.engine) as connection:
            of_days = change_numbers(connection, archived, period, look_back, change_no=99)
        return [of_days[day] for day in days]

    at_first = numbers(grid)
    grid.result("SRM h1 put", "19:00", "OK")  # of the day, which changes the next one, too
    number_changes(grid.engine)

    version = manifests[0].source.change_no
    assert at_first == numbers(other) == [99] * 4
    assert numbers(grid) == [version, version, version, 99]
    assert numbers(grid, look_back=2) == [version] * 4


def test_days_of_the_archive_are_due_until_their_newest_versions_were_read(
    spark: SparkContext, grid: Grid, store: LocalStore, tmp_path: Path
) -> None:
    figures = Grid(f"sqlite:///{tmp_path}/figures.db")
    reports = [profile(tmp_path)]
    archive(grid, store, BEFORE, DAY, NEXT)

    def due() -> list[Period]:
        with reading(figures.engine) as connection:
            tasks = ResultOrigin(ARCHIVE, store).due(connection, reports, NEXT)
            return [report.period for report in tasks]

    assert due() == [Period(BEFORE, NEXT)]
    run(spark, figures, tmp_path, chosen(figures, store, ARCHIVE))
    assert due() == [Period(BEFORE, BEFORE)]
    archive(grid, store, DAY)
    assert due() == [Period(BEFORE, NEXT)]


def test_a_new_version_makes_all_days_due_on_which_its_results_count(
    spark: SparkContext, grid: Grid, store: LocalStore, tmp_path: Path
) -> None:
    figures = Grid(f"sqlite:///{tmp_path}/figures.db")
    report = profile(tmp_path, ('"off"', str(3 * DAY_S)))
    days = [BEFORE + timedelta(days=number) for number in range(6)]
    period = Period(days[0], days[-1])
    archive(grid, store, *days)
    archived = chosen(figures, store, ARCHIVE, period, report.look_back)
    job.compute(Run(spark, figures.reporter, lambda: LATER), [report], period, 99, archived)

    def due() -> list[Period]:
        with reading(figures.engine) as connection:
            tasks = ResultOrigin(ARCHIVE, store).due(connection, [report], NEXT)
            return [report.period for report in tasks]

    assert due() == []
    archive(grid, store, DAY)
    assert due() == [Period(days[1], days[4])]


def test_files_that_are_not_what_the_manifest_says_stop_the_run_before_it_begins(
    spark: SparkContext, grid: Grid, store: LocalStore, tmp_path: Path
) -> None:
    archive(grid, store, BEFORE, DAY, NEXT)
    archived = chosen(grid, store)
    [results] = (tmp_path / "archive" / RESULTS / f"day={DAY}").iterdir()
    [manifest] = (tmp_path / "archive" / MANIFESTS / f"day={NEXT}").iterdir()
    data, text_of = results.read_bytes(), manifest.read_text()

    for damaged, expected in (
        (None, "no such file: a manifest names it"),
        (data[:-50], "bytes, but its manifest says"),
        (b"x" * len(data), "Parquet"),
    ):
        results.unlink() if damaged is None else results.write_bytes(damaged)
        with pytest.raises(ArchiveDamaged, match=expected) as raised:
            run(spark, grid, tmp_path, archived)
        assert str(results) in str(raised.value)
    results.write_bytes(data)
    document = json.loads(text_of)
    document["files"][0]["rows"] += 1
    manifest.write_text(json.dumps(document))
    with pytest.raises(ArchiveDamaged, match="2 rows, but its manifest says 3"):
        run(spark, grid, tmp_path, chosen(grid, store))
    with reading(grid.engine) as connection:
        assert connection.scalar(text("SELECT count(*) FROM run")) == 0


def test_results_of_one_second_in_two_row_groups_count_as_those_in_the_database(
    spark: SparkContext, grid: Grid, store: LocalStore, tmp_path: Path
) -> None:
    for time, status, host in (
        *(("10:00", "CRITICAL", "m1"), ("10:00", "OK", "m2"), ("12:00", "OK", "m1")),
        *(("13:00", "OK", "m1"), ("14:00", "OK", "m1"), ("14:00", "CRITICAL", "m2")),
        ("16:00", "OK", "m1"),
    ):
        grid.result("SRM h1 put", time, status, monitoringHost=host)
    archive(grid, store, BEFORE, DAY, NEXT)
    [results] = (tmp_path / "archive" / RESULTS / f"day={DAY}").iterdir()
    [manifest] = (tmp_path / "archive" / MANIFESTS / f"day={DAY}").iterdir()
    pq.write_table(pq.read_table(results), results, row_group_size=2)
    document = json.loads(manifest.read_text())
    document["files"][0]["size_bytes"] = results.stat().st_size
    manifest.write_text(json.dumps(document))

    run(spark, grid, tmp_path, FROM_DATABASE)
    of_database = published_timeline(grid.reader, "test")
    run(spark, grid, tmp_path, chosen(grid, store, ARCHIVE))

    assert published_timeline(grid.reader, "test") == of_database
    assert len([row for row in of_database if row[:2] == ("site", DAY)]) == 6
