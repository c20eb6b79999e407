"""Performance data by site, metric and day, as far as a report has read it, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.spark_jobs.inputs.announced import MONITORING_HOST, Exclusion
from sam_pipeline.spark_jobs.inputs.expected import Endpoint
from sam_pipeline.spark_jobs.inputs.performance import (
    DayRead,
    DayValues,
    Measure,
    MonthPerformance,
    read_performance,
)
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start
from sam_pipeline.sql.database.engine import reading
from tests.support.reports.database import DAY, Grid, profile

PING = Measure("CE", "ping", "time", "s")
ENDPOINTS = [Endpoint("A", "CE", "h1"), Endpoint("A", "CE", "h2"), Endpoint("B", "CE", "h3")]


@pytest.fixture
def grid(engine: Engine, tmp_path: Path) -> Iterator[Grid]:
    url = f"sqlite:///{tmp_path}/sam.db"
    if engine.dialect.name == "postgresql":
        url = engine.url.render_as_string(hide_password=False)
    grid = Grid(url)
    yield grid
    grid.dispose()


@pytest.fixture
def report(tmp_path: Path) -> Profile:
    return profile(tmp_path)


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


def values(found: MonthPerformance, site: str = "A") -> list[DayValues]:
    return list(found.of_site.get(site, {}).get(PING, ()))


def test_a_day_has_the_least_the_median_and_the_most_of_all_endpoints_of_a_site(
    grid: Grid, report: Profile
) -> None:
    for host, time, performance in (
        ("h1", "01:00", "time=0.5s;10;20 size=3B"),
        ("h2", "02:00", "time=2.5s;10;20"),
        ("h1", "03:00", "'time'=1,5s"),
        ("h3", "03:00", "time=9s"),
    ):
        sent(grid, host, time, performance)

    found = read(grid, report)

    assert values(found) == [DayValues(DAY, 0.5, 1.5, 2.5)]
    assert values(found, "B") == [DayValues(DAY, 9, 9, 9)]
    assert list(found.of_site["A"]) == [Measure("CE", "ping", "size", "B"), PING]
    assert found.one_in == 1


def test_only_results_that_the_report_counts_are_read(grid: Grid, report: Profile) -> None:
    sent(grid, "h1", "01:00", "time=1s")
    sent(grid, "h1", "02:00", "time=2s", vo="other")
    sent(grid, "h1", "03:00", "time=3s", metric="unknown")
    sent(grid, "h9", "04:00", "time=4s")
    sent(grid, "h1", "05:00", "time=5s", day=DAY - timedelta(days=1))
    sent(grid, "h1", "06:00", "time=U")

    assert values(read(grid, report)) == [DayValues(DAY, 1, 1, 1)]


def test_a_day_shows_nothing_that_its_run_has_not_read(grid: Grid, report: Profile) -> None:
    sent(grid, "h1", "01:00", "time=1s")
    with reading(grid.reader) as connection:
        newest = connection.scalar(text("SELECT max(result_id) FROM report_result"))
    sent(grid, "h1", "02:00", "time=2s")

    assert values(read(grid, report, newest_result=newest)) == [DayValues(DAY, 1, 1, 1)]
    noon = day_start(DAY) + 5400
    assert values(read(grid, report, end=noon)) == [DayValues(DAY, 1, 1, 1)]


def test_results_of_an_excluded_monitoring_host_have_no_values(grid: Grid, report: Profile) -> None:
    sent(grid, "h1", "01:00", "time=1s", monitoringHost="m1")
    sent(grid, "h1", "01:00", "time=2s", monitoringHost="m2")
    hour = day_start(DAY) + 3600
    host = Exclusion(1, MONITORING_HOST, "m2", "", "", "", "", hour, hour, "its clock", "ada")

    assert values(read(grid, report, exclusions=[host])) == [DayValues(DAY, 1, 1, 1)]


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
