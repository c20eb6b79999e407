"""Performance data by site, metric and day, as far as a report has read it, and on pages."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, Exclusion
from sam_pipeline.spark_jobs.inputs.expected import Endpoint
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
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start
from sam_pipeline.sql.database.engine import reading, writing
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


def test_of_many_results_a_sample_is_read_which_is_always_the_same(
    grid: Grid, report: Profile
) -> None:
    for number in range(60):
        sent(grid, "h1", f"{number // 4:02}:{number % 4 * 15:02}", f"time={number}s")

    first, second = read(grid, report, 20), read(grid, report, 20)

    assert first == second and first.one_in == 3
    [whole], [sample] = values(read(grid, report)), values(first)
    assert whole.least <= sample.least < sample.median < sample.most <= whole.most
    assert sample != whole


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
