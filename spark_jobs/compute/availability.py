"""The rows of the report tables: timelines, and availability and reliability (rule 11)."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sam_pipeline.schema.program.progress import Stage
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.spark_jobs.compute.storage import Storage
from sam_pipeline.spark_jobs.errors import SparkFailed
from sam_pipeline.spark_jobs.rules.levels import ALL_NAMES, METRIC
from sam_pipeline.spark_jobs.rules.statuses import (
    DOWNTIME,
    EXCLUDED,
    MISSING,
    OK,
    STATUSES,
    UNKNOWN,
    WARNING,
)

UP = (OK, WARNING)
NOT_KNOWN = (UNKNOWN, MISSING, EXCLUDED)

_FACTOR = 100_000  # 5 decimals


def write_tables(
    storage: Storage, segments: DataFrame, run_ids: Mapping[int, int], stage: Stage
) -> None:
    """Write the timelines of all levels, and the figures of the levels that store them.

    Args:
        segments: as folding.SEGMENTS.
        run_ids: the run of each day, by days since the epoch.
    Raises:
        SparkFailed: rows were written twice.
    """
    timelines = segments.select(
        _run_id(run_ids),
        "level",
        *ALL_NAMES,
        F.col("at").alias("start_time"),
        F.col("until").alias("end_time"),
        F.get(F.lit(list(STATUSES)), F.col("status")).alias("status"),
    )
    written = storage.write(timelines, "timeline_segment")
    # A cluster repeats the task of a worker that died, even if its rows were committed.
    if storage.segments_of(run_ids.values()) != written:
        raise SparkFailed("a task was repeated after it had stored its rows: run the report again")
    stage(f"adding up {plural(written, 'segment')}")
    summed = figures(segments.where(F.col("level") != METRIC))
    storage.write(summed.withColumn("run_id", _run_id(run_ids)), "{level}_figure")


def figures(segments: DataFrame) -> DataFrame:
    """Percentages, and seconds per status, for each day of a site, function, service or endpoint.

    Args:
        segments: level, day, names, status (code), at, until (epoch s).
    Returns:
        level, day, names, availability, reliability (decimal, null when undefined), …_s.
    """
    return segments.groupBy("level", "day", *ALL_NAMES).agg(
        _percent_up_without(NOT_KNOWN).alias("availability"),
        _percent_up_without((*NOT_KNOWN, DOWNTIME)).alias("reliability"),
        *[
            seconds_in(status).cast("int").alias(f"{name.lower()}_s")
            for status, name in enumerate(STATUSES)
        ],
    )


def seconds_in(*statuses: int) -> Column:
    """Whole seconds of the segments with one of these statuses."""
    seconds = F.col("until") - F.col("at")
    return F.sum(F.when(F.col("status").isin(*statuses), seconds).otherwise(0))


def _run_id(run_ids: Mapping[int, int]) -> Column:
    """The run of the row's day."""
    pairs = [F.lit(number) for pair in run_ids.items() for number in pair]
    return F.element_at(F.create_map(*pairs), F.col("day")).alias("run_id")


def _percent_up_without(statuses: tuple[int, ...]) -> Column:
    """100 · up / (all - statuses), 5 decimals, half up, in integers; null if nothing is left."""
    whole = F.sum(F.col("until") - F.col("at")) - seconds_in(*statuses)
    exact = seconds_in(*UP) * (200 * _FACTOR) + whole
    rounded = F.call_function("div", exact, F.nullif(whole * 2, F.lit(0)))
    return (rounded.cast("decimal(20,0)") / _FACTOR).cast("decimal(8,5)")
