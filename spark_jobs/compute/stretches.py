"""Successive results of an instance with the same status, as one row: a stretch.

Nine results out of ten only repeat the previous status. The tasks that read results keep the first
and the last second of each stretch, so Spark sorts changes instead of results. Within a stretch its
instance has no result with another status, so a slice must contain every result of its time range.

Only NumPy is imported: this runs in Spark's workers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sam_pipeline.spark_jobs.rules.days import DAY_S

Integers = npt.NDArray[np.int64]

_STATUS_BITS = 3


class Results(NamedTuple):
    """Results column by column; `packed` is the epoch second times 8 plus the status code."""

    instance_id: Integers
    packed: Integers


class Stretches(NamedTuple):
    """Stretches column by column, ordered by instance and time.

    `packed` is the first second times 8 plus the status code, `last` is the last second, `results`
    is the number of results; the checks are sums that change when a result is added, moved or
    changed.
    """

    instance_id: Integers
    packed: Integers
    last: Integers
    results: Integers
    check_1: Integers
    check_2: Integers


def stretches(results: Results, alone: Integers, apart_s: int | None) -> Stretches:
    """Join results, given in any order, into stretches.

    Of several results of an instance in the same second the worst counts (availability rule 4).

    Args:
        alone: instances whose results are never joined. They are reported together with another
            instance, whose results may lie in between.
        apart_s: a gap of more than this many seconds ends a stretch; None: no gap does.
    """
    if not len(results.packed):
        return Stretches(*[np.empty(0, np.int64)] * len(Stretches._fields))
    instance_id, second, status = _sorted(results)
    # The worst status of each second is the last one in this order.
    worst = status
    ends_second = np.empty(len(second), bool)
    ends_second[-1] = True
    ends_second[:-1] = (second[1:] != second[:-1]) | (instance_id[1:] != instance_id[:-1])
    if not ends_second.all():
        last = np.flatnonzero(ends_second)
        worst = np.repeat(status[last], np.diff(last, prepend=-1))

    begins = np.empty(len(second), bool)
    begins[0] = True
    begins[1:] = (instance_id[1:] != instance_id[:-1]) | (worst[1:] != worst[:-1])
    if apart_s is not None:
        begins[1:] |= second[1:] - second[:-1] > apart_s
    if len(alone):
        begins |= np.isin(instance_id, alone)
    first = np.flatnonzero(begins)
    after = np.append(first[1:], len(second))
    of_day = second % DAY_S + 1
    check = of_day * (1 + status)
    return Stretches(
        instance_id=instance_id[first],
        packed=(second[first] << _STATUS_BITS) | worst[first],
        last=second[after - 1],
        results=after - first,
        check_1=np.add.reduceat(check, first),
        check_2=np.add.reduceat(of_day * check, first),
    )


def _sorted(results: Results) -> tuple[Integers, Integers, Integers]:
    """Instances, seconds and statuses, sorted by instance, time and severity."""
    # Sorting one number per result is several times faster than sorting by several columns.
    start = int(results.packed.min())
    bits = int(results.packed.max() - start).bit_length()
    keys = (results.instance_id << bits) | (results.packed - start)
    keys.sort()
    packed = (keys & ((1 << bits) - 1)) + start
    return keys >> bits, packed >> _STATUS_BITS, packed & ((1 << _STATUS_BITS) - 1)
