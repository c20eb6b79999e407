"""Exports: covered months, names of files, safe cells, ARGO's documents and OpenMetrics text."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from urllib.parse import unquote

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from sam_pipeline.spark_jobs.commands.export import covered_months
from sam_pipeline.spark_jobs.errors import CannotWriteFile
from sam_pipeline.spark_jobs.exports.argo import changes
from sam_pipeline.spark_jobs.exports.files import csv_lines, csv_table, output_file, path_part
from sam_pipeline.spark_jobs.exports.formats import HEADER, samples
from sam_pipeline.spark_jobs.rules.days import Period
from sam_pipeline.spark_jobs.rules.seconds import Seconds
from sam_pipeline.spark_jobs.runs.published import DayFigure, Segment
from tests.support.reports.database import DAY

TODAY = date(2026, 11, 20)
START = 1_794_614_400  # DAY


@pytest.mark.parametrize(
    ("first", "last", "months"),
    [
        (date(2026, 10, 1), date(2026, 10, 31), ["2026-10"]),
        (date(2026, 9, 30), date(2026, 11, 19), ["2026-10"]),
        (date(2026, 10, 31), TODAY, ["2026-11"]),  # as far as the running month goes
        (date(2024, 2, 1), date(2024, 2, 28), []),
    ],
)
def test_a_month_is_covered_when_the_period_contains_all_of_it(
    first: date, last: date, months: list[str]
) -> None:
    covered = covered_months(Period(first, last), TODAY)

    assert [f"{month.first:%Y-%m}" for month in covered] == months


@pytest.mark.parametrize("name", ["critical", "..", ".", "a/b", "ü %", "a=b", "~", "*?", "C:\\x"])
def test_a_name_becomes_one_part_of_a_path_and_comes_back(name: str) -> None:
    part = path_part(name)

    assert "/" not in part and not part.startswith(".")
    assert unquote(part) == name


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "below" / "file"
    with output_file(path) as file:
        file.write(b"old")

    with pytest.raises(ValueError, match="in the middle"), output_file(path) as file:
        file.write(b"half")
        raise ValueError("in the middle")
    with pytest.raises(CannotWriteFile, match="make room"), output_file(path):
        raise OSError(28, "No space left on device")

    assert path.read_bytes() == b"old"
    assert list(path.parent.iterdir()) == [path]


def test_csv_quotes_and_shows_formulas_instead_of_calculating_them() -> None:
    rows = [{"name": 'a "b", c', "missed": ["availability", "unknown"], "n": None, "x": -1.5}]

    assert csv_table(rows) == 'name,missed,n,x\n"a ""b"", c",availability unknown,,-1.5'
    assert csv_table([]) == ""
    for formula in ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"):
        assert csv_lines([[formula]]).strip('"\n').startswith("'")


def test_a_timeline_of_argo_ends_with_its_last_status_repeated() -> None:
    segments = [
        Segment(DAY, "site", (site,), START + start, START + end, status)
        for site, start, end, status in (
            *(("A", 0, 3600, "OK"), ("A", 3600, 86_400, "CRITICAL")),
            ("B", 0, 86_400, "MISSING"),
        )
    ]

    rows = [(*names, *item.values()) for names, item in changes(segments, START + 86_399)]

    assert rows == [
        ("A", f"{DAY}T00:00:00Z", "OK"),
        ("A", f"{DAY}T01:00:00Z", "CRITICAL"),
        ("A", f"{DAY}T23:59:59Z", "CRITICAL"),
        ("B", f"{DAY}T00:00:00Z", "MISSING"),
        ("B", f"{DAY}T23:59:59Z", "MISSING"),
    ]


def test_each_status_has_a_sample_a_day_stamped_with_its_last_second_and_any_name() -> None:
    name = 'a "quoted" \\ name\nof two lines, {ü}'
    next_day = DAY + timedelta(days=1)
    days = [
        DayFigure(next_day, (name,), Seconds(ok=400, missing=600), until=START + 86_400 + 1000),
        DayFigure(DAY, (name,), Seconds(ok=86_000, critical=400)),
    ]

    [family] = text_string_to_metric_families(f"{HEADER}{''.join(samples(name, days))}# EOF\n")
    found = family.samples

    assert {(s.labels["report"], s.labels["site"]) for s in found} == {(name, name)}
    assert {sample.labels["status"] for sample in found} == {
        *("OK", "WARNING", "CRITICAL", "UNKNOWN", "MISSING", "DOWNTIME", "EXCLUDED")
    }
    ok = [(float(s.timestamp), s.value) for s in found if s.labels["status"] == "OK"]
    assert ok == [(START + 86_399, 86_000), (START + 86_400 + 999, 400)]
