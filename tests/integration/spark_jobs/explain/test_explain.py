"""Explanations are complete: seconds add up, and every time that was not OK has a reason."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark import SparkContext
from sqlalchemy import Engine, text

from sam_pipeline.spark_jobs.compute import job
from sam_pipeline.spark_jobs.compute.run import Run
from sam_pipeline.spark_jobs.explain.causes import causes_by_effect
from sam_pipeline.spark_jobs.explain.explanation import Selection, SiteDay, read_site_days
from sam_pipeline.spark_jobs.explain.results import Evidence, JudgedResult, read_results
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, Exclusion
from sam_pipeline.spark_jobs.pages.tree import write_pages
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, day_start
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, METRIC, SITE, WITH_FIGURES
from sam_pipeline.spark_jobs.runs.exclusions import add
from sam_pipeline.spark_jobs.runs.published import PublishedRun, day_figures
from sam_pipeline.sql.database.engine import reading, writing
from tests.integration.spark_jobs.conftest import SamReport
from tests.support.reports.database import DAY, Grid, profile, url_of
from tests.support.reports.pages import section_of

BEFORE, NEXT = DAY - timedelta(days=1), DAY + timedelta(days=1)
PERIOD = Period(DAY, NEXT)
NOW = day_start(NEXT) + 15 * 3600
SITES = ("A", "B", "C")
THRESHOLD = '[[thresholds]]\nmetric = "submit"\nlabel = "time"\nwarning = "30"\ncritical = "60"\n'
START = day_start(DAY)
EXCLUSIONS = [
    Exclusion(0, *selectors, START + first * 3600, START + last * 3600, "agreed\nupon", "ada")
    for *selectors, first, last in (
        (MONITORING_HOST, "nagios2", "", "", "", "", 10, 14),
        (METRIC, "", "put", "B", "", "", 2, 5),
        (SITE, "", "", "C", "", "", 18, 20),
    )
]
STATUSES = ("OK", "OK", "WARNING", "UNKNOWN", "CRITICAL")


@pytest.fixture(scope="module")
def grid(spark: SparkContext, tmp_path_factory: pytest.TempPathFactory) -> Grid:
    """Two published days, the second still open, of sites with every kind of result and cover."""
    directory = tmp_path_factory.mktemp("explain")
    sites = Grid(f"sqlite:///{directory}/sam.db")
    rng = random.Random(11)
    for site in SITES:
        for flavour, metrics in (("CE", ("ping", "submit")), ("SRM", ("put",))):
            for host in (f"{flavour.lower()}{number}.{site.lower()}" for number in (1, 2)):
                sites.endpoint(site, flavour, host)
                for metric in metrics:
                    _results(rng, sites, f"{flavour} {host} {metric}")
    announced = {"downtimeId": "GOC-1", "description": "all\nof it", "publisher": "key:goc"}
    sites.downtime("04:00", "09:00", siteName="A", **announced)
    sites.downtime("08:00", "12:00", siteName="B", hostName="ce1.b", serviceFlavour="CE")
    sites.downtime("00:00", "23:59", siteName="C", classification="UNSCHEDULED")
    with writing(sites.reporter) as connection:
        for exclusion in EXCLUSIONS:
            add(connection, exclusion, NOW)
    report = profile(
        directory,
        ('validity_s = "off"', 'validity_s = 10800\nfunctions_operation = "OR"'),
        ("[functions.compute]", f"{THRESHOLD}[functions.compute]"),
    )
    job.compute(Run(spark, sites.reporter, lambda: NOW), [report], PERIOD, 0)
    return sites


def _results(rng: random.Random, grid: Grid, instance: str) -> None:
    if rng.random() < 0.1:
        return
    for day in (BEFORE, DAY, NEXT):
        minutes = sorted(rng.sample(range(24 * 60), rng.randrange(12)))
        for minute in minutes:
            for monitoring_host in rng.choice((["nagios1"], ["nagios2"], ["nagios1", "nagios2"])):
                grid.result(
                    instance,
                    f"{minute // 60:02}:{minute % 60:02}",
                    rng.choice(STATUSES),
                    day=day,
                    performanceData=f"time={rng.randrange(90)}s",
                    monitoringHost=monitoring_host,
                )


@pytest.fixture(scope="module")
def days(grid: Grid) -> list[SiteDay]:
    with reading(grid.reader) as connection:
        return [
            site_day
            for day in PERIOD.days()
            for site in SITES
            for site_day in read_site_days(connection, ["test"], Selection(site), Period(day, day))
        ]


def test_the_explained_segments_add_up_to_the_figures(grid: Grid, days: list[SiteDay]) -> None:
    with reading(grid.reader) as connection:
        stored = {
            (level, figure.day, figure.names): figure.seconds
            for level in WITH_FIGURES
            for figure in day_figures(connection, "test", level, PERIOD)
        }

    explained = {
        (thing.level, site_day.run.day, thing.names): thing.seconds
        for site_day in days
        for thing in site_day.things
    }

    assert explained == stored
    assert len(explained) == 2 * 3 * (1 + 2 + 2 + 4)
    assert {seconds.total for seconds in explained.values()} == {DAY_S, NOW - day_start(NEXT)}


def test_every_segment_that_is_not_ok_has_a_reason(days: list[SiteDay]) -> None:
    explained = set()
    for thing in (thing for site_day in days for thing in site_day.things):
        reasons = [(reason.start, reason.end, reason.status) for reason in thing.reasons]
        assert reasons == [
            (segment.start, segment.end, segment.status)
            for segment in thing.segments
            if segment.status != "OK"
        ]
        for reason in thing.reasons:
            assert reason.deciding or reason.downtimes or reason.exclusions
            explained.add((thing.level, reason.status))

    statuses = {"WARNING", "UNKNOWN", "MISSING", "CRITICAL", "DOWNTIME", "EXCLUDED"}
    assert {(ENDPOINT, status) for status in statuses} <= explained
    assert {level for level, _ in explained} == set(WITH_FIGURES)


def test_the_evidence_of_every_metric_makes_its_segment(days: list[SiteDay]) -> None:
    kinds = set()
    for site_day in days:
        for thing in site_day.of_level(ENDPOINT):
            for reason in thing.reasons:
                kinds |= {checked_kind(evidence, site_day) for evidence in reason.evidence}

    assert kinds == {"excluded", "expired", "never", "sent", "judged"}
    ignored_hosts = {ignored.result.monitoring_host for day in days for ignored in day.ignored}
    assert ignored_hosts == {"nagios2"}


def checked_kind(evidence: Evidence, site_day: SiteDay) -> str:
    """The kind of the evidence, after a check that it makes its segment."""
    excluded_until = [START + 5 * 3600] if evidence.metric_name == "put" else []
    if evidence.status == "EXCLUDED":
        excluded_metrics = [exclusion.metric_name for exclusion in evidence.exclusions]
        assert excluded_metrics == [evidence.metric_name]
        return "excluded"
    if evidence.status == "MISSING":
        if evidence.last is None:
            assert evidence.start in (site_day.run.start, *excluded_until)
            return "never"
        expiry = evidence.last.measured + 10_800
        assert evidence.start == expiry or (
            evidence.start in (site_day.run.start, *excluded_until) and expiry < evidence.start
        )
        return "expired"
    first = evidence.results[0]
    assert first.measured == evidence.start or (
        evidence.start in (site_day.run.start, *excluded_until) and first.measured < evidence.start
    )
    assert {result.status for result in evidence.results} == {evidence.status}
    is_judged = any(isinstance(result, JudgedResult) for result in evidence.results)
    return "judged" if is_judged else "sent"


def test_the_pages_count_the_same_failures(grid: Grid, days: list[SiteDay], tmp_path: Path) -> None:
    with reading(grid.reader) as connection:
        write_pages(connection, None, PERIOD, tmp_path)

    shown = 0
    for site_day in days:
        page = (tmp_path / "test/2026-11" / f"{site_day.site}.html").read_text()
        of_day = section_of(page, site_day.run.day)
        for cause_list in causes_by_effect(site_day.failures):
            title = str(cause_list)
            assert (f">{title[0].upper()}{title[1:]}<" in of_day) == bool(cause_list.causes)
            shown += bool(cause_list.causes)
    assert shown > len(days)


def test_the_command_prints_text_and_json_and_names_similar_sites_and_endpoints(
    grid: Grid, tmp_path: Path
) -> None:
    sam_report = SamReport(url_of(grid.engine), tmp_path)
    day = ("explain", "--day", DAY, "--site")
    ticket = sam_report(*day, "A", "--ticket").out.splitlines()
    [document] = sam_report(*day, "A", "--ticket", "--json").json
    grouped = sam_report(*day, "A", "--by", "cause").out.splitlines()
    [causes] = sam_report(*day, "A", "--by", "cause", "--json").json

    assert document["lines"] == ticket and len(ticket) <= 40
    of_day = [*causes["causes"], *causes["causes_without_effect"]]
    assert len(of_day) == len(grouped) - 3  # a line for the day, and two titles
    for options, problem, names in (
        ("a", "no site a ", "A"),
        ("A --flavour SMR", "no endpoint SMR at A ", "SRM"),
        ("A --host ce9.a", "no endpoint ce9.a at A ", "ce2.a, ce1.a"),
    ):
        error = sam_report(*day, *options.split(), code=64).err
        assert re.search(rf"{problem}.*2026-11-14: .*\b{names}\b", error)


@pytest.fixture
def few_results(engine: Engine) -> Iterator[Grid]:
    """A database of either kind with few results, one of them of another VO."""
    grid = Grid(engine)
    grid.result("CE h1 ping", "23:59", "OK", day=DAY - timedelta(days=2))
    grid.result("CE h1 ping", "00:00", "OK", day=BEFORE)
    grid.result("CE h1 ping", "12:00", "CRITICAL", publisher="key:nagios")
    grid.result("CE h1 unknown", "12:00", "CRITICAL")
    grid.result("CE h1 ping", "12:00", "CRITICAL", vo="other")
    grid.result("SRM h2 put", "12:00", "CRITICAL")
    grid.result("SRM h3 put", "12:00", "CRITICAL")
    grid.result("CE h1 ping", "00:00", "OK", day=NEXT)
    grid.result("CE h1 ping", "11:00", "WARNING")
    yield grid
    grid.dispose()


PING, PUT = ("CE", "h1", "ping"), ("SRM", "h2", "put")


def test_the_results_are_those_that_the_run_has_read(few_results: Grid, tmp_path: Path) -> None:
    run = PublishedRun(1, DAY, "", None, 0, {}, 0, "", "", "", profile(tmp_path), 2**62, (), ())
    with reading(few_results.reader) as connection:
        newest = connection.scalar(text("SELECT max(result_id) FROM report_result"))
        read = read_results(connection, [run], [PING, PUT, ("CE", "nowhere", "ping")])
        before = replace(run, newest_result=newest - 1)
        earlier = read_results(connection, [before], [PING, PUT])
        newest_two = read_results(connection, [run], [PING, PUT], with_ok=False, at_most=2)

        assert read_results(connection, [run], []) == {}
    assert (read.since, newest_two.since) == (0, START + 12 * 3600 + 1)
    times_and_statuses = {
        instance: [(result.measured - START, result.status) for result in results]
        for instance, results in read.items()
    }
    assert times_and_statuses == {
        PING: [(-DAY_S, "OK"), (11 * 3600, "WARNING"), (12 * 3600, "CRITICAL")],
        PUT: [(12 * 3600, "CRITICAL")],
    }
    assert read[PING][2].summary == "CRITICAL says <ping>"
    assert read[PING][2].message_id == "message-12:00"
    assert [result.publisher for result in read[PING][1:]] == ["anonymous", "key:nagios"]
    assert [result.status for result in earlier[PING]] == ["OK", "CRITICAL"]
    assert newest_two == {PING: read[PING][2:], PUT: read[PUT]}


def test_results_of_several_days_are_read_from_the_first_one_that_any_run_looked_back_to(
    few_results: Grid, tmp_path: Path
) -> None:
    long = profile(tmp_path, ('"off"', f"{2 * DAY_S}"))
    usual = PublishedRun(
        1, BEFORE, "", None, 0, {}, 0, "", "", "", profile(tmp_path), 2**62, (), ()
    )

    def oldest(*runs: PublishedRun) -> int:
        with reading(few_results.reader) as connection:
            return read_results(connection, runs, [PING])[PING][0].measured - START

    assert oldest(usual) == oldest(replace(usual, day=DAY, profile=long)) == -DAY_S - 60
    assert oldest(replace(usual, day=DAY)) == -DAY_S
    assert oldest(replace(usual, day=NEXT), replace(usual, day=NEXT, profile=long)) == -DAY_S
