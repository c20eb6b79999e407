"""Exported files have the figures of `sam-report show`, and replace older ones."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine

from sam_pipeline.spark_jobs.profiles.file import read_profile
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import day_start
from sam_pipeline.spark_jobs.rules.figures import Member
from tests.integration.spark_jobs.conftest import SamReport
from tests.support.commands import Answer
from tests.support.database.dialects import only_on
from tests.support.reports.database import DAY, profile
from tests.support.reports.published_days import Timeline, publish

NEXT = DAY + timedelta(days=1)
BOTH = ("--from", DAY, "--to", NEXT)
VIEWS = {
    "endpoint_availability",
    "service_availability",
    "function_availability",
    "site_availability",
    "group_availability",
    "report_group_site",
    "target",
    "status_timeline",
    "status_trend",
}
NORTH = [Member("federation", "NORTH", "A", 3), Member("federation", "NORTH", "B", 1)]
GOOD: Timeline = {"00:00": "OK"}
BAD: Timeline = {"00:00": "OK", "06:00": "CRITICAL", "12:00": "DOWNTIME", "18:00": "WARNING"}
SILENT: Timeline = {"00:00": "MISSING"}
OPEN_UNTIL = day_start(NEXT) + 7 * 3600


@dataclass(frozen=True)
class Days:
    """A database with published days, the command line of a reader, and an output directory."""

    engine: Engine
    sam_report: SamReport
    report: Profile
    out: Path

    def publish(self, day: date, until: int | None = None, **endpoints: Timeline) -> None:
        timelines = {name.replace("_", " "): timeline for name, timeline in endpoints.items()}
        publish(self.engine, self.report, day, timelines, NORTH, until)

    def run(self, style: str, *more: object, code: int = 0) -> Answer:
        return self.sam_report("export", "--format", style, "--out", self.out, *more, code=code)

    def export(self, style: str, *period: object) -> list[Path]:
        """Export both days or the given period; the files written, relative to `out`."""
        files = self.run(style, "--json", *(period or BOTH)).json
        return [Path(file["path"]).relative_to(self.out) for file in files]

    def json(self, *parts: str) -> Any:
        return json.loads(self.out.joinpath("test", *parts).read_text())

    def contents(self) -> dict[str, bytes]:
        files = (path for path in self.out.rglob("*") if path.is_file())
        return {str(path.relative_to(self.out)): path.read_bytes() for path in files}


@pytest.fixture
def days(engine: Engine, sam_report: SamReport, tmp_path: Path) -> Days:
    """Two days of the report "test" in either database."""
    days = Days(engine, sam_report, profile(tmp_path), tmp_path / "out")
    days.publish(DAY, A_CE_h1=BAD, A_SRM_h2=GOOD, B_CE_h3=SILENT)
    days.publish(NEXT, A_CE_h1=GOOD, A_SRM_h2=GOOD, B_CE_h3=BAD)
    return days


def test_parquet_is_partitioned_by_report_and_day_with_types(days: Days) -> None:
    written = days.export("parquet")

    assert {path.parts[0] for path in written} == VIEWS
    assert Path(f"site_availability/report=test/day={DAY}/part-0.parquet") in written
    sites = ds.dataset(days.out / "site_availability", partitioning="hive").to_table()
    types = {name: sites.schema.field(name).type for name in ("availability", "ok_s", "until")}
    assert types == {
        "availability": pa.decimal128(8, 5),
        "ok_s": pa.int32(),
        "until": pa.timestamp("us", "UTC"),
    }
    rows = {(row["day"], row["site"]): row for row in sites.to_pylist()}
    bad = rows[str(DAY), "A"]
    assert (bad["availability"], bad["reliability"]) == (Decimal("50.00000"), Decimal("66.66667"))
    assert (rows[str(DAY), "B"]["availability"], rows[str(DAY), "B"]["missing_s"]) == (None, 86_400)
    [part] = days.out.glob(f"status_timeline/*/day={DAY}/*")
    assert pq.ParquetFile(part).num_row_groups == 1  # not a group for each row


@pytest.mark.parametrize("style", ["parquet", "csv", "json", "argo", "openmetrics"])
def test_the_same_figures_give_the_same_bytes(days: Days, style: str) -> None:
    days.export(style)
    before = days.contents()
    days.publish(DAY, A_CE_h1=BAD, A_SRM_h2=GOOD, B_CE_h3=SILENT)  # by another run

    days.export(style)

    assert before and days.contents() == before


@only_on("sqlite")
def test_csv_has_a_file_per_day_and_view_and_no_formulas(days: Days) -> None:
    publish(days.engine, days.report, DAY, {"=A1+2 CE h1": BAD}, NORTH)

    written = days.export("csv", "--day", f"{DAY}")

    def rows(view: str) -> list[dict[str, str]]:
        with (days.out / f"test/{DAY}/{view}.csv").open(newline="") as file:
            return list(csv.DictReader(file))

    assert set(written) == {Path(f"test/{DAY}/{view}.csv") for view in VIEWS}
    [row] = rows("site_availability")
    assert (row["report"], row["day"], row["site"]) == ("test", f"{DAY}", "'=A1+2")
    assert (row["availability"], row["ok_s"], row["until"]) == ("50.00000", "21600", "")


def test_json_has_null_without_a_figure_the_end_of_an_open_day_and_targets(
    days: Days,
) -> None:
    path = days.out.with_name("profile.toml")
    targets = "[targets.groups.federation.NORTH]\navailability = 95\n"
    path.write_text(f"{path.read_text()}{targets}")
    own = Days(days.engine, days.sam_report, read_profile(path), days.out)
    own.publish(DAY, A_CE_h1=BAD, B_CE_h3=SILENT)
    days.publish(NEXT, OPEN_UNTIL, A_CE_h1=GOOD)

    days.export("json")

    rows = days.json(f"{DAY}", "site_availability.json")
    assert [(row["site"], row["availability"]) for row in rows] == [("A", 50.0), ("B", None)]
    for view in VIEWS:
        rows = days.json(f"{NEXT}", f"{view}.json")
        assert {row["until"] for row in rows} == {f"{NEXT}T07:00:00Z"}
    [north, a, _] = days.json(f"{DAY}", "target.json")
    assert (north["level"], north["group_name"], north["availability"]) == ("group", "NORTH", 95)
    assert (a["level"], a["site"], a["reliability"], a["coverage"]) == ("site", "A", 85, None)
    # A row that a later run no longer has is removed from the files.
    days.publish(DAY)
    days.export("json")
    assert days.json(f"{DAY}", "site_availability.json") == []
    assert len(days.json(f"{NEXT}", "site_availability.json")) == 1


def test_argo_availability_and_reliability_of_a_day_have_its_names_and_texts(days: Days) -> None:
    names = ("timestamp", "availability", "reliability", "unknown", "uptime", "downtime")
    days.export("argo")

    [group] = days.json(f"{DAY}", "results-sites.json")["results"]
    assert (group["name"], group["type"]) == ("NORTH", "federation")
    assert group["endpoints"] == [
        {"name": name, "type": "SITES", "results": [dict(zip(names, values, strict=True))]}
        for name, values in (
            ("A", (f"{DAY}", "50", "66.66667", "0", "0.5", "0.25")),
            ("B", (f"{DAY}", "-1", "-1", "1", "0", "0")),
        )
    ]
    [group] = days.json(f"{DAY}", "results-groups.json")["results"]
    assert group["results"] == [
        {"timestamp": f"{DAY}", "availability": "50", "reliability": "66.66667"}
    ]
    first, second = days.json(f"{DAY}", "results-endpoints.json")["results"]
    assert [flavour["name"] for flavour in first["serviceflavors"]] == ["CE", "SRM"]
    [endpoint] = second["serviceflavors"][0]["endpoints"]
    assert (endpoint["name"], endpoint["type"]) == ("h3", "endpoint")
    # Groups without a figure are nan, and sites without a group have one.
    publish(days.engine, days.report, DAY, {"B CE h3": SILENT, "C CE h4": GOOD}, NORTH)
    days.export("argo", "--day", f"{DAY}")
    [group] = days.json(f"{DAY}", "results-groups.json")["results"]
    assert group["results"][0]["availability"] == "nan"
    groups = days.json(f"{DAY}", "results-sites.json")["results"]
    types = [(group["type"], group["name"]) for group in groups]
    assert types == [("PROJECT", "test"), ("federation", "NORTH")]


@only_on("sqlite")
def test_days_that_were_never_computed_are_reported(days: Days) -> None:
    some = days.run("csv", "--from", "2026-11-13", "--to", f"{DAY}")
    none = days.run("csv", "--day", "2026-11-01", "--json")

    assert re.fullmatch(rf"test: {len(VIEWS)} files .* rows .*{days.out}\n", some.out)
    assert re.search("test: not computed.* 2026-11-13", some.err)
    assert none.json == [] and "nothing is published for 2026-11-01" in none.err


@only_on("sqlite")
def test_an_output_path_that_is_a_file_is_reported(days: Days) -> None:
    days.out.write_text("mine")

    refused = days.run("parquet", "--day", f"{DAY}", code=73)

    assert refused.out == "" and "existing files are unchanged" in refused.err
    assert days.out.read_text() == "mine"


@pytest.mark.parametrize("style", ["parquet", "csv", "argo", "openmetrics"])
def test_the_export_of_one_site_has_its_rows_alone(days: Days, style: str) -> None:
    days.export(style)
    everything = days.contents()
    alone = Days(days.engine, days.sam_report, days.report, days.out.with_name("alone"))

    alone.export(style, *BOTH, "--site", "B")

    written = alone.contents()
    assert all(b"h3" in text or b"B" in text for text in written.values())
    assert not any(b"h1" in text for text in written.values())
    assert any(b"h1" in text for text in everything.values()) == (style != "openmetrics")
    assert "no site C" in alone.run(style, "--day", f"{DAY}", "--site", "C", code=64).err
