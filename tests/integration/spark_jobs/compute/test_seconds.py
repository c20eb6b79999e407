"""Figures from the segments of a day: integer seconds, one rounding."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sam_pipeline.spark_jobs.compute.availability import figures
from sam_pipeline.spark_jobs.rules.days import DAY_S
from sam_pipeline.spark_jobs.rules.statuses import STATUSES

DAY = 1


def test_figures_come_from_integer_seconds(spark: SparkSession) -> None:
    hour = 3600
    lengths = [("OK", 7 * hour), ("WARNING", 1), ("DOWNTIME", 3 * hour), ("UNKNOWN", 4 * hour)]

    [row] = _figures_of(spark, [*lengths, ("CRITICAL", 10 * hour - 1)])

    up, known = 7 * hour + 1, DAY_S - 4 * hour
    assert (row["ok_s"], row["warning_s"], row["downtime_s"]) == (7 * hour, 1, 3 * hour)
    assert row["availability"] == round(Decimal(100 * up) / known, 5)
    assert row["reliability"] == round(Decimal(100 * up) / (known - 3 * hour), 5)


def test_a_figure_is_rounded_half_up(spark: SparkSession) -> None:
    # 100 * 1 / 32 000 = 0.003125, half way between two figures of five decimals.
    [row] = _figures_of(spark, [("OK", 1), ("CRITICAL", 31_999), ("MISSING", DAY_S - 32_000)])

    assert row["availability"] == Decimal("0.00313")


@pytest.mark.parametrize("status", ["MISSING", "UNKNOWN", "EXCLUDED"])
def test_without_known_time_there_is_no_figure(spark: SparkSession, status: str) -> None:
    [row] = _figures_of(spark, [(status, DAY_S)])

    assert row["availability"] is None and row["reliability"] is None


def test_a_day_in_downtime_has_availability_zero_and_no_reliability(spark: SparkSession) -> None:
    [row] = _figures_of(spark, [("DOWNTIME", DAY_S)])

    assert row["availability"] == 0 and row["reliability"] is None


def _figures_of(spark: SparkSession, lengths: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """The figures of a site with these statuses, each with its length in seconds."""
    names = ["level", "day", "site", "service_flavour", "host_name", "metric_name", "function"]
    rows, at = [], 0
    for status, seconds in lengths:
        rows.append(("site", DAY, "A", "", "", "", "", STATUSES.index(status), at, at + seconds))
        at += seconds
    whole = ("status", "at", "until")
    types = {"day": pa.int32(), **dict.fromkeys(whole, pa.int64())}
    arrays = [
        pa.array(column, types.get(name, pa.string()))
        for name, column in zip([*names, *whole], zip(*rows, strict=True), strict=True)
    ]
    table = spark.createDataFrame(pa.Table.from_arrays(arrays, [*names, *whole]))
    rows_of_figures: list[dict[str, Any]] = figures(table).toArrow().to_pylist()
    return rows_of_figures
