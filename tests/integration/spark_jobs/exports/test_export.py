"""Exported files have the figures of `sam-report show`, on both databases, and replace old ones."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from pyspark import SparkContext
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from sam_pipeline.spark_jobs.cli import main
from sam_pipeline.spark_jobs.profiles.file import read_profile
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
    "report_group_site",
    "target",
    "status_timeline",
    "status_trend",
}
NORTH = [Member("federation", "NORTH", "A", 3), Member("federation", "NORTH", "B", 0)]
GOOD: Timeline = {"00:00": "OK"}
BAD: Timeline = {"00:00": "OK", "06:00": "CRITICAL", "12:00": "DOWNTIME", "18:00": "WARNING"}
SILENT: Timeline = {"00:00": "MISSING"}


@dataclass(frozen=True)
class PublishedDays:
    """A database with published days, and the command line of a reader."""

    engine: Engine
    url: str
    config: Path
    report: Profile
    out: Path
    capsys: pytest.CaptureFixture[str]

    def publish(self, day: date, until: int | None = None, **endpoints: Timeline) -> None:
        timelines = {name.replace("_", " "): timeline for name, timeline in endpoints.items()}
        publish(self.engine, self.report, day, timelines, NORTH, until)

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of the command."""
        code = main([*arguments, "--config", str(self.config)])
        captured = self.capsys.readouterr()
        return code, captured.out, captured.err

    def export(self, style: str, *arguments: str) -> list[Path]:
        """Export both days or the given period; the files written, relative to `out`."""
        period = arguments or ("--from", f"{DAY}", "--to", f"{NEXT}")
        code, out, _ = self.run(
            "export", "--format", style, "--out", str(self.out), "--json", *period
        )
        assert code == 0
        return [Path(file["path"]).relative_to(self.out) for file in json.loads(out)]

    def show(self) -> Any:
        period = ("--from", f"{DAY}", "--to", f"{NEXT}")
        code, out, _ = self.run("show", "--json", *period)
        assert code == 0
        return json.loads(out)

    def json(self, *parts: str) -> Any:
        return json.loads(self.out.joinpath(*parts).read_text())


@pytest.fixture
def published(engine: Engine, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> PublishedDays:
    """Two days of the report "test" in either database, read with the role sam_reader."""
    url = f"sqlite:///{tmp_path}/sam.db"
    if engine.dialect.name == "postgresql":
        url = as_role(engine.url.render_as_string(hide_password=False), "reader")
    return with_two_days(engine, url, tmp_path, capsys)


@pytest.fixture
def sqlite_days(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[PublishedDays]:
    """Two days in SQLite, for tests that do not depend on the database."""
    url = f"sqlite:///{tmp_path}/sam.db"
    engine = make_engine(url, create=True)
    upgrade(engine)
    yield with_two_days(engine, url, tmp_path, capsys)
    engine.dispose()


def with_two_days(
    engine: Engine, url: str, directory: Path, capsys: pytest.CaptureFixture[str]
) -> PublishedDays:
    config = directory / "sam.toml"
    config.write_text(f'[database]\nurl = "{url}"\n')
    config.chmod(0o600)
    days = PublishedDays(engine, url, config, profile(directory), directory / "out", capsys)
    days.publish(DAY, A_CE_h1=BAD, A_SRM_h2=GOOD, B_CE_h3=SILENT)
    days.publish(NEXT, A_CE_h1=GOOD, A_SRM_h2=GOOD, B_CE_h3=BAD)
    return days


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_parquet_is_partitioned_by_report_and_day_with_types(published: PublishedDays) -> None:
    written = published.export("parquet")

    assert {path.parts[0] for path in written} == VIEWS
    assert Path(f"site_availability/report=test/day={DAY}/part-0.parquet") in written
    sites = ds.dataset(published.out / "site_availability", partitioning="hive").to_table()
    assert sites.schema.field("availability").type == pa.decimal128(8, 5)
    assert sites.schema.field("ok_s").type == pa.int32()
    assert sites.schema.field("until").type == pa.timestamp("us", "UTC")
    rows = {(row["day"], row["site"]): row for row in sites.to_pylist()}
    bad = rows[str(DAY), "A"]
    assert (bad["availability"], bad["reliability"]) == (Decimal("50.00000"), Decimal("66.66667"))
    assert (bad["ok_s"], bad["downtime_s"], bad["report"]) == (21_600, 21_600, "test")
    assert (rows[str(DAY), "B"]["availability"], rows[str(DAY), "B"]["missing_s"]) == (None, 86_400)
    timeline = (
        ds.dataset(published.out / "status_timeline", partitioning="hive").to_table().to_pylist()
    )
    assert len(timeline) == 2 * (5 * 4 + 4 + 5)
    [part] = published.out.glob(f"status_timeline/*/day={DAY}/*")
    assert pq.ParquetFile(part).num_row_groups == 1  # not a group for each row
    trend = ds.dataset(published.out / "status_trend", partitioning="hive").to_table().to_pylist()
    [site] = [r for r in trend if (r["level"], r["site"], r["day"]) == ("site", "A", str(DAY))]
    assert (site["changes"], site["warning_s"]) == (3, 21_600)
    assert site["first_change"] == datetime(2026, 11, 14, 6, tzinfo=UTC)
    assert site["last_change"] == datetime(2026, 11, 14, 18, tzinfo=UTC)


def test_spark_reads_the_parquet_of_a_report_with_an_odd_name(
    sqlite_days: PublishedDays, spark: SparkContext, tmp_path: Path
) -> None:
    (tmp_path / "own").mkdir()
    odd_report = profile(tmp_path / "own", ('name = "test"', 'name = "../WLCG critical=ü%"'))
    publish(sqlite_days.engine, odd_report, DAY, {"A CE h1": BAD})

    sqlite_days.export("parquet")

    assert all(path.parent == sqlite_days.out for path in sqlite_days.out.iterdir())
    parquet = SparkSession(spark).read.parquet
    read = parquet(str(sqlite_days.out / "site_availability"))
    [row] = read.where(read.report == odd_report.name).collect()
    assert (row.day, row.site, row.critical_s) == (DAY, "A", 21_600)
    assert row.availability == Decimal("50.00000")
    segments = parquet(str(sqlite_days.out / "status_timeline"))
    assert segments.where("level = 'site' AND site = 'A'").count() == 4 + 4 + 1
    assert dict(segments.dtypes)["start_time"] == "timestamp"


@pytest.mark.parametrize("style", ["parquet", "csv", "json", "argo", "openmetrics"])
def test_the_same_figures_give_the_same_bytes(published: PublishedDays, style: str) -> None:
    published.export(style)
    before = contents(published.out)
    published.publish(DAY, A_CE_h1=BAD, A_SRM_h2=GOOD, B_CE_h3=SILENT)  # by another run

    published.export(style)

    assert before and contents(published.out) == before


def test_csv_has_a_file_per_day_and_view_and_no_formulas(sqlite_days: PublishedDays) -> None:
    publish(sqlite_days.engine, sqlite_days.report, DAY, {"=A1+2 CE h1": BAD}, NORTH)

    written = sqlite_days.export("csv", "--day", f"{DAY}")

    assert set(written) == {Path(f"test/{DAY}/{view}.csv") for view in VIEWS}
    with (sqlite_days.out / f"test/{DAY}/site_availability.csv").open(newline="") as file:
        [row] = csv.DictReader(file)
    assert (row["report"], row["day"], row["site"]) == ("test", f"{DAY}", "'=A1+2")
    assert (row["availability"], row["ok_s"], row["until"]) == ("50.00000", "21600", "")
    with (sqlite_days.out / f"test/{DAY}/status_timeline.csv").open(newline="") as file:
        segments = [segment for segment in csv.DictReader(file) if segment["level"] == "site"]
    assert [segment["start_time"][11:] for segment in segments] == [
        "00:00:00Z",
        "06:00:00Z",
        "12:00:00Z",
        "18:00:00Z",
    ]


def test_json_has_null_without_a_figure_and_until_for_an_open_day(published: PublishedDays) -> None:
    published.publish(NEXT, until=day_start(NEXT) + 7 * 3600, A_CE_h1={"00:00": "OK"})

    published.export("json")

    rows = published.json("test", f"{DAY}", "site_availability.json")
    assert [(row["site"], row["availability"]) for row in rows] == [("A", 50.0), ("B", None)]
    for view in VIEWS:
        rows = published.json("test", f"{NEXT}", f"{view}.json")
        assert {row["until"] for row in rows} == {f"{NEXT}T07:00:00Z"}


def test_an_export_reads_one_snapshot_of_the_database(published: PublishedDays) -> None:
    with reading_at_once(make_engine(published.url)) as connection:
        before = list(totals(connection, "test", "site", Period(DAY, NEXT)))
        published.publish(DAY, A_CE_h1=SILENT)

        assert list(totals(connection, "test", "site", Period(DAY, NEXT))) == before


def test_a_row_that_a_later_run_no_longer_has_is_removed_from_the_files(
    sqlite_days: PublishedDays,
) -> None:
    sqlite_days.export("json")
    publish(sqlite_days.engine, sqlite_days.report, DAY, {})

    sqlite_days.export("json")

    assert sqlite_days.json("test", f"{DAY}", "site_availability.json") == []
    assert len(sqlite_days.json("test", f"{NEXT}", "site_availability.json")) == 2


def test_openmetrics_add_up_to_the_seconds_of_show(published: PublishedDays) -> None:
    published.publish(NEXT, until=day_start(NEXT) + 7 * 3600, A_CE_h1=GOOD, B_CE_h3={"00:00": "OK"})

    [path] = published.export("openmetrics")

    text = (published.out / path).read_text()
    [family] = text_string_to_metric_families(text)
    assert (family.name, family.type, family.unit) == ("sam_status_seconds", "gauge", "seconds")
    sums: dict[tuple[str, str], float] = {}
    for sample in family.samples:
        key = (sample.labels["site"], sample.labels["status"])
        sums[key] = sums.get(key, 0) + sample.value
    assert sums == {
        (row["site"], name.removesuffix("_s").upper()): row[name]
        for row in published.show()
        for name in row
        if name.endswith("_s")
    }
    stamps = {float(sample.timestamp) for sample in family.samples}
    assert stamps == {day_start(NEXT) - 1, day_start(NEXT) + 7 * 3600 - 1}


def test_openmetrics_of_an_open_day_give_a_warning(sqlite_days: PublishedDays) -> None:
    sqlite_days.publish(NEXT, until=day_start(NEXT) + 7 * 3600, A_CE_h1=GOOD)
    command = ["export", "--format", "openmetrics", "--out", str(sqlite_days.out)]

    code, _, err = sqlite_days.run(*command, "--from", f"{DAY}", "--to", f"{NEXT}")

    assert code == 0
    assert f"{NEXT}T07:00:00Z" in err


def test_argo_availability_and_reliability_of_a_day_have_its_names_and_texts(
    published: PublishedDays,
) -> None:
    published.export("argo")

    [group] = published.json("test", f"{DAY}", "results-sites.json")["results"]
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
    [group] = published.json("test", f"{DAY}", "results-groups.json")["results"]
    assert group["results"] == [
        {"timestamp": f"{DAY}", "availability": "50", "reliability": "66.66667"}
    ]
    first, second = published.json("test", f"{DAY}", "results-endpoints.json")["results"]
    assert [flavour["name"] for flavour in first["serviceflavors"]] == ["CE", "SRM"]
    [endpoint] = second["serviceflavors"][0]["endpoints"]
    assert (endpoint["name"], endpoint["type"]) == ("h3", "endpoint")
    [service, _] = published.json("test", f"{DAY}", "results-services.json")["results"][0][
        "serviceflavors"
    ]
    assert (service["type"], service["results"][0]["availability"]) == ("service", "50")


def test_argo_groups_without_a_figure_are_nan_and_ungrouped_sites_have_a_group(
    published: PublishedDays,
) -> None:
    publish(published.engine, published.report, DAY, {"B CE h3": SILENT, "C CE h4": GOOD}, NORTH)

    published.export("argo", "--day", f"{DAY}")

    [group] = published.json("test", f"{DAY}", "results-groups.json")["results"]
    assert group["results"][0]["availability"] == "nan"
    groups = published.json("test", f"{DAY}", "results-sites.json")["results"]
    assert [(group["type"], group["name"]) for group in groups] == [
        ("PROJECT", "test"),
        ("federation", "NORTH"),
    ]
    assert [site["name"] for site in groups[0]["endpoints"]] == ["C"]


def test_argo_timelines_end_with_a_row_for_the_end_of_the_day(published: PublishedDays) -> None:
    published.publish(NEXT, until=day_start(NEXT) + 7 * 3600, A_CE_h1={"00:00": "OK"})

    published.export("argo")

    groups = published.json("test", f"{DAY}", "status-metrics.json")["groups"]
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
    [site] = published.json("test", f"{NEXT}", "status-sites.json")["groups"]
    assert site["statuses"][-1] == {"timestamp": f"{NEXT}T07:00:00Z", "value": "OK"}


def test_argo_months_are_written_when_the_period_covers_them(published: PublishedDays) -> None:
    month = date(2026, 11, 1), date(2026, 11, 30)
    publish(published.engine, published.report, date(2026, 10, 31), {"A CE h1": SILENT})
    publish(published.engine, published.report, date(2026, 10, 30), {"A CE h1": GOOD})

    written = published.export("argo", "--month", "2026-10")

    assert Path("test/2026-10/results-sites.json") in written
    [group] = published.json("test", "2026-10", "results-sites.json")["results"]
    [figure] = group["endpoints"][0]["results"]
    assert figure == {
        "timestamp": "2026-10",
        "availability": "100",
        "reliability": "100",
        "unknown": "0.5",
        "uptime": "0.5",
        "downtime": "0",
    }
    assert not any(f"test/{month[0]:%Y-%m}/" in str(path) for path in published.export("argo"))


def test_days_that_were_never_computed_are_reported(sqlite_days: PublishedDays) -> None:
    command = ["export", "--format", "csv", "--out", str(sqlite_days.out)]

    code, out, err = sqlite_days.run(*command, "--from", "2026-11-13", "--to", f"{DAY}")

    assert code == 0
    assert re.fullmatch(
        rf"test: {len(VIEWS)} files .*{rows_of_day()} rows .*{sqlite_days.out}\n", out
    )
    assert re.search("test: not computed.* 2026-11-13", err)
    code, out, err = sqlite_days.run(*command, "--day", "2026-11-01", "--json")
    assert (code, json.loads(out)) == (0, [])
    assert "nothing is published for 2026-11-01" in err


def rows_of_day() -> int:
    figures = 2 + 3 + 3 + 3  # sites, functions, services, endpoints
    metrics = 3
    segments = 5 * 4 + 4 * 1 + 5 * 1
    groups, members, targets = 1, 2, 1 + 2
    return figures + groups + members + targets + segments + figures + metrics


@pytest.mark.parametrize("style", ["parquet", "json"])
def test_a_full_disk_leaves_the_old_files_whole(sqlite_days: PublishedDays, style: str) -> None:
    with small_disk(sqlite_days.out, "size=512k"):
        sqlite_days.export(style, "--day", f"{NEXT}")
        before = contents(sqlite_days.out)
        (sqlite_days.out / "ballast").write_bytes(bytes(room_in(sqlite_days.out)))

        code, out, err = sqlite_days.run(
            *("export", "--format", style, "--out", str(sqlite_days.out), "--day", f"{NEXT}")
        )

        assert (code, out) == (74, "")
        assert "No space left on device" in err
        assert "existing files are unchanged" in err
        (sqlite_days.out / "ballast").unlink()
        assert contents(sqlite_days.out) == before


def room_in(directory: Path) -> int:
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


@pytest.mark.parametrize("style", ["parquet", "argo", "openmetrics"])
def test_an_output_path_that_is_a_file_is_reported(sqlite_days: PublishedDays, style: str) -> None:
    sqlite_days.out.write_text("mine")

    code, out, err = sqlite_days.run(
        *("export", "--format", style, "--out", str(sqlite_days.out), "--day", f"{DAY}")
    )

    assert (code, out) == (73, "")
    assert f"{sqlite_days.out}" in err and "existing files are unchanged" in err
    assert sqlite_days.out.read_text() == "mine"


def test_targets_and_members_of_groups_are_exported(published: PublishedDays) -> None:
    path = published.config.with_name("profile.toml")
    path.write_text(f"{path.read_text()}[targets.groups.federation.NORTH]\navailability = 95\n")
    days = replace(published, report=read_profile(path))
    days.publish(DAY, A_CE_h1=BAD, B_CE_h3=SILENT)

    days.export("json", "--day", f"{DAY}")

    members = days.json("test", f"{DAY}", "report_group_site.json")
    assert [(m["group_name"], m["site"], m["weight"]) for m in members] == [
        ("NORTH", "A", 3),
        ("NORTH", "B", 0),
    ]
    [north, a, _] = days.json("test", f"{DAY}", "target.json")
    aims = ("availability", "reliability", "unknown", "coverage")
    assert (north["level"], north["group_name"]) == ("group", "NORTH")
    assert [north[aim] for aim in aims] == [95, 85, None, 90]
    assert (a["level"], a["site"]) == ("site", "A")
    assert [a[aim] for aim in aims] == [95, 85, 10, None]


@pytest.mark.parametrize("style", ["parquet", "csv", "argo", "openmetrics"])
def test_the_export_of_one_site_has_its_rows_alone(published: PublishedDays, style: str) -> None:
    published.export(style)
    everything = contents(published.out)
    alone = replace(published, out=published.out.with_name("alone"))

    alone.export(style, "--from", f"{DAY}", "--to", f"{NEXT}", "--site", "B")

    written = contents(alone.out)
    missing = {re.split(r"[/.]", name)[0 if style == "parquet" else -2] for name in everything}
    missing -= {re.split(r"[/.]", name)[0 if style == "parquet" else -2] for name in written}
    of_groups = {"parquet": {"group_availability"}, "csv": {"group_availability"}}
    assert missing == of_groups.get(style, {"results-groups"} if style == "argo" else set())
    assert all(b"h3" in text or b"B" in text for text in written.values())
    assert not any(b"h1" in text for text in written.values())
    assert any(b"h1" in text for text in everything.values()) == (style != "openmetrics")


def test_an_export_of_an_unknown_site_is_refused(published: PublishedDays) -> None:
    period = ("--day", f"{DAY}", "--site", "C")

    code, _, err = published.run("export", "--format", "csv", "--out", str(published.out), *period)

    assert code == 64
    assert "no site C" in err and not published.out.exists()
