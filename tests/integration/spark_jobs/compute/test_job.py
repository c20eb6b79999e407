"""A report from the database to the report views, on both databases."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from sqlalchemy import text

from sam_pipeline.spark_jobs.compute import job, reports
from sam_pipeline.spark_jobs.compute.cluster import start
from sam_pipeline.spark_jobs.compute.job import Summary
from sam_pipeline.spark_jobs.compute.planning import numbered
from sam_pipeline.spark_jobs.compute.reports import failure
from sam_pipeline.spark_jobs.compute.run import DaysToRead, Run, Storage
from sam_pipeline.spark_jobs.compute.sources import database_slices
from sam_pipeline.spark_jobs.compute.sources.database import DatabaseSource
from sam_pipeline.spark_jobs.compute.stretches import concatenated
from sam_pipeline.spark_jobs.config import DATABASE
from sam_pipeline.spark_jobs.errors import AnotherRun, MixedVOs, SparkFailed
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, Exclusion
from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period, day_start
from sam_pipeline.spark_jobs.rules.seconds import Seconds
from sam_pipeline.spark_jobs.runs import published as stored
from sam_pipeline.spark_jobs.runs import record as run_record
from sam_pipeline.spark_jobs.runs.due import only_changed
from sam_pipeline.spark_jobs.runs.exclusions import add
from sam_pipeline.spark_jobs.runs.origin import ResultOrigin
from sam_pipeline.sql.database.engine import name_of, reading, writing
from sam_pipeline.sql.errors import DatabaseFull, DatabaseRefused
from sam_pipeline.sql.loading.fold import take_changes
from sam_pipeline.sql.removal.prune import bounds_of, prune
from tests.integration.spark_jobs.conftest import SamReport
from tests.oracle.spark import cut
from tests.support.database.dialects import only_on
from tests.support.database.sql_rows import query
from tests.support.reports.database import DAY, LATER, ONE_DAY, PROFILE, Grid, profile
from tests.support.reports.stored import moment_of
from tests.worlds.model import midnight

HOUR = 3600
LONG = """
name = "test"
validity_s = 3600
[validity]
certificate = 691200  # 8 days
other = "off"
[flavours.SRM]
metrics = ["put", "certificate", "other"]
"""
JUDGED = '[[thresholds]]\nmetric = "certificate"\nlabel = "days"\ncritical = "7:"\n'
FULL_DISK = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100';
END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON timeline_segment
FOR EACH ROW EXECUTE FUNCTION full_disk();
"""


def run(
    spark: SparkContext,
    grid: Grid,
    using: Profile,
    period: Period = ONE_DAY,
    now: int = LATER,
) -> Summary:
    [summary] = job.compute(Run(spark, grid.reporter, lambda: now), [using], period, 0)
    return summary


def seconds(grid: Grid, level: str, period: Period = ONE_DAY) -> dict[str, Seconds]:
    """The stored seconds of each thing, by its names."""
    with reading(grid.reader) as connection:
        figures = stored.day_figures(connection, "test", level, period)
        return {" ".join(figure.names): figure.seconds for figure in figures}


def test_a_day_becomes_figures(spark: SparkContext, grid: Grid, tmp_path: Path) -> None:
    grid.endpoint("A", "CE", "h1")
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
    grid.result("CE h1 submit", "10:00", "CRITICAL", monitoringHost="bad")
    grid.result("CE h1 submit", "12:00", "CRITICAL", vo="physics")
    grid.result("CE h1 version", "06:00", "CRITICAL")
    grid.result("CE elsewhere ping", "06:00", "CRITICAL")
    grid.result("SRM shared put", "00:00", "OK")
    grid.result("SRM h3 put", "00:00", "OK")
    grid.downtime("08:00", "10:00", hostName="h1")
    grid.downtime("12:00", "18:00", siteName="C")
    grid.downtime("13:00", "14:00", hostName="shared", severity="WARNING")
    ten = day_start(DAY) + 10 * HOUR
    bad = Exclusion(0, MONITORING_HOST, "bad", "", "", "", "", ten - 1, ten, "its clock", "ada")
    with writing(grid.reporter) as connection:
        add(connection, bad, LATER)

    summary = run(spark, grid, profile(tmp_path))

    assert summary.results == 9
    assert summary.ignored == {
        "not-in-profile": 1,
        "other-vo": 2,
        "not-in-topology": 1,
        "excluded-monitoring-host": 1,
    }
    assert seconds(grid, "endpoint") == {
        "A CE h1": Seconds(ok=20 * HOUR, critical=2 * HOUR, downtime=2 * HOUR),
        "A SRM shared": Seconds(ok=24 * HOUR),
        "B SRM shared": Seconds(ok=24 * HOUR),
        "C SRM h3": Seconds(ok=18 * HOUR, downtime=6 * HOUR),
    }
    figures = query(
        grid.reader, "SELECT site, availability, reliability FROM site_availability ORDER BY site"
    )
    assert [(site, float(a), float(r)) for site, a, r in figures] == [
        *(("A", 83.33333, 90.90909), ("B", 100.0, 100.0), ("C", 75.0, 100.0))
    ]
    [group] = query(
        grid.reader, "SELECT availability, sites_expected, sites_known FROM group_availability"
    )
    # The weights are 3, and 1 without one.
    assert (float(group[0]), *group[1:]) == (87.5, 2, 2)


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
    [(reason,)] = query(grid.reader, "SELECT reason FROM report_change WHERE level = 'site'")
    assert reason == "results changed"
    runs = query(grid.reader, "SELECT state, input_digest FROM report_run ORDER BY run_id")
    assert [state for state, _ in runs] == ["superseded", "published"]
    assert runs[0][1] != runs[1][1]
    run_ids = [run_id for (run_id,) in query(grid.reader, "SELECT run_id FROM report_run")]
    with pytest.raises(SparkFailed, match="repeated"):  # there are more rows than tasks stored
        Storage(grid.reporter).check([], run_ids)
    if grid.engine.dialect.name == "postgresql":
        changed = text("UPDATE run SET results_read = 7")
        with pytest.raises(DatabaseRefused, match="has ended"), writing(grid.reporter) as reporter:
            reporter.execute(changed)


def test_a_due_day_on_which_a_report_would_read_the_same_is_left_out_and_noted(
    spark: SparkContext, grid: Grid, tmp_path: Path
) -> None:
    both = profile(tmp_path)
    storage = profile(
        tmp_path,
        ('"test"', '"storage"'),
        ('[flavours.CE]\nmetrics = ["ping", "submit"]', ""),
        ('[functions.compute]\nflavours = ["CE"]', ""),
    )
    grid.endpoint("A", "SRM", "h1")
    grid.endpoint("B", "CE", "ce1")
    grid.result("SRM h1 put", "00:00", "OK")

    database = ResultOrigin(DATABASE, None)

    def run_due() -> list[str]:
        """Run the reports of the day that are due, and return their names."""
        with writing(grid.reporter) as connection:
            number = take_changes(connection)
            due = database.due(connection, [both, storage], DAY + timedelta(days=1))
            due = only_changed(connection, due, number, LATER)
        for report in due:
            at = Run(spark, grid.reporter, lambda: LATER)
            job.compute(at, [report.profile], report.period, number)
        return [report.profile.name for report in due]

    assert (run_due(), run_due()) == (["test", "storage"], [])
    grid.downtime("12:00", "13:00", siteName="B")
    assert (run_due(), run_due()) == (["test"], [])
    with reading(grid.reporter) as connection:
        assert database.due(connection, [both, storage], DAY + timedelta(days=1)) == []
    grid.result("SRM h1 put", "06:00", "OK")
    assert (run_due(), run_due()) == (["test", "storage"], [])
    grid.downtime("12:00", "14:00", hostName="h1", severity="WARNING")
    assert run_due() == ["test", "storage"]  # pages show it, though it changes no figure


def test_the_digest_of_a_day_depends_neither_on_slices_nor_on_groups_of_sites(
    spark: SparkContext, small_grid: Grid, tmp_path: Path
) -> None:
    for number in range(12):
        small_grid.endpoint(f"SITE-{number}", "SRM", f"h{number}")
        instance = f"SRM h{number} put"
        small_grid.result(instance, "23:00", "OK", day=DAY - timedelta(days=1))
        for hour in range(number, 24, 2):
            small_grid.result(instance, f"{hour:02}:00", ("OK", "WARNING")[hour % 3 == 0])

    for cores, instances_per_task in ((1, 50_000), (2, 3), (5, 1)):
        with cut(cores, instances_per_task):
            run(spark, small_grid, profile(tmp_path))

    digests = "SELECT DISTINCT results_digest, input_digest FROM report_run"
    assert len(query(small_grid.reader, digests)) == 1


def test_a_full_disk_of_postgresql_is_an_error_and_leaves_the_old_report_whole(
    spark: SparkContext, postgres_url: str, tmp_path: Path
) -> None:
    grid = Grid(postgres_url)
    grid.endpoint("A", "SRM", "h1")
    grid.result("SRM h1 put", "00:00", "OK")
    run(spark, grid, profile(tmp_path))
    before = query(grid.reader, "SELECT * FROM site_availability")
    grid.result("SRM h1 put", "12:00", "CRITICAL")
    with grid.engine.begin() as connection:
        connection.execute(text(FULL_DISK))

    with pytest.raises(Py4JError) as caught:
        run(spark, grid, profile(tmp_path))
    failed = start.failure("Spark failed", caught.value, [])
    assert isinstance(failed, SparkFailed)
    error = failure(failed, grid.reporter)

    assert isinstance(error, DatabaseFull)
    assert str(error).startswith(f"{name_of(grid.reporter)}: 53100: could not extend file")
    assert query(grid.reader, "SELECT * FROM site_availability") == before
    grid.dispose()


@pytest.mark.parametrize("step", ["note_facts", "publish"])
def test_a_run_that_a_later_one_has_overtaken_asks_to_be_repeated(
    spark: SparkContext,
    grid: Grid,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    grid.endpoint("A", "SRM", "h1")
    original = getattr(run_record, step)

    def after_another_run(*args: object) -> object:
        monkeypatch.setattr(run_record, step, original)
        run(spark, grid, profile(tmp_path))
        return original(*args)

    monkeypatch.setattr(run_record, step, after_another_run)

    with pytest.raises(AnotherRun) as overtaken:
        run(spark, grid, profile(tmp_path))

    assert overtaken.value.exit_code == 75
    [published], [newest] = (
        query(grid.engine, f"SELECT max(run_id) FROM {table}") for table in ("published_run", "run")
    )
    assert published == newest


def test_a_report_is_published_before_the_next_one_is_refused_for_results_of_two_vos(
    spark: SparkContext, small_grid: Grid, tmp_path: Path
) -> None:
    small_grid.endpoint("A", "SRM", "h1")
    small_grid.result("SRM h1 put", "20:00", "OK", day=DAY - timedelta(days=1), vo="physics")
    small_grid.result("SRM h1 put", "12:00", "OK", vo="ops")
    good, mixed = profile(tmp_path), profile(tmp_path, ('vo = "ops"', ""))
    summaries: list[Summary] = []
    at = Run(spark, small_grid.reporter, lambda: LATER)

    with pytest.raises(MixedVOs, match=r"h1 SRM put: ops, physics"):
        job.compute(at, [good, mixed], ONE_DAY, 0, published=summaries.append)

    assert [summary.report for summary in summaries] == ["test"]
    two_days = Period(DAY - timedelta(days=1), DAY)
    with pytest.raises(MixedVOs):  # also where nothing is stored
        job.unpublished_days(at, mixed, two_days)


def test_several_days_are_one_job_and_an_open_day_ends_at_the_run(
    spark: SparkContext, small_grid: Grid, tmp_path: Path
) -> None:
    next_day, last = DAY + timedelta(days=1), DAY + timedelta(days=2)
    small_grid.endpoint("A", "SRM", "h1", validTo=f"{next_day}T12:00:00Z")
    small_grid.endpoint("A", "SRM", "h2", validFrom=f"{next_day}T00:00:01Z")
    small_grid.result("SRM h1 put", "06:00", "OK")
    small_grid.result("SRM h2 put", "18:00", "CRITICAL", day=next_day)
    small_grid.result("SRM h2 put", "18:30", "CRITICAL", day=next_day)
    small_grid.result("SRM h2 put", "01:00", "OK", day=last)
    small_grid.result("SRM h2 put", "03:00", "CRITICAL", day=last)
    now = day_start(last) + 2 * HOUR

    summary = run(spark, small_grid, profile(tmp_path), Period(DAY, last), now)

    assert summary.until == now
    by_day = [seconds(small_grid, "endpoint", Period(d, d)) for d in Period(DAY, last).days()]
    assert by_day == [
        {"A SRM h1": Seconds(missing=6 * HOUR, ok=18 * HOUR)},
        {"A SRM h1": Seconds(ok=24 * HOUR)},
        {"A SRM h2": Seconds(critical=HOUR, ok=HOUR)},
    ]
    read = query(small_grid.reader, "SELECT results_read FROM report_run ORDER BY day")
    assert read == [(1,), (2,), (1,)]


@pytest.mark.parametrize("threshold", ["", JUDGED])
def test_a_result_counts_until_its_validity_ends_days_later_even_if_its_day_was_pruned(
    spark: SparkContext, grid: Grid, tmp_path: Path, threshold: str
) -> None:
    """Each metric has its own validity. A day alone reads the same as a day of a period."""
    (tmp_path / "long.toml").write_text(LONG + threshold)
    report = read_profile(tmp_path / "long.toml")
    days = [DAY + timedelta(days=number) for number in range(10)]
    grid.endpoint("A", "SRM", "h1")
    for metric in ("put", "certificate", "other"):
        grid.result(f"SRM h1 {metric}", "12:00", "CRITICAL")
        grid.result(f"SRM h1 {metric}", "23:30", "OK", performanceData="days=30")

    def ok_until(day: date) -> dict[str, float]:
        """The hour until which each metric was OK on a day; it was not OK again later."""
        ends = "SELECT metric_name, end_time FROM status_timeline WHERE level = 'metric'"
        rows = query(grid.reader, f"{ends} AND day = '{day}' AND status = 'OK'")
        return {name: (moment_of(end) - midnight(day)) / timedelta(hours=1) for name, end in rows}

    run(spark, grid, report, Period(days[0], days[-1]))
    of_period = [ok_until(day) for day in days]
    prune(grid.engine, bounds_of(days[3], keep_results=1))
    for day in days[2:]:
        run(spark, grid, report, Period(day, day))

    certificate = [{"certificate": 24}] * 6 + [{"certificate": 23.5}, {}]
    assert of_period[:2] == [
        {"put": 24, "certificate": 24, "other": 24},
        {"put": 0.5, "certificate": 24, "other": 24},
    ]
    assert of_period[2:] == [ok_until(day) for day in days[2:]] == certificate
    read = "SELECT DISTINCT day, results_read, results_digest, input_digest FROM report_run"
    assert len(query(grid.reader, read)) == len(days)


@only_on("postgresql")
def test_a_large_slice_is_read_in_parts(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    for hour in range(24):
        grid.result("SRM h1 put", f"{hour:02}:00", "OK" if hour % 5 else "CRITICAL")
    source = DatabaseSource(grid.reporter, DaysToRead(ONE_DAY, 1, LATER), [DAY])
    instances = numbered([source.instances(source.announced({}))])
    [of_day] = source.slices(instances, (), None, cores=1)

    whole = list(of_day.read())
    monkeypatch.setattr(database_slices, "MAX_RESULTS", 1)
    parts = list(of_day.read())

    assert len(whole) == 1 and len(parts) > 1
    assert sum(part.results.sum() for part in parts) == whole[0].results.sum() == 24
    assert concatenated(parts).check.sum() == whole[0].check.sum()


# Published days under another profile: compared, and never stored ---------------------------------


WITHOUT_STORAGE = PROFILE.replace('[functions.storage]\nflavours = ["SRM"]\n', "")
TABLES = ("run", "timeline_segment", "figure", "published_run")
DIFFERENT = ("what-if", "--profile", "other.toml")
OF_DAY = (*DIFFERENT, "--day", DAY)


@pytest.fixture
def other(spark: SparkContext, grid: Grid, tmp_path: Path) -> Path:
    """The file of another profile; the published day of site A has failing storage since noon."""
    for site in ("A", "B"):
        grid.endpoint(site, "CE", f"ce.{site}")
        grid.endpoint(site, "SRM", f"se.{site}")
        for metric in ("CE ce.{} ping", "CE ce.{} submit", "SRM se.{} put"):
            grid.result(metric.format(site), "00:00", "OK")
        grid.group(site, "NORTH", weight=0 if site == "B" else None)
    grid.result("SRM se.A put", "12:00", "CRITICAL")
    with writing(grid.reporter) as connection:
        change_no = take_changes(connection)
    at = Run(spark, grid.reporter, lambda: LATER)
    job.compute(at, [profile(tmp_path)], ONE_DAY, change_no)
    path = tmp_path / "other.toml"
    path.write_text(WITHOUT_STORAGE)
    return path


def test_another_profile_shows_what_would_differ_and_stores_nothing(
    grid: Grid, other: Path, sam_report: SamReport
) -> None:
    counts = " UNION ALL ".join(f"SELECT count(*) FROM {table}" for table in TABLES)
    before = query(grid.engine, counts)

    [site, group] = sam_report(*OF_DAY, "--json").json
    lines = sam_report(*OF_DAY).out.splitlines()

    assert (site["site"], site["days_that_differ"]) == ("A", [str(DAY)])
    assert (float(site["availability_before"]), float(site["availability_after"])) == (50, 100)
    assert (site["missed_before"], site["missed_after"]) == (["availability", "reliability"], [])
    assert site["verdict"] == "newly met"
    # B has the weight 0.
    assert (group["level"], group["group_name"], group["site"]) == ("group", "NORTH", None)
    assert (float(group["availability_before"]), float(group["availability_after"])) == (50, 100)
    assert (group["sites_known_before"], group["verdict"]) == (2, "newly met")
    assert [line.split()[:3] for line in lines if line.startswith("federation")] == [
        ["federation", "NORTH", "50.00"]
    ]
    assert "1 site of 2 would differ; 1 miss a target, 0 would" in lines
    assert query(grid.engine, counts) == before


@only_on("sqlite")
def test_only_what_differs_is_listed_and_what_cannot_be_compared_is_refused(
    other: Path, sam_report: SamReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    month = (*DIFFERENT, "--month", f"{DAY:%Y-%m}", "--report", "test", "--format", "csv")
    other.write_text(WITHOUT_STORAGE.replace('name = "test"', 'name = "other"'))
    of_a, of_b = (sam_report(*month, "--site", site) for site in "AB")
    other.write_text(PROFILE)
    same = sam_report(*OF_DAY)
    other.write_text(f'weights = "argo"\n{PROFILE}')
    [weighted] = sam_report(*OF_DAY, "--json").json
    in_words = sam_report(*OF_DAY).out
    other.write_text(PROFILE + "[targets]\navailability = 10\nreliability = 10\n")
    looser, looser_group = sam_report(*OF_DAY, "--json").json

    assert of_a.out.splitlines()[1].startswith("test,") and "not compared" in of_a.err
    assert of_b.out.strip() == "" and "nothing differs" in same.out
    assert (looser["site"], looser["verdict"], looser["days"]) == ("A", "newly met", 0)
    assert (looser_group["group_name"], looser_group["verdict"]) == ("NORTH", "newly met")
    # With ARGO's weights 1 and 1 the group has the mean of 50 and 100.
    assert (weighted["group_name"], float(weighted["availability_after"])) == ("NORTH", 75)
    assert "weight + 1" in in_words
    monkeypatch.setattr(reports, "computing", None)  # refused before Spark starts
    assert "2026-01" in sam_report(*DIFFERENT, "--month", "2026-01", code=64).err
