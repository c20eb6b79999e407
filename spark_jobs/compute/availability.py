"""Availability and reliability as Spark columns (availability rule 11)."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sam_pipeline.spark_jobs.rules.levels import ALL_NAMES
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
DOWN = (DOWNTIME,)

_PLACES = 100_000


def figures(timeline: DataFrame) -> DataFrame:
    """Percentages and seconds per status of each thing and day.

    Input: level, day, names, status (code), at, until (epoch s).
    Result: level, day, names, availability, reliability (decimal, null when undefined), …_s.
    """
    return timeline.groupBy("level", "day", *ALL_NAMES).agg(
        availability().alias("availability"),
        reliability().alias("reliability"),
        *[
            seconds_in(status).cast("int").alias(f"{name.lower()}_s")
            for status, name in enumerate(STATUSES)
        ],
    )


def availability() -> Column:
    """Share of the known time that was up, in percent."""
    return _percent(seconds_in(*UP), _all_seconds() - seconds_in(*NOT_KNOWN))


def reliability() -> Column:
    """The same, announced downtimes left out."""
    return _percent(seconds_in(*UP), _all_seconds() - seconds_in(*NOT_KNOWN, *DOWN))


def seconds_in(*statuses: int) -> Column:
    """Whole seconds of the segments with one of these statuses."""
    held = F.col("until") - F.col("at")
    return F.sum(F.when(F.col("status").isin(*statuses), held).otherwise(0))


def _all_seconds() -> Column:
    return F.sum(F.col("until") - F.col("at"))


def _percent(part: Column, whole: Column) -> Column:
    """100 · part / whole, 5 decimals, half up, in integers; null where there is no whole."""
    exact = part * (200 * _PLACES) + whole
    rounded = F.call_function("div", exact, F.nullif(whole * 2, F.lit(0)))
    return (rounded.cast("decimal(20,0)") / _PLACES).cast("decimal(8,5)")
