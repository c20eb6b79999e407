"""Performance data by site, metric and day, and profiles checked against the stored results."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from sam_pipeline.spark_jobs.commands.profile import check
from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, Exclusion
from sam_pipeline.spark_jobs.inputs.expected import Endpoint
from sam_pipeline.spark_jobs.inputs.observed import Observed, never_seen, newest_days, observe
from sam_pipeline.spark_jobs.inputs.performance import (
    DayRead,
    DayValues,
    Measure,
    MonthPerformance,
    read_performance,
)
from sam_pipeline.spark_jobs.pages.performance import MAX_PLOTS
from sam_pipeline.spark_jobs.pages.site_tree import write_site
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, Period, day_start
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.loading.fold import take_changes
from tests.support.reports.database import DAY, ONE_DAY, Grid, profile
from tests.support.reports.published_days import publish

PING = Measure("CE", "ping", "time", "s")
ENDPOINTS = [Endpoint("A", "CE", "h1"), Endpoint("A", "CE", "h2"), Endpoint("B", "CE", "h3")]


@pytest.fixture
def report(tmp_path: Path) -> Profile:
    functions = [("functions.compute", "functions.ce"), ("functions.storage", "functions.srm")]
    return profile(tmp_path, *functions)


def sent(grid: Grid, host: str, time: str, performance: str, **more: str) -> None:
    instance = f"CE {host} {more.pop('metric', 'ping')}"
    grid.result(instance, time, "OK", performanceData=performance, **more)


def read(
    grid: Grid, report: Profile, max_results: int = 1000, **changes: object
) -> MonthPerformance:
    end = day_start(DAY) + DAY_S
    day = DayRead(**{"day": DAY, "end": end, "newest_result": 2**62, "exclusions": (), **changes})  # type: ignore[arg-type]
    with reading(grid.reader) as connection:
        return read_performance(connection, report, ENDPOINTS, [day], max_results)


def values(found: MonthPerformance) -> list[DayValues]:
    return list(found.of_site["A"][PING])


def test_only_results_that_the_report_counts_and_its_run_has_read_have_values(
    grid: Grid, report: Profile
) -> None:
    hour = day_start(DAY) + 3600
    host = Exclusion(1, MONITORING_HOST, "m2", "", "", "", "", hour, hour, "its clock", "ada")
    sent(grid, "h1", "01:00", "time=1s", monitoringHost="m1")
    sent(grid, "h1", "01:00", "time=2s", monitoringHost="m2")
    sent(grid, "h1", "02:00", "time=2s", vo="other")
    sent(grid, "h1", "03:00", "time=3s", metric="unknown")
    sent(grid, "h9", "04:00", "time=4s")
    grid.result("CE h1 ping", "05:00", "OK", performanceData="time=5s", day=DAY - timedelta(days=1))
    sent(grid, "h1", "06:00", "time=U")
    alone = [DayValues(DAY, 1, 1, 1)]
    with reading(grid.reader) as connection:
        newest = connection.scalar(text("SELECT max(result_id) FROM report_result"))

    assert values(read(grid, report, exclusions=[host])) == alone
    sent(grid, "h1", "07:00", "time=7s")
    assert values(read(grid, report, exclusions=[host], newest_result=newest)) == alone
    assert values(read(grid, report, exclusions=[host], end=hour + 1800)) == alone
    assert values(read(grid, report)) == [DayValues(DAY, 1, 2, 7)]


def test_a_page_has_a_plot_of_each_label_with_its_unit_as_far_as_the_run_has_read(
    grid: Grid, report: Profile, tmp_path: Path
) -> None:
    publish(grid.engine, report, DAY, {"A CE h1": {"00:00": "OK"}})

    def page(name: str) -> str:
        with reading(grid.reader) as connection:
            write_site(connection, None, ONE_DAY, tmp_path / name)
        return (tmp_path / name / f"test/{DAY:%Y-%m}" / "A.html").read_text()

    sent(grid, "h1", "01:00", "time=1.5s;10;20 'free <b>'=20%")
    sent(grid, "h1", "02:00", "time=3.5s;10;20")
    few = page("few")
    with writing(grid.engine) as connection:
        newest = "(SELECT max(result_id) FROM report_result)"
        connection.execute(text(f"UPDATE run SET newest_result = {newest}"))
    sent(grid, "h1", "03:00", " ".join(f"disk{number:02}={number}GB" for number in range(40)))
    after_the_run = page("same")
    with writing(grid.engine) as connection:
        connection.execute(text("UPDATE run SET newest_result = newest_result + 1000"))

    assert re.findall(r"<figcaption>ping: <b>(.*?)</b>", few) == ["free &lt;b&gt;", "time"]
    assert "1.5 s to 3.5 s" in few and ">4 s</text>" in few
    assert after_the_run == few
    assert page("many").count("<figcaption>") == MAX_PLOTS


# A profile is checked against the stored results --------------------------------------------------


WEEK = Period(DAY - timedelta(days=6), DAY)
HOURLY = [f"{hour:02}:05" for hour in range(24)]
TARGETS = """
[targets.groups.federation.NORHT]
availability = 90
[targets.groups.federation.NORTH]
availability = 90
[targets.sites.SITE-B]
availability = 90
[targets.sites.SITE-A]
availability = 90
"""


def measure(
    grid: Grid, instance: str, times: Sequence[str], vo: str = "ops", day: date = DAY
) -> None:
    flavour, host, metric = instance.split()
    rows = [
        {"host": host, "flavour": flavour, "metric": metric, "at": f"{day}T{time}:00Z", "vo": vo}
        for time in times
    ]
    with writing(grid.loader) as connection:
        connection.execute(
            text(
                "INSERT INTO metricOutput (hostName, serviceFlavour, metricName, metricStatus,"
                " timestamp, voName) VALUES (:host, :flavour, :metric, 'OK', :at, :vo)"
            ),
            rows,
        )
    with writing(grid.reporter) as connection:
        take_changes(connection)


def test_metrics_are_observed_with_their_p99_interval(grid: Grid, tmp_path: Path) -> None:
    grid.endpoint("SITE-A", "CE", "ce01.example.org")
    measure(grid, "CE ce01.example.org ping", HOURLY)
    measure(grid, "CE ce02.example.org ping", ["00:00", "00:01"])  # in no topology
    submit = "CE ce01.example.org submit"
    measure(grid, submit, ["00:00", "09:00", "21:00"])
    measure(grid, submit, ["02:00"], day=DAY - timedelta(days=6))
    measure(grid, submit, ["09:30"], vo="other")

    with reading(grid.reporter) as connection:
        assert newest_days(connection, 7, DAY) == WEEK
        observed = observe(connection, profile(tmp_path, ('"off"', "7200")), WEEK, DAY)

    assert observed == [
        Observed("ping", 2, 1, 23, 3600, 7200),
        Observed("submit", 1, 1, 3, 6 * 86_400 - 7200, 7200),
        Observed("put", 0, 0, 0, None, 7200),
    ]
    assert observed[0].proposed_validity_s == 10_800


def test_suspicious_settings_give_warnings(grid: Grid, tmp_path: Path) -> None:
    grid.endpoint("SITE-A", "CE", "ce01.example.org")
    grid.group("SITE-A", "NORTH")
    measure(grid, "CE ce01.example.org ping", HOURLY)
    measure(grid, "CE ce01.example.org submit", ["02:00"], day=DAY - timedelta(days=7))
    measure(grid, "SRM ce01.example.org ping", ["02:00"])
    patterns = 'sites = ["SITE-?", "T1_*"]\ngroups = ["*/NORTH", "tier/1"]'
    odd = profile(tmp_path, ('"off"', f"3599\n{patterns}"), ('["SRM"]', f'["CE"]{TARGETS}'))
    of_no_vo = profile(tmp_path, ('"ops"', '"xyz"'))

    with reading(grid.reporter) as connection:
        warnings = check(connection, odd, 7, DAY).warnings
        assert never_seen(connection, odd) == ["put of SRM"]
    grid.endpoint("SITE-A", "SRM", "se01.example.org", voName="atlas")
    with reading(grid.reporter) as connection:
        of_vo = check(connection, of_no_vo, 1, DAY).warnings

    for subject, *facts in (
        ("flavour SRM ", "function"),
        ("flavour SRM ", f"topology of {DAY}"),
        ("put of SRM ", "never"),
        ("ping: ", "3599 s", "3600 s"),
        ("submit ", str(WEEK)),
        ("targets ", "federation NORHT", "did you mean federation NORTH"),
        ("targets ", "site SITE-B", "SITE-A"),
        ("sites: ", "T1_*", f"topology of {DAY}"),
        ("groups: ", "tier/1", f"topology of {DAY}"),
    ):
        [_] = [w for w in warnings if w.startswith(subject) and all(fact in w for fact in facts)]
    assert len(warnings) == 9
    [named] = [warning for warning in of_vo if "VO xyz: " in warning]
    assert named.endswith("there are atlas, ops")
    assert any(warning.startswith("flavour SRM has no endpoint for VO xyz") for warning in of_vo)
