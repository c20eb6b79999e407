"""EGI's rule: a site that misses its targets in three months in a row has to explain itself."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, timedelta

from sam_pipeline.spark_jobs.rules.days import month_of
from sam_pipeline.spark_jobs.rules.figures import Figure, Targets

IN_A_ROW = 3


def is_bad(figure: Figure, targets: Targets) -> bool:
    """Whether the availability or the reliability of a month is below its target."""
    missed = {miss.figure for miss in figure.misses(targets)}
    return bool(missed & {"availability", "reliability"})


def months_in_a_row(month: date) -> list[date]:
    """The first days of the months that the rule looks at, the given one first."""
    months = [month]
    while len(months) < IN_A_ROW:
        months.append(month_of(months[-1] - timedelta(days=1)).first)
    return months


def ends_bad_row(month: date, bad: Collection[date]) -> bool:
    """Whether the month (its first day) and those just before it are all bad."""
    return all(before in bad for before in months_in_a_row(month))
