"""Exported files say what `sam-report show` says, on both databases, and are replaced whole."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from sam_pipeline.spark_jobs.cli import main
from sam_pipeline.spark_jobs.profiles.profile import Profile
from sam_pipeline.spark_jobs.rules.days import Period, day_start
from sam_pipeline.spark_jobs.rules.groups import Member
from sam_pipeline.spark_jobs.runs.published import totals
from sam_pipeline.sql.database.engine import make_engine, reading_at_once
from sam_pipeline.sql.database.version import upgrade
from tests.services.postgres import as_role
from tests.support.reports.database import DAY, profile
from tests.support.reports.published_days import Timeline, publish
from tests.support.small_disk import small_disk

NEXT = DAY + timedelta(days=1)
VIEWS = {
    "endpoint_availability",
    "service_availability",
    "function_availability",
    "site_availability",
    "group_availability",
    "status_timeline",
    "status_trend",
}
NORTH = [Member("federation", "NORTH", "A", 3), Member("federation", "NORTH", "B", 0)]
GOOD: Timeline = {"00:00": "OK"}
BAD: Timeline = {"00:00": "OK", "06:00": "CRITICAL", "12:00": "DOWNTIME", "18:00": "WARNING"}
SILENT: Timeline = {"00:00": "MISSING"}


@dataclass(frozen=True)
class Place:
    """A database with published days, and a command line for its reader."""

    engine: Engine
    url: str
    config: Path
    report: Profile
    out: Path
    capsys: pytest.CaptureFixture[str]

    def publish(self, day: date, until: int | None = None, **endpoints: Timeline) -> None:
        named = {name.replace("_", " "): timeline for name, timeline in endpoints.items()}
        publish(self.engine, self.report, day, named, NORTH, until)

    def run(self, *words: str) -> tuple[int, str, str]:
        code = main([*words, "--config", str(self.config)])
        told = self.capsys.readouterr()
        return code, told.out, told.err

    def export(self, style: str, *words: str) -> list[Path]:
        """The files written, relative to the directory."""
        period = words or ("--from", f"{DAY}", "--to", f"{NEXT}")
        code, out, _ = self.run(
            "export", "--format", style, "--out", str(self.out), "--json", *period
        )
        assert code == 0
        return [Path(each["path"]).relative_to(self.out) for each in json.loads(out)]

    def show(self, *words: str) -> Any:
        period = ("--from", f"{DAY}", "--to", f"{NEXT}")
        code, out, _ = self.run("show", "--json", *words, *period)
        assert code == 0
        return json.loads(out)

    def json(self, *parts: str) -> Any:
        return json.loads(self.out.joinpath(*parts).read_text())


@pytest.fixture
def place(engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    """Two days of the report "test" on either database, read as the role of readers."""
    url = f"sqlite:///{tmp_path}/sam.db"
    if engine.dialect.name == "postgresql":
        url = as_role(engine.url.render_as_string(hide_password=False), "reader")
    return with_two_days(engine, url, tmp_path, capsys)


@pytest.fixture
def small_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Place]:
    """The same for what has nothing to do with the database."""
    url = f"sqlite:///{tmp_path}/sam.db"
    engine = make_engine(url, create=True)
    upgrade(engine)
    yield with_two_days(engine, url, tmp_path, capsys)
    engine.dispose()


def with_two_days(
    engine: Engine, url: str, directory: Path, capsys: pytest.CaptureFixture[str]
) -> Place:
    config = directory / "sam.toml"
    config.write_text(f'[database]\nurl = "{url}"\n')
    found = Place(engine, url, config, profile(directory), directory / "out", capsys)
    found.publish(DAY, A_CE_h1=BAD, A_SRM_h2=GOOD, B_CE_h3=SILENT)
    found.publish(NEXT, A_CE_h1=GOOD, A_SRM_h2=GOOD, B_CE_h3=BAD)
    return found


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_parquet_is_partitioned_by_report_and_day_with_types(place: Place) -> None:
    written = place.export("parquet")

    assert {path.parts[0] for path in written} == VIEWS
    assert Path(f"site_availability/report=test/day={DAY}/part-0.parquet") in written
    sites = ds.dataset(place.out / "site_availability", partitioning="hive").to_table()
    assert sites.schema.field("availability").type == pa.decimal128(8, 5)
    assert sites.schema.field("ok_s").type == pa.int32()
    assert sites.schema.field("until").type == pa.timestamp("us", "UTC")
    rows = {(row["day"], row["site"]): row for row in sites.to_pylist()}
    bad = rows[str(DAY), "A"]
    assert (bad["availability"], bad["reliability"]) == (Decimal("50.00000"), Decimal("66.66667"))
    assert (bad["ok_s"], bad["downtime_s"], bad["report"]) == (21_600, 21_600, "test")
    assert (rows[str(DAY), "B"]["availability"], rows[str(DAY), "B"]["missing_s"]) == (None, 86_400)
    timeline = ds.dataset(place.out / "status_timeline", partitioning="hive").to_table().to_pylist()
    assert len(timeline) == 2 * (5 * 4 + 4 + 5)
    [part] = place.out.glob(f"status_timeline/*/day={DAY}/*")
    assert pq.ParquetFile(part).num_row_groups == 1  # not a group for each row
    trend = ds.dataset(place.out / "status_trend", partitioning="hive").to_table().to_pylist()
    [site] = [r for r in trend if (r["level"], r["site"], r["day"]) == ("site", "A", str(DAY))]
    assert (site["changes"], site["warning_s"]) == (3, 21_600)
    assert site["first_change"] == datetime(2026, 11, 14, 6, tzinfo=UTC)
    assert site["last_change"] == datetime(2026, 11, 14, 18, tzinfo=UTC)


def test_spark_reads_the_parquet_of_a_report_whose_name_needs_care(
    small_place: Place, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "own").mkdir()
    named = profile(tmp_path / "own", ('name = "test"', 'name = "../WLCG critical=ü%"'))
    publish(small_place.engine, named, DAY, {"A CE h1": BAD})

    small_place.export("parquet")

    assert all(path.parent == small_place.out for path in small_place.out.iterdir())
    read = spark.read.parquet(str(small_place.out / "site_availability"))
    [row] = read.where(read.report == named.name).collect()
    assert (row.day, row.site, row.critical_s) == (DAY, "A", 21_600)
    assert row.availability == Decimal("50.00000")
    segments = spark.read.parquet(str(small_place.out / "status_timeline"))
    assert segments.where("level = 'site' AND site = 'A'").count() == 4 + 4 + 1
    assert dict(segments.dtypes)["start_time"] == "timestamp"


@pytest.mark.parametrize("style", ["parquet", "csv", "json", "argo", "openmetrics"])
def test_the_same_figures_give_the_same_bytes(place: Place, style: str) -> None:
    place.export(style)
    before = contents(place.out)
    place.publish(DAY, A_CE_h1=BAD, A_SRM_h2=GOOD, B_CE_h3=SILENT)  # by another run

    place.export(style)

    assert before and contents(place.out) == before


def test_csv_has_a_file_per_day_and_view_and_no_formulas(small_place: Place) -> None:
    publish(small_place.engine, small_place.report, DAY, {"=A1+2 CE h1": BAD}, NORTH)

    written = small_place.export("csv", "--day", f"{DAY}")

    assert set(written) == {Path(f"test/{DAY}/{view}.csv") for view in VIEWS}
    with (small_place.out / f"test/{DAY}/site_availability.csv").open(newline="") as file:
        [row] = csv.DictReader(file)
    assert (row["report"], row["day"], row["site"]) == ("test", f"{DAY}", "'=A1+2")
    assert (row["availability"], row["ok_s"], row["until"]) == ("50.00000", "21600", "")
    with (small_place.out / f"test/{DAY}/status_timeline.csv").open(newline="") as file:
        segments = [each for each in csv.DictReader(file) if each["level"] == "site"]
    assert [each["start_time"][11:] for each in segments] == [
        "00:00:00Z",
        "06:00:00Z",
        "12:00:00Z",
        "18:00:00Z",
    ]


def test_json_tells_null_where_there_is_no_figure_and_until_of_an_open_day(place: Place) -> None:
    place.publish(NEXT, until=day_start(NEXT) + 7 * 3600, A_CE_h1={"00:00": "OK"})

    place.export("json")

    rows = place.json("test", f"{DAY}", "site_availability.json")
    assert [(row["site"], row["availability"]) for row in rows] == [("A", 50.0), ("B", None)]
    for view in VIEWS:
        rows = place.json("test", f"{NEXT}", f"{view}.json")
        assert {row["until"] for row in rows} == {f"{NEXT}T07:00:00Z"}


def test_all_is_read_as_it_was_at_one_moment(place: Place) -> None:
    with reading_at_once(make_engine(place.url)) as connection:
        before = list(totals(connection, "test", "site", Period(DAY, NEXT)))
        place.publish(DAY, A_CE_h1=SILENT)

        assert list(totals(connection, "test", "site", Period(DAY, NEXT))) == before


def test_a_row_that_a_later_run_no_longer_has_is_gone_from_the_files(small_place: Place) -> None:
    small_place.export("json")
    publish(small_place.engine, small_place.report, DAY, {})

    small_place.export("json")

    assert small_place.json("test", f"{DAY}", "site_availability.json") == []
    assert len(small_place.json("test", f"{NEXT}", "site_availability.json")) == 2


def test_openmetrics_add_up_to_what_show_tells(place: Place) -> None:
    place.publish(NEXT, until=day_start(NEXT) + 7 * 3600, A_CE_h1=GOOD, B_CE_h3={"00:00": "OK"})

    [path] = place.export("openmetrics")

    text = (place.out / path).read_text()
    [family] = text_string_to_metric_families(text)
    assert (family.name, family.type, family.unit) == ("sam_status_seconds", "gauge", "seconds")
    sums: dict[tuple[str, str], float] = {}
    for sample in family.samples:
        key = (sample.labels["site"], sample.labels["status"])
        sums[key] = sums.get(key, 0) + sample.value
    assert sums == {
        (row["site"], name.removesuffix("_s").upper()): row[name]
        for row in place.show()
        for name in row
        if name.endswith("_s")
    }
    stamps = {float(sample.timestamp) for sample in family.samples}
    assert stamps == {day_start(NEXT) - 1, day_start(NEXT) + 7 * 3600 - 1}


def test_openmetrics_of_an_open_day_come_with_a_warning(small_place: Place) -> None:
    small_place.publish(NEXT, until=day_start(NEXT) + 7 * 3600, A_CE_h1=GOOD)
    words = ["export", "--format", "openmetrics", "--out", str(small_place.out)]

    code, _, err = small_place.run(*words, "--from", f"{DAY}", "--to", f"{NEXT}")

    assert code == 0
    assert f"{NEXT} ends at {NEXT}T07:00:00Z" in err


def test_argo_a_r_of_a_day_in_its_names_and_texts(place: Place) -> None:
    place.export("argo")

    [group] = place.json("test", f"{DAY}", "results-sites.json")["results"]
    assert (group["name"], group["type"]) == ("NORTH", "federation")
    assert group["endpoints"] == [
        {
            "name": "A",
            "type": "SITES",
            "results": [
                {
                    "timestamp": f"{DAY}",
                    "availability": "50",
                    "reliability": "66.66667",
                    "unknown": "0",
                    "uptime": "0.5",
                    "downtime": "0.25",
                }
            ],
        },
        {
            "name": "B",
            "type": "SITES",
            "results": [
                {
                    "timestamp": f"{DAY}",
                    "availability": "-1",
                    "reliability": "-1",
                    "unknown": "1",
                    "uptime": "0",
                    "downtime": "0",
                }
            ],
        },
    ]
    [group] = place.json("test", f"{DAY}", "results-groups.json")["results"]
    assert group["results"] == [
        {"timestamp": f"{DAY}", "availability": "50", "reliability": "66.66667"}
    ]
    first, second = place.json("test", f"{DAY}", "results-endpoints.json")["results"]
    assert [flavour["name"] for flavour in first["serviceflavors"]] == ["CE", "SRM"]
    [endpoint] = second["serviceflavors"][0]["endpoints"]
    assert (endpoint["name"], endpoint["type"]) == ("h3", "endpoint")
    [service, _] = place.json("test", f"{DAY}", "results-services.json")["results"][0][
        "serviceflavors"
    ]
    assert (service["type"], service["results"][0]["availability"]) == ("service", "50")


def test_argo_groups_without_a_figure_are_nan_and_ungrouped_sites_have_a_group(
    place: Place,
) -> None:
    publish(place.engine, place.report, DAY, {"B CE h3": SILENT, "C CE h4": GOOD}, NORTH)

    place.export("argo", "--day", f"{DAY}")

    [group] = place.json("test", f"{DAY}", "results-groups.json")["results"]
    assert group["results"][0]["availability"] == "nan"
    groups = place.json("test", f"{DAY}", "results-sites.json")["results"]
    assert [(each["type"], each["name"]) for each in groups] == [
        ("PROJECT", "test"),
        ("federation", "NORTH"),
    ]
    assert [each["name"] for each in groups[0]["endpoints"]] == ["C"]


def test_argo_timelines_end_with_the_row_of_the_days_end(place: Place) -> None:
    place.publish(NEXT, until=day_start(NEXT) + 7 * 3600, A_CE_h1={"00:00": "OK"})

    place.export("argo")

    groups = place.json("test", f"{DAY}", "status-metrics.json")["groups"]
    [endpoint] = groups[0]["services"][0]["endpoints"]
    assert (groups[0]["type"], groups[0]["services"][0]["type"]) == ("SITES", "service")
    assert endpoint == {
        "name": "h1",
        "metrics": [
            {
                "name": "ping",
                "statuses": [
                    {"timestamp": f"{DAY}T00:00:00Z", "value": "OK"},
                    {"timestamp": f"{DAY}T06:00:00Z", "value": "CRITICAL"},
                    {"timestamp": f"{DAY}T12:00:00Z", "value": "DOWNTIME"},
                    {"timestamp": f"{DAY}T18:00:00Z", "value": "WARNING"},
                    {"timestamp": f"{DAY}T23:59:59Z", "value": "WARNING"},
                ],
            }
        ],
    }
    [site] = place.json("test", f"{NEXT}", "status-sites.json")["groups"]
    assert site["statuses"][-1] == {"timestamp": f"{NEXT}T07:00:00Z", "value": "OK"}


def test_argo_months_are_written_when_the_period_covers_them(place: Place) -> None:
    month = date(2026, 11, 1), date(2026, 11, 30)
    publish(place.engine, place.report, date(2026, 10, 31), {"A CE h1": SILENT})
    publish(place.engine, place.report, date(2026, 10, 30), {"A CE h1": GOOD})

    written = place.export("argo", "--month", "2026-10")

    assert Path("test/2026-10/results-sites.json") in written
    [group] = place.json("test", "2026-10", "results-sites.json")["results"]
    [figure] = group["endpoints"][0]["results"]
    assert figure == {
        "timestamp": "2026-10",
        "availability": "100",
        "reliability": "100",
        "unknown": "0.5",
        "uptime": "0.5",
        "downtime": "0",
    }
    assert not any(f"test/{month[0]:%Y-%m}/" in str(path) for path in place.export("argo"))


def test_days_that_were_never_computed_are_told(small_place: Place) -> None:
    words = ["export", "--format", "csv", "--out", str(small_place.out)]

    code, out, err = small_place.run(*words, "--from", "2026-11-13", "--to", f"{DAY}")

    assert (code, out) == (0, f"test: 7 files with {rows_of_day()} rows below {small_place.out}\n")
    assert "test: not computed, so not exported: 2026-11-13" in err
    code, out, err = small_place.run(*words, "--day", "2026-11-01", "--json")
    assert (code, json.loads(out)) == (0, [])
    assert "nothing is published for 2026-11-01" in err


def rows_of_day() -> int:
    things = 2 + 3 + 3 + 3  # sites, functions, services, endpoints
    metrics = 3
    segments = 5 * 4 + 4 * 1 + 5 * 1
    return things + 1 + segments + things + metrics


@pytest.mark.parametrize("style", ["parquet", "json"])
def test_a_full_disk_leaves_the_old_files_whole(small_place: Place, style: str) -> None:
    with small_disk(small_place.out, "size=512k"):
        small_place.export(style, "--day", f"{NEXT}")
        before = contents(small_place.out)
        (small_place.out / "ballast").write_bytes(bytes(room_in(small_place.out)))

        code, out, err = small_place.run(
            *("export", "--format", style, "--out", str(small_place.out), "--day", f"{NEXT}")
        )

        assert (code, out) == (74, "")
        assert "No space left on device; existing files are unchanged: make room" in err
        (small_place.out / "ballast").unlink()
        assert contents(small_place.out) == before


def room_in(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


@pytest.mark.parametrize("style", ["parquet", "argo", "openmetrics"])
def test_a_directory_that_is_a_file_is_told(small_place: Place, style: str) -> None:
    small_place.out.write_text("mine")

    code, out, err = small_place.run(
        *("export", "--format", style, "--out", str(small_place.out), "--day", f"{DAY}")
    )

    assert (code, out) == (73, "")
    assert f"{small_place.out}" in err and "existing files are unchanged" in err
    assert small_place.out.read_text() == "mine"
