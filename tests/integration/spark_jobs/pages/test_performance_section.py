"""A site's page draws the performance data that its report has read, on both databases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.spark_jobs.pages.performance import MAX_PLOTS
from sam_pipeline.spark_jobs.pages.site_tree import write_site
from sam_pipeline.sql.database.engine import reading, writing
from tests.support.reports.database import DAY, ONE_DAY, Grid, profile
from tests.support.reports.published_days import publish

SITES = {"A CE h1": {"00:00": "OK"}, "B CE h2": {"00:00": "OK"}}


@pytest.fixture
def grid(engine: Engine, tmp_path: Path) -> Iterator[Grid]:
    url = f"sqlite:///{tmp_path}/sam.db"
    if engine.dialect.name == "postgresql":
        url = engine.url.render_as_string(hide_password=False)
    grid = Grid(url)
    functions = [("functions.compute", "functions.ce"), ("functions.storage", "functions.srm")]
    publish(engine, profile(tmp_path, *functions), DAY, SITES)
    yield grid
    grid.dispose()


def pages(grid: Grid, out: Path) -> dict[str, str]:
    with reading(grid.reader) as connection:
        write_site(connection, None, ONE_DAY, out)
    return {path.name: path.read_text() for path in (out / f"test/{DAY:%Y-%m}").glob("?.html")}


def sent(grid: Grid, time: str, performance: str) -> None:
    grid.result("CE h1 ping", time, "OK", performanceData=performance)


def test_a_page_has_a_plot_for_each_label_with_its_unit(grid: Grid, tmp_path: Path) -> None:
    sent(grid, "01:00", "time=1.5s;10;20 'free <b>'=20%")
    sent(grid, "02:00", "time=3.5s;10;20")

    page = pages(grid, tmp_path)["A.html"]

    assert re.findall(r"<figcaption>ping: <b>(.*?)</b>", page) == ["free &lt;b&gt;", "time"]
    assert "1.5 s to 3.5 s" in page and ">4 s</text>" in page


def test_a_site_without_performance_data_has_no_such_section(grid: Grid, tmp_path: Path) -> None:
    sent(grid, "01:00", "time=1.5s")

    found = pages(grid, tmp_path)

    assert 'id="performance"' in found["A.html"]
    assert 'id="performance"' not in found["B.html"]


def test_a_probe_with_many_labels_gets_a_limited_number_of_plots(
    grid: Grid, tmp_path: Path
) -> None:
    sent(grid, "01:00", " ".join(f"disk{number:02}={number}GB" for number in range(40)))

    page = pages(grid, tmp_path)["A.html"]

    assert page.count("<figcaption>") == MAX_PLOTS
    assert f"And {40 - MAX_PLOTS} more" in page


def test_results_that_arrive_after_the_run_leave_a_page_as_it_is(
    grid: Grid, tmp_path: Path
) -> None:
    sent(grid, "01:00", "time=1.5s")
    with writing(grid.engine) as connection:
        newest = "(SELECT max(result_id) FROM report_result)"
        connection.execute(text(f"UPDATE run SET newest_result = {newest}"))
    before = pages(grid, tmp_path / "before")

    sent(grid, "02:00", "time=99s")

    assert pages(grid, tmp_path / "after") == before
