"""show, explain and site for a published report of two days; the second day is still open."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark import SparkContext

from sam_pipeline.spark_jobs.cli import main
from sam_pipeline.spark_jobs.compute import job
from sam_pipeline.spark_jobs.rules.days import Period, day_start
from tests.support.reports.database import DAY, Grid, profile

NEXT = DAY + timedelta(days=1)
PERIOD = ["--from", str(DAY), "--to", str(NEXT)]
ODD_SITE = "=SUM(A1) <b>&/../x"

Command = Callable[..., str]


@pytest.fixture(scope="module")
def config(spark: SparkContext, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sam.toml whose database contains the report."""
    directory = tmp_path_factory.mktemp("report")
    grid = Grid(f"sqlite:///{directory}/sam.db")
    grid.endpoint("A", "CE", "h1")
    grid.endpoint("A", "SRM", "h2")
    grid.endpoint(ODD_SITE, "SRM", "h3")
    grid.endpoint("SILENT", "SRM", "h4")
    grid.group("A", "NORTH", weight=3)
    grid.group("SILENT", "NORTH")
    grid.downtime("20:00", "23:00", hostName="h1", description="new <kernel>")
    grid.downtime("02:00", "03:00", hostName="h2", severity="WARNING")
    grid.result("CE h1 ping", "00:00", "OK")
    grid.result("CE h1 submit", "22:00", "CRITICAL", day=DAY - timedelta(days=1))
    for time in ("01:00", "01:30", "02:00", "02:30", "03:00"):
        grid.result("CE h1 submit", time, "CRITICAL")
    grid.result("CE h1 submit", "06:00", "OK")
    grid.result("SRM h2 put", "00:00", "OK")
    grid.result("SRM h3 put", "00:00", "WARNING")
    now = day_start(NEXT) + 12 * 3600
    job.run(
        spark,
        grid.reporter,
        [profile(directory)],
        Period(DAY, NEXT),
        0,
        lambda: now,
        lambda stage: None,
    )
    path = directory / "sam.toml"
    path.write_text(f'[database]\nurl = "sqlite:///{directory}/sam.db"\n')
    return path


@pytest.fixture
def report(config: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    def command(*arguments: str) -> str:
        assert main(["--config", str(config), *arguments]) == 0
        return capsys.readouterr().out

    return command


def test_show_adds_seconds_then_divides(report: Command) -> None:
    shown = json.loads(report("show", *PERIOD, "--json"))

    [a] = [row for row in shown if row["site"] == "A"]
    assert (a["ok_s"], a["critical_s"], a["downtime_s"]) == ((15 + 12) * 3600, 6 * 3600, 3 * 3600)
    assert a["availability"] == 75.0
    assert a["reliability"] == 81.81818
    assert a["until"] == f"{NEXT}T12:00:00Z"
    assert a["missed"] == ["availability", "reliability"]


def test_show_lists_the_sites_that_miss_a_target(report: Command) -> None:
    lines = report("show", *PERIOD).splitlines()

    assert "until 2026-11-15T12:00:00Z" in lines[0]
    [missed_by_a] = [line for line in lines if line.startswith("  A: ")]
    assert re.search(r"availability 75\.00 .*80; reliability 81\.82 .*85$", missed_by_a)
    [missed_by_silent] = [line for line in lines if line.startswith("  SILENT: ")]
    assert re.search(r"unknown 100\.00 .*10$", missed_by_silent)
    [silent] = [line for line in lines if line.startswith("SILENT")]
    assert silent.endswith("no data")


def test_show_of_groups_counts_the_sites_that_had_a_value(report: Command) -> None:
    [north] = json.loads(report("show", "--level", "group", *PERIOD, "--format", "json"))

    assert (north["availability"], north["sites_known"], north["sites_expected"]) == (75.0, 1, 2)
    assert "coverage" in north["missed"]


def test_show_of_metrics_adds_up_their_timelines(report: Command) -> None:
    shown = json.loads(report("show", "--level", "metric", "--day", str(DAY), "--json"))

    seconds = {row["metric_name"]: row["critical_s"] for row in shown if row["host_name"] == "h1"}
    assert seconds == {"ping": 0, "submit": 6 * 3600}


def test_show_as_csv_escapes_formulas(report: Command) -> None:
    rows = list(csv.DictReader(io.StringIO(report("show", *PERIOD, "--format", "csv"))))

    assert {row["site"] for row in rows} == {"A", "SILENT", f"'{ODD_SITE}"}


def test_explain_leads_from_a_figure_to_its_messages(report: Command) -> None:
    explanation = report("explain", "--day", str(DAY), "--site", "A")

    [availability, *_] = re.findall("availability = (.+)", explanation)
    assert re.findall(r"\d+(?:\.\d+)?", availability) == [
        "100",
        "54000",
        "0",
        "86400",
        "0",
        "62.50000",
    ]
    assert "00:00:00-06:00:00 CRITICAL" in explanation
    assert re.search(r"2026-11-13T22:00:00Z CRITICAL .*\(message-22:00\)", explanation)
    assert "… 2 more" in explanation
    assert re.search(r"20:00:00-23:00:00 DOWNTIME\n.*SCHEDULED/OUTAGE of h1", explanation)
    assert "SCHEDULED/WARNING of h2" in explanation


def test_explain_can_be_limited_to_one_flavour(report: Command) -> None:
    [document] = json.loads(
        report("explain", "--day", str(DAY), "--site", "A", "--flavour", "SRM", "--json")
    )

    hosts = [row["host_name"] for row in document["things"] if row["level"] == "endpoint"]
    assert hosts == ["h2"]


def test_explain_of_an_unknown_site_names_the_sites(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["--config", str(config), "explain", "--day", str(DAY), "--site", "B"])

    assert code == 64
    assert f"{ODD_SITE}, A, SILENT" in capsys.readouterr().err


def test_a_day_that_was_not_computed_is_not_an_error(report: Command) -> None:
    assert json.loads(report("show", "--day", "2026-10-01", "--json")) == []


def test_the_pages_show_a_day_and_its_causes(report: Command, tmp_path: Path) -> None:
    report("site", *PERIOD, "--out", str(tmp_path))

    matrix = (tmp_path / "test/2026-11/index.html").read_text(encoding="utf-8")
    site = (tmp_path / "test/2026-11/A.html").read_text(encoding="utf-8")
    assert f'<td class="x d"><a href="A.html#{DAY}">✗62</a>' in matrix
    assert '<td class="g"><a href="SILENT.html#' in matrix
    assert "until 12:00" in matrix
    assert "says &lt;submit&gt;" in site and "<submit>" not in site
    assert "new &lt;kernel&gt;" in site


def test_the_same_figures_give_the_same_pages(report: Command, tmp_path: Path) -> None:
    for name in ("first", "second"):
        report("site", *PERIOD, "--out", str(tmp_path / name))

    first, second = (
        {page.relative_to(base): page.read_bytes() for page in base.rglob("*") if page.is_file()}
        for base in (tmp_path / "first", tmp_path / "second")
    )
    assert first == second
