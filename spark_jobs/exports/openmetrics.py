"""Seconds per status in the OpenMetrics text format, which Prometheus can load as history.

A sample is the seconds of one day, with the time of the last second that counts on it. So the sum
of the samples of a period is the sum in `sam-report show`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from sam_pipeline.spark_jobs.rules.days import DAY_S, day_start
from sam_pipeline.spark_jobs.rules.levels import SECONDS
from sam_pipeline.spark_jobs.runs.published import DayFigure

NAME = "sam_status_seconds"
HEADER = f"""\
# HELP {NAME} Seconds of a UTC day that a site spent in a status.
# TYPE {NAME} gauge
# UNIT {NAME} seconds
"""
END = "# EOF\n"

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def samples(report: str, days: Iterable[DayFigure]) -> Iterator[str]:
    """A line for each site, status and day; the lines of a series are adjacent, oldest first."""
    ordered = sorted(days, key=lambda figure: (figure.names, figure.day))
    for names, group in groupby(ordered, key=lambda figure: figure.names):
        figures = list(group)
        for column in SECONDS:
            status = column.removesuffix("_s")
            named = {"report": report, "site": names[0], "status": status.upper()}
            labels = ",".join(f'{name}="{named[name].translate(_ESCAPES)}"' for name in named)
            for figure in figures:
                start = day_start(figure.day)
                end = start + DAY_S if figure.until is None else figure.until
                seconds = getattr(figure.seconds, status)
                yield f"{NAME}{{{labels}}} {seconds} {max(start, end - 1)}\n"
