"""Seconds per status and percentages of many things at once (availability rule 11)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sam_pipeline.spark_jobs.rules.statuses import (
    DOWNTIME,
    EXCLUDED,
    MISSING,
    OK,
    STATUSES,
    UNKNOWN,
    WARNING,
)

Integers = npt.NDArray[np.int64]
Percents = np.ma.MaskedArray[tuple[int], np.dtype[np.float64]]

_UP = (OK, WARNING)
_NOT_KNOWN = (UNKNOWN, MISSING, EXCLUDED)
_FACTOR = 100_000  # 5 decimals


def seconds_per_status(
    thing: Integers, status: Integers, seconds: Integers, things: int
) -> Integers:
    """The seconds added up: a row for each of the things, a column for each status."""
    place = thing * len(STATUSES) + status
    added_up = np.bincount(place, seconds, things * len(STATUSES)).astype(np.int64)
    return added_up.reshape(things, len(STATUSES))


def availability(seconds: Integers) -> Percents:
    """Share of the known time that was up, in percent; see `_percent_up_without`."""
    return _percent_up_without(_NOT_KNOWN, seconds)


def reliability(seconds: Integers) -> Percents:
    """Share of the known time without downtimes that was up, in percent."""
    return _percent_up_without((*_NOT_KNOWN, DOWNTIME), seconds)


def _percent_up_without(statuses: tuple[int, ...], seconds: Integers) -> Percents:
    """100 · up / (all - statuses): 5 decimals, half up; masked where nothing is left."""
    whole = seconds.sum(axis=1) - seconds[:, statuses].sum(axis=1)
    up = seconds[:, _UP].sum(axis=1)
    # Rounded in integers; a double has enough digits to show 5 decimals exactly.
    rounded = (200 * _FACTOR * up + whole) // np.maximum(2 * whole, 1)
    return np.ma.array(rounded / _FACTOR, mask=whole == 0)
