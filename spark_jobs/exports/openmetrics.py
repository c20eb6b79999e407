"""Seconds per status in the OpenMetrics text format, for Prometheus to load as history.

A sample tells the seconds of one day, stamped with the last second that counts in it: so a sum over
the samples of a period is the sum that `sam-report show` tells of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start
from sam_pipeline.spark_jobs.rules.levels import SECONDS
from sam_pipeline.spark_jobs.rules.seconds import Seconds
from sam_pipeline.spark_jobs.runs.published import DayFigure, Names

NAME = "sam_status_seconds"
HEADER = f"""\
# HELP {NAME} Seconds of a UTC day that a site spent in a status.
# TYPE {NAME} gauge
# UNIT {NAME} seconds
"""
END = "# EOF\n"

_STATUS = {name: name.removesuffix("_s") for name in SECONDS}


def samples(report: str, days: Iterable[DayFigure]) -> Iterator[str]:
    """A line for each site, status and day; those of a series together, in the order of time."""
    ordered = sorted(days, key=lambda each: (each.names, each.day))
    for names, group in groupby(ordered, key=_names):
        of_site = list(group)
        for status in _STATUS.values():
            labels = _labels(report=report, site=names[0], status=status.upper())
            for each in of_site:
                yield f"{NAME}{{{labels}}} {_held(each.seconds, status)} {_stamp(each)}\n"


def _names(figure: DayFigure) -> Names:
    return figure.names


def _held(seconds: Seconds, status: str) -> int:
    held: int = getattr(seconds, status)
    return held


def _stamp(figure: DayFigure) -> int:
    """The last second of the day, or of what has passed of it."""
    start = day_start(figure.day)
    end = start + DAY_S if figure.until is None else figure.until
    return max(start, end - 1)


def _labels(**values: str) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
