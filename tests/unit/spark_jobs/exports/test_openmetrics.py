"""The OpenMetrics text, read with the official parser."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from sam_pipeline.spark_jobs.exports.openmetrics import END, HEADER, samples
from sam_pipeline.spark_jobs.rules.seconds import Seconds
from sam_pipeline.spark_jobs.runs.published import DayFigure
from tests.support.reports.database import DAY

START = 1_794_614_400  # DAY
NEXT = DAY + timedelta(days=1)


def parsed(report: str, days: Sequence[DayFigure]) -> list[Any]:
    text = HEADER + "".join(samples(report, days)) + END
    [family] = text_string_to_metric_families(text)
    return list(family.samples)


def test_any_name_is_parsed_back() -> None:
    name = 'a "quoted" \\ name\nof two lines, {ü}'

    parsed_samples = parsed(name, [DayFigure(DAY, (name,), Seconds(ok=86_400))])

    assert {(s.labels["report"], s.labels["site"]) for s in parsed_samples} == {(name, name)}


def test_each_status_has_a_sample_a_day_stamped_with_its_last_second() -> None:
    days = [
        DayFigure(NEXT, ("A",), Seconds(ok=400, missing=600), until=START + 86_400 + 1000),
        DayFigure(DAY, ("A",), Seconds(ok=86_000, critical=400)),
    ]

    parsed_samples = parsed("r", days)

    assert {sample.labels["status"] for sample in parsed_samples} == {
        *("OK", "WARNING", "CRITICAL", "UNKNOWN", "MISSING", "DOWNTIME", "EXCLUDED")
    }
    ok = [(float(s.timestamp), s.value) for s in parsed_samples if s.labels["status"] == "OK"]
    assert ok == [(START + 86_399, 86_000), (START + 86_400 + 999, 400)]


def test_a_report_without_days_is_an_empty_family() -> None:
    assert parsed("r", []) == []
