"""Every figure is explained: its seconds add up, and what wasn't OK has a cause."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from sqlalchemy import text

from sam_pipeline.spark_jobs.cli import main
from sam_pipeline.spark_jobs.compute import job
from sam_pipeline.spark_jobs.explain.as_text import as_text
from sam_pipeline.spark_jobs.explain.causes import causes, causes_by_effect
from sam_pipeline.spark_jobs.explain.evidence import Evidence
from sam_pipeline.spark_jobs.explain.explanation import SiteDay
from sam_pipeline.spark_jobs.explain.results import _RESULTS, JudgedResult, read_results
from sam_pipeline.spark_jobs.explain.selection import Selection, read_site_days
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, Exclusion
from sam_pipeline.spark_jobs.pages.site_tree import write_site
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, day_start
from sam_pipeline.spark_jobs.rules.levels import ENDPOINT, GROUP, METRIC, WITH_FIGURES
from sam_pipeline.spark_jobs.runs.exclusions import add
from sam_pipeline.spark_jobs.runs.published import Run, day_figures
from sam_pipeline.sql.database.engine import reading, writing
from tests.services.postgres import fresh_database
from tests.support.reports.database import DAY, Grid, profile

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
        (GROUP, "", "", "C", "", "", 18, 20),
    )
]
STATUSES = ("OK", "OK", "WARNING", "UNKNOWN", "CRITICAL")


@pytest.fixture(scope="module")
def grid(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Grid:
    """Two published days, the second still open, of sites with everything that can happen."""
    directory = tmp_path_factory.mktemp("explain")
    made = Grid(f"sqlite:///{directory}/sam.db")
    rng = random.Random(11)
    for site in SITES:
        for flavour, metrics in (("CE", ("ping", "submit")), ("SRM", ("put",))):
            for host in (f"{flavour.lower()}{number}.{site.lower()}" for number in (1, 2)):
                made.endpoint(site, flavour, host)
                for metric in metrics:
                    _results(rng, made, f"{flavour} {host} {metric}")
    made.downtime("04:00", "09:00", siteName="A", downtimeId="GOC-1", description="all\nof it")
    made.downtime("08:00", "12:00", siteName="B", hostName="ce1.b", serviceFlavour="CE")
    made.downtime("00:00", "23:59", siteName="C", classification="UNSCHEDULED")
    with writing(made.reporter) as connection:
        for each in EXCLUSIONS:
            add(connection, each, NOW)
    using = profile(
        directory,
        ('validity_s = "off"', 'validity_s = 10800\nfunctions_operation = "OR"'),
        ("[functions.compute]", f"{THRESHOLD}[functions.compute]"),
    )
    job.run(spark, made.reporter, [using], PERIOD, 0, lambda: NOW, lambda stage: None)
    (directory / "sam.toml").write_text(f'[database]\nurl = "sqlite:///{directory}/sam.db"\n')
    return made


def _results(rng: random.Random, grid: Grid, instance: str) -> None:
    if rng.random() < 0.1:
        return
    for day in (BEFORE, DAY, NEXT):
        minutes = sorted(rng.sample(range(24 * 60), rng.randrange(12)))
        for minute in minutes:
            grid.result(
                instance,
                f"{minute // 60:02}:{minute % 60:02}",
                rng.choice(STATUSES),
                day=day,
                performanceData=f"time={rng.randrange(90)}s",
                monitoringHost=rng.choice(("nagios1", "nagios2")),
            )


@pytest.fixture(scope="module")
def days(grid: Grid) -> list[SiteDay]:
    with reading(grid.reader) as connection:
        return [
            site_day
            for day in PERIOD.days()
            for site in SITES
            for site_day in read_site_days(connection, None, Selection(site), day)
        ]


def test_the_seconds_of_the_told_segments_are_those_of_the_figures(
    grid: Grid, days: list[SiteDay]
) -> None:
    with reading(grid.reader) as connection:
        stored = {
            (level, each.day, each.names): each.seconds
            for level in WITH_FIGURES
            for each in day_figures(connection, "test", level, PERIOD)
        }

    told = {(t.level, each.run.day, t.names): t.seconds for each in days for t in each.things}

    assert told == stored
    assert len(told) == 2 * 3 * (1 + 2 + 2 + 4)
    assert {seconds.total for seconds in told.values()} == {DAY_S, NOW - day_start(NEXT)}


def test_whatever_was_not_ok_has_a_cause(days: list[SiteDay]) -> None:
    seen = set()
    for thing in (thing for each in days for thing in each.things):
        not_ok = [each for each in thing.segments if each.status != "OK"]
        told = [(each.start, each.end, each.status) for each in thing.reasons]
        assert told == [(each.start, each.end, each.status) for each in not_ok]
        for reason in thing.reasons:
            assert reason.deciding or reason.downtimes or reason.exclusions
            seen.add((thing.level, reason.status))

    statuses = {"WARNING", "UNKNOWN", "MISSING", "CRITICAL", "DOWNTIME", "EXCLUDED"}
    assert {(ENDPOINT, status) for status in statuses} <= seen
    assert {level for level, _ in seen} == set(WITH_FIGURES)


def test_whatever_a_metric_said_is_told_by_its_results(days: list[SiteDay]) -> None:
    kinds = set()
    for site_day in days:
        for thing in site_day.of_level(ENDPOINT):
            for evidence in (found for reason in thing.reasons for found in reason.evidence):
                kinds.add(check(evidence, site_day))

    assert kinds == {"excluded", "expired", "never", "sent", "judged"}
    assert {each.result.monitoring_host for day in days for each in day.ignored} == {"nagios2"}


def check(evidence: Evidence, site_day: SiteDay) -> str:
    """The evidence makes its segment; of which kind it is."""
    excluded_until = [START + 5 * 3600] if evidence.metric_name == "put" else []
    if evidence.status == "EXCLUDED":
        assert [each.metric_name for each in evidence.exclusions] == [evidence.metric_name]
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
    assert {each.status for each in evidence.results} == {evidence.status}
    return "judged" if any(isinstance(each, JudgedResult) for each in evidence.results) else "sent"


def test_it_is_all_told_in_words(days: list[SiteDay]) -> None:
    text = "\n".join(as_text(each, Selection(each.site)) for each in days)

    assert "downtime GOC-1 SCHEDULED/OUTAGE of A, 2026-11-14T04:00:00Z" in text
    assert ": all of it (counts)" in text
    assert "UNSCHEDULED/OUTAGE of C" in text
    assert "was valid for 3 h: MISSING since" in text
    assert "because function compute is" in text
    assert "exclusion 1 of monitoring host nagios2, 2026-11-14T10:00:00Z to" in text
    assert "measured by nagios2 (exclusion 1)" in text
    assert "exclusion 2 of metric put at B," in text
    assert "by ada: agreed upon" in text
    assert re.search(r"00:00 UNKNOWN\n    exclusion 3 of site C,", text)
    assert re.search(r"time=\d+s triggers the threshold critical 60 of submit\)", text)
    assert "until 2026-11-15T15:00:00Z: A" in text


def test_the_causes_hold_every_failure_once(days: list[SiteDay]) -> None:
    for site_day in days:
        for cause in causes(site_day.failures):
            assert cause.first <= cause.last < site_day.run.end
            said = f"{cause.status} says <{cause.metric_name}>"
            assert cause.text in (said, "no result") or cause.text.startswith("threshold on time:")
            assert 1 <= cause.endpoints <= 2


def test_the_pages_count_the_same_failures(grid: Grid, days: list[SiteDay], tmp_path: Path) -> None:
    with reading(grid.reader) as connection:
        write_site(connection, None, PERIOD, tmp_path)

    shown = 0
    for site_day in days:
        page = (tmp_path / "test/2026-11" / f"{site_day.site}.html").read_text()
        of_day = page.partition(f'id="{site_day.run.day}"')[2].partition("</details>")[0]
        for cause_list in causes_by_effect(site_day.failures):
            title = str(cause_list)
            if cause_list.causes:
                assert f"<caption>{title[0].upper()}{title[1:]}<" in of_day
                shown += 1
            else:
                assert cause_list.title[1:] not in of_day
        assert ("triggers the threshold" in of_day) == any(
            cause.example.threshold
            for cause_list in causes_by_effect(site_day.failures)
            for cause in cause_list.causes[:20]
        )
    assert shown > len(days)


@pytest.mark.parametrize("form", [[], ["--group"], ["--ticket"]])
def test_the_command_answers_in_words_and_as_json(
    grid: Grid, capsys: pytest.CaptureFixture[str], form: list[str]
) -> None:
    config = Path(str(grid.reader.get_execution_options()["sam_file"])).with_name("sam.toml")
    command = ["--config", str(config), "explain", "--day", str(DAY), "--site", "A", *form]

    assert main(command) == 0
    words = capsys.readouterr().out
    assert main([*command, "--json"]) == 0
    [document] = json.loads(capsys.readouterr().out)

    assert "A" in words.splitlines()[0]
    assert (document["report"], document["site"], document["day"]) == ("test", "A", str(DAY))
    if form == ["--ticket"]:
        assert "\n".join(document["lines"]) + "\n" == words
        assert len(document["lines"]) <= 40
    if form == ["--group"]:
        found = [*document["causes"], *document["causes_without_effect"]]
        assert len(found) == len(words.splitlines()) - 3  # what it is about, and two titles


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["--site", "a"], "no site a on 2026-11-14: did you mean A?"),
        (
            ["--site", "A", "--flavour", "SMR"],
            "no endpoint SMR at A on 2026-11-14: did you mean SRM?",
        ),
        (["--site", "A", "--host", "ce9.a"], "did you mean ce2.a, ce1.a"),
    ],
)
def test_what_is_not_there_exits_64_naming_near_ones(
    grid: Grid, capsys: pytest.CaptureFixture[str], asked: list[str], words: str
) -> None:
    config = Path(str(grid.reader.get_execution_options()["sam_file"])).with_name("sam.toml")

    assert main(["--config", str(config), "explain", "--day", str(DAY), *asked]) == 64
    assert words in capsys.readouterr().err


@pytest.fixture(params=["sqlite", "postgresql"])
def results_grid(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Grid]:
    """A database of each kind with few results, one of them of another VO."""
    if request.param == "sqlite":
        made = Grid(f"sqlite:///{tmp_path}/sam.db")
    else:
        made = Grid(fresh_database(request.getfixturevalue("postgres")))
    made.result("CE h1 ping", "23:59", "OK", day=DAY - timedelta(days=2))
    made.result("CE h1 ping", "00:00", "OK", day=BEFORE)
    made.result("CE h1 ping", "12:00", "CRITICAL")
    made.result("CE h1 unknown", "12:00", "CRITICAL")
    made.result("CE h1 ping", "12:00", "CRITICAL", vo="other")
    made.result("SRM h2 put", "12:00", "CRITICAL")
    made.result("SRM h3 put", "12:00", "CRITICAL")
    made.result("CE h1 ping", "00:00", "OK", day=NEXT)
    made.result("CE h1 ping", "11:00", "WARNING")
    yield made
    made.dispose()


PING, PUT = ("CE", "h1", "ping"), ("SRM", "h2", "put")


def a_run(using: Profile, day: date = DAY) -> Run:
    return Run(1, day, "", None, 0, {}, 0, "", "", "", using, 2**62, (), ())


def test_the_results_are_those_the_run_has_read(results_grid: Grid, tmp_path: Path) -> None:
    run = a_run(profile(tmp_path))
    with reading(results_grid.reader) as connection:
        newest = connection.scalar(text("SELECT max(result_id) FROM report_result"))
        found = read_results(connection, [run], [PING, PUT, ("CE", "nowhere", "ping")])
        before = replace(run, newest_result=newest - 1)
        earlier = read_results(connection, [before], [PING, PUT])
        newest_two = read_results(connection, [run], [PING, PUT], with_ok=False, at_most=2)

        assert read_results(connection, [run], []) == {}
    told = {
        instance: [(each.measured - day_start(DAY), each.status) for each in results]
        for instance, results in found.items()
    }
    assert told == {
        PING: [(-DAY_S, "OK"), (11 * 3600, "WARNING"), (12 * 3600, "CRITICAL")],
        PUT: [(12 * 3600, "CRITICAL")],
    }
    assert found[PING][2].summary == "CRITICAL says <ping>"
    assert found[PING][2].message_id == "message-12:00"
    assert [each.status for each in earlier[PING]] == ["OK", "CRITICAL"]
    assert newest_two == {PING: found[PING][2:], PUT: found[PUT]}


def test_the_results_are_found_by_instance_and_time(results_grid: Grid) -> None:
    """Not by reading the day: its index on the time would give all sites' results."""
    is_sqlite = results_grid.engine.dialect.name == "sqlite"
    window = (
        "measured_at_s >= 1 AND measured_at_s < 2"
        if is_sqlite
        else "measured_at >= '2026-11-14Z' AND measured_at < '2026-11-15Z'"
    )
    parts = {"window": window, "performance_data": "''", "condition": "", "limit": " LIMIT 9"}
    statement = _RESULTS.format(**parts).replace(":instances", "(1, 2)")
    with reading(results_grid.reader) as connection:
        if not is_sqlite:
            connection.execute(text("SET LOCAL enable_seqscan = off"))
        explain = "EXPLAIN QUERY PLAN" if is_sqlite else "EXPLAIN"
        plan = "\n".join(
            str(row[-1])
            for row in connection.execute(text(f"{explain} {statement.replace(':newest', '9')}"))
        )

    if is_sqlite:
        assert "(instance_id=? AND measured_at>? AND measured_at<?)" in plan
    else:
        assert "((instance_id = ANY ('{1,2}'::integer[])) AND (measured_at >=" in plan
