"""A report from the database to the report views, on both databases."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from sqlalchemy import text

from sam_pipeline.spark_jobs.compute import job
from sam_pipeline.spark_jobs.compute.cluster import causes
from sam_pipeline.spark_jobs.compute.facts import Summary
from sam_pipeline.spark_jobs.compute.reports import failure
from sam_pipeline.spark_jobs.compute.sources import database_slices
from sam_pipeline.spark_jobs.compute.sources.database_results import DatabaseResults
from sam_pipeline.spark_jobs.compute.sources.instances import numbered, read_instances
from sam_pipeline.spark_jobs.compute.storage import Storage
from sam_pipeline.spark_jobs.compute.stretches import concatenated
from sam_pipeline.spark_jobs.errors import AnotherRun, MixedVOs, SparkFailed
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period, day_start
from sam_pipeline.spark_jobs.rules.seconds import Seconds
from sam_pipeline.spark_jobs.runs import published as stored
from sam_pipeline.spark_jobs.runs import record as run_record
from sam_pipeline.spark_jobs.runs.summary import period_figures
from sam_pipeline.sql.database.engine import name_of, reading, writing
from sam_pipeline.sql.errors import DatabaseFull, DatabaseRefused
from tests.oracle.spark import cut
from tests.support.reports.database import DAY, LATER, ONE_DAY, Grid, profile

HOUR = 3600
FULL_DISK = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100';
END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON timeline_segment
FOR EACH ROW EXECUTE FUNCTION full_disk();
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def grid(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Grid]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        yield Grid(f"sqlite:///{tmp_path}/sam.db")
    else:
        on_postgresql = Grid(request.getfixturevalue("postgres_url"))
        yield on_postgresql
        on_postgresql.dispose()


@pytest.fixture
def small_grid(tmp_path: Path) -> Grid:
    return Grid(f"sqlite:///{tmp_path}/sam.db")


def run(
    spark: SparkContext,
    grid: Grid,
    using: Profile,
    period: Period = ONE_DAY,
    now: int = LATER,
) -> Summary:
    [summary] = job.run(spark, grid.reporter, [using], period, 0, lambda: now, lambda stage: None)
    return summary


def seconds(grid: Grid, level: str, period: Period = ONE_DAY) -> dict[str, Seconds]:
    """The stored seconds of each thing, by its names."""
    with reading(grid.reader) as connection:
        figures = stored.day_figures(connection, "test", level, period)
        return {" ".join(figure.names): figure.seconds for figure in figures}


def rows(grid: Grid, statement: str) -> list[tuple[object, ...]]:
    with reading(grid.engine) as connection:
        return [tuple(row) for row in connection.execute(text(statement))]


def test_a_day_becomes_figures(spark: SparkContext, grid: Grid, tmp_path: Path) -> None:
    grid.endpoint("A", "CE", "h1")
    grid.endpoint("A", "CE", "h2", monitored="N")
    grid.endpoint("A", "SRM", "shared")
    grid.endpoint("B", "SRM", "shared")
    grid.endpoint("B", "SRM", "theirs", voName="physics")
    grid.endpoint("C", "SRM", "h3")
    grid.group("A", "NORTH", weight=3)
    grid.group("B", "NORTH")
    grid.group("D", "NORTH")  # nothing is expected of it
    grid.result("CE h1 ping", "20:00", "OK", day=DAY - timedelta(days=1))
    grid.result("CE h1 submit", "20:00", "OK", day=DAY - timedelta(days=1))
    grid.result("CE h1 submit", "06:00", "CRITICAL")
    grid.result("CE h1 submit", "06:00", "CRITICAL", vo="physics")
    grid.result("CE h1 submit", "09:00", "OK")
    grid.result("CE h1 submit", "12:00", "CRITICAL", vo="physics")
    grid.result("CE h1 version", "06:00", "CRITICAL")
    grid.result("CE h2 ping", "06:00", "CRITICAL")
    grid.result("SRM shared put", "00:00", "OK")
    grid.result("SRM h3 put", "00:00", "OK")
    grid.downtime("08:00", "10:00", hostName="h1")
    grid.downtime("12:00", "18:00", siteName="C")
    grid.downtime("13:00", "14:00", hostName="shared", severity="WARNING")

    summary = run(spark, grid, profile(tmp_path))

    assert summary.results == 8
    assert summary.ignored == {"not-in-profile": 1, "other-vo": 2, "not-in-topology": 1}
    assert seconds(grid, "endpoint") == {
        "A CE h1": Seconds(ok=20 * HOUR, critical=2 * HOUR, downtime=2 * HOUR),
        "A SRM shared": Seconds(ok=24 * HOUR),
        "B SRM shared": Seconds(ok=24 * HOUR),
        "C SRM h3": Seconds(ok=18 * HOUR, downtime=6 * HOUR),
    }
    assert seconds(grid, "service")["A CE"] == seconds(grid, "endpoint")["A CE h1"]
    assert seconds(grid, "function")["A compute"] == seconds(grid, "endpoint")["A CE h1"]
    assert seconds(grid, "site")["A"] == seconds(grid, "endpoint")["A CE h1"]
    figures = rows(
        grid, "SELECT site, availability, reliability FROM site_availability ORDER BY site"
    )
    assert [(site, float(str(a)), float(str(r))) for site, a, r in figures] == [
        ("A", 83.33333, 90.90909),
        ("B", 100.0, 100.0),
        ("C", 75.0, 100.0),
    ]
    [group] = rows(grid, "SELECT availability, sites_expected, sites_known FROM group_availability")
    assert (float(str(group[0])), *group[1:]) == (86.66667, 2, 2)
    spans = rows(
        grid,
        "SELECT status FROM status_timeline WHERE level = 'site' AND site = 'A'"
        " ORDER BY start_time",
    )
    assert [status for (status,) in spans] == ["OK", "CRITICAL", "DOWNTIME", "OK"]


def test_a_recomputed_day_records_its_changes(
    spark: SparkContext, grid: Grid, tmp_path: Path
) -> None:
    grid.endpoint("A", "SRM", "h1")
    grid.result("SRM h1 put", "00:00", "OK")
    run(spark, grid, profile(tmp_path))
    grid.result("SRM h1 put", "12:00", "CRITICAL")

    summary = run(spark, grid, profile(tmp_path))

    assert summary.published.changes == 4
    assert seconds(grid, "site")["A"] == Seconds(ok=12 * HOUR, critical=12 * HOUR)
    [change] = rows(grid, "SELECT names, old, new, reason FROM report_change WHERE level = 'site'")
    assert json.loads(str(change[0])) == {"site": "A"}
    assert json.loads(str(change[1]))["availability"] == 100
    assert json.loads(str(change[2]))["availability"] == 50
    assert change[3] == "results changed"
    states = rows(grid, "SELECT state FROM report_run ORDER BY run_id")
    assert states == [("superseded",), ("published",)]
    digests = rows(grid, "SELECT DISTINCT input_digest FROM report_run")
    assert len(digests) == 2


def test_the_digest_of_a_day_depends_neither_on_slices_nor_on_groups_of_sites(
    spark: SparkContext, small_grid: Grid, tmp_path: Path
) -> None:
    for number in range(12):
        small_grid.endpoint(f"SITE-{number}", "SRM", f"h{number}")
        small_grid.result(f"SRM h{number} put", "23:00", "OK", day=DAY - timedelta(days=1))
        for hour in range(number, 24, 2):
            small_grid.result(
                f"SRM h{number} put", f"{hour:02}:00", ("OK", "WARNING")[hour % 3 == 0]
            )

    for cores, instances_per_task in ((1, 50_000), (2, 3), (5, 1)):
        with cut(cores, instances_per_task):
            run(spark, small_grid, profile(tmp_path))

    digests = rows(small_grid, "SELECT DISTINCT results_digest, input_digest FROM report_run")
    assert len(digests) == 1


def test_what_a_run_has_read_cannot_be_changed_after_its_end(
    spark: SparkContext, postgres_url: str, tmp_path: Path
) -> None:
    grid = Grid(postgres_url)
    grid.endpoint("A", "SRM", "h1")
    run(spark, grid, profile(tmp_path))

    with pytest.raises(DatabaseRefused, match="has ended"), writing(grid.reporter) as connection:
        connection.execute(text("UPDATE run SET results_read = 7"))
    grid.dispose()


def test_a_failed_run_leaves_the_old_report_whole(
    spark: SparkContext, small_grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_grid.endpoint("A", "SRM", "h1")
    small_grid.result("SRM h1 put", "00:00", "OK")
    run(spark, small_grid, profile(tmp_path))
    before = rows(small_grid, "SELECT * FROM site_availability")
    small_grid.result("SRM h1 put", "12:00", "CRITICAL")
    monkeypatch.setattr(run_record, "_TURN", "broken")

    with pytest.raises(Exception, match="broken"):
        run(spark, small_grid, profile(tmp_path))

    assert rows(small_grid, "SELECT * FROM site_availability") == before
    assert rows(small_grid, "SELECT state FROM report_run ORDER BY run_id") == [
        ("published",),
        ("failed",),
    ]


def test_a_full_disk_of_postgresql_is_an_error_and_leaves_the_old_report_whole(
    spark: SparkContext, postgres_url: str, tmp_path: Path
) -> None:
    grid = Grid(postgres_url)
    grid.endpoint("A", "SRM", "h1")
    grid.result("SRM h1 put", "00:00", "OK")
    run(spark, grid, profile(tmp_path))
    before = rows(grid, "SELECT * FROM site_availability")
    grid.result("SRM h1 put", "12:00", "CRITICAL")
    with grid.engine.begin() as connection:
        connection.execute(text(FULL_DISK))

    with pytest.raises(Py4JError) as caught:
        run(spark, grid, profile(tmp_path))
    failed = causes.failure("Spark failed", caught.value, [])
    assert isinstance(failed, SparkFailed)
    error = failure(failed, grid.reporter)

    assert isinstance(error, DatabaseFull)
    assert str(error).startswith(f"{name_of(grid.reporter)}: 53100: could not extend file")
    assert rows(grid, "SELECT * FROM site_availability") == before
    grid.dispose()


def test_a_run_does_not_publish_after_a_later_run_has(
    spark: SparkContext, grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid.endpoint("A", "SRM", "h1")
    grid.result("SRM h1 put", "00:00", "OK")
    publish = run_record.publish

    def publish_after_another(*args: object) -> run_record.Published:
        monkeypatch.setattr(run_record, "publish", publish)
        run(spark, grid, profile(tmp_path))
        return publish(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(run_record, "publish", publish_after_another)

    with pytest.raises(AnotherRun):
        run(spark, grid, profile(tmp_path))

    assert rows(grid, "SELECT run_id FROM published_run") == [(2,)]
    # Both runs read the same input.
    assert len(rows(grid, "SELECT DISTINCT input_digest FROM report_run")) == 1


def test_a_run_that_a_later_one_has_ended_asks_to_be_repeated(
    spark: SparkContext, grid: Grid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid.endpoint("A", "SRM", "h1")
    note_facts = run_record.note_facts

    def note_after_another(*args: object) -> None:
        monkeypatch.setattr(run_record, "note_facts", note_facts)
        run(spark, grid, profile(tmp_path))
        note_facts(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(run_record, "note_facts", note_after_another)

    with pytest.raises(AnotherRun):
        run(spark, grid, profile(tmp_path))


def test_results_of_two_vos_are_refused_unless_the_profile_names_one(
    spark: SparkContext, small_grid: Grid, tmp_path: Path
) -> None:
    small_grid.endpoint("A", "SRM", "h1")
    small_grid.result("SRM h1 put", "20:00", "OK", day=DAY - timedelta(days=1), vo="physics")
    small_grid.result("SRM h1 put", "12:00", "OK", vo="ops")

    with pytest.raises(MixedVOs, match=r"h1 SRM put: ops, physics"):
        run(spark, small_grid, profile(tmp_path, ('vo = "ops"', "")))


def test_a_report_is_published_before_the_next_one_fails(
    spark: SparkContext, small_grid: Grid, tmp_path: Path
) -> None:
    small_grid.endpoint("A", "SRM", "h1")
    small_grid.result("SRM h1 put", "06:00", "OK", vo="physics")
    small_grid.result("SRM h1 put", "12:00", "OK", vo="ops")
    good, mixed = profile(tmp_path), profile(tmp_path, ('vo = "ops"', ""))
    summaries: list[Summary] = []

    with pytest.raises(MixedVOs):
        job.run(
            *(spark, small_grid.reporter, [good, mixed], ONE_DAY, 0, lambda: LATER),
            *(lambda stage: None, summaries.append),
        )

    assert [summary.report for summary in summaries] == ["test"]
    assert seconds(small_grid, "site")["A"] == Seconds(missing=12 * HOUR, ok=12 * HOUR)


def test_several_days_are_one_job_and_an_open_day_ends_at_the_run(
    spark: SparkContext, small_grid: Grid, tmp_path: Path
) -> None:
    first, last = DAY, DAY + timedelta(days=2)
    small_grid.endpoint("A", "SRM", "h1", validTo=f"{DAY + timedelta(days=1)}T12:00:00Z")
    small_grid.endpoint("A", "SRM", "h2", validFrom=f"{DAY + timedelta(days=1)}T00:00:01Z")
    small_grid.result("SRM h1 put", "06:00", "OK")
    small_grid.result("SRM h2 put", "18:00", "CRITICAL", day=DAY + timedelta(days=1))
    small_grid.result("SRM h2 put", "01:00", "OK", day=last)
    small_grid.result("SRM h2 put", "03:00", "CRITICAL", day=last)
    now = day_start(last) + 2 * HOUR

    summary = run(spark, small_grid, profile(tmp_path), Period(first, last), now)

    assert summary.until == now
    by_day = [seconds(small_grid, "endpoint", Period(d, d)) for d in Period(first, last).days()]
    assert by_day == [
        {"A SRM h1": Seconds(missing=6 * HOUR, ok=18 * HOUR)},
        {"A SRM h1": Seconds(ok=24 * HOUR)},
        {"A SRM h2": Seconds(critical=HOUR, ok=HOUR)},
    ]
    with reading(small_grid.engine) as connection:
        [figure] = period_figures(connection, "test", "site", Period(first, last))
    assert figure.seconds == Seconds(missing=6 * HOUR, ok=43 * HOUR, critical=HOUR)
    assert figure.availability == Fraction(100 * 43, 44)
    assert figure.until == now


def test_a_day_without_data_has_no_figures(
    spark: SparkContext, small_grid: Grid, tmp_path: Path
) -> None:
    small_grid.endpoint("A", "SRM", "h1")

    summary = run(spark, small_grid, profile(tmp_path))

    assert summary.days_without_data == [DAY]
    assert seconds(small_grid, "site")["A"] == Seconds(missing=24 * HOUR)
    assert rows(small_grid, "SELECT availability FROM site_availability") == [(None,)]


def test_an_empty_database_gives_an_empty_report(
    spark: SparkContext, small_grid: Grid, tmp_path: Path
) -> None:
    summary = run(spark, small_grid, profile(tmp_path))

    assert summary.instances == 0
    assert seconds(small_grid, "site") == {}


def test_a_large_slice_is_read_in_parts(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = Grid(postgres_url)
    for hour in range(24):
        grid.result("SRM h1 put", f"{hour:02}:00", "OK" if hour % 5 else "CRITICAL")
    storage = Storage(grid.reporter)
    with reading(grid.reporter) as connection:
        instances = numbered([read_instances(connection)])
    results = DatabaseResults(storage, ONE_DAY, [DAY], [], LATER, newest=10_000)
    [of_day] = results.slices(instances, (), None, cores=1)

    whole = list(of_day.read())
    monkeypatch.setattr(database_slices, "MAX_RESULTS", 1)
    parts = list(of_day.read())

    assert len(whole) == 1 and len(parts) > 1
    assert sum(part.results.sum() for part in parts) == whole[0].results.sum() == 24
    assert concatenated(parts).check.sum() == whole[0].check.sum()
    grid.dispose()
