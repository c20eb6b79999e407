"""Successive results of an instance with the same status, as one row: a stretch.

Nine of ten results only repeat the one before. The tasks that read results keep the first and the
last second of each stretch, so that Spark sorts changes instead of results. Inside a stretch there
is no result of its instance with another status, so a slice must hold all results of its time.

Only NumPy: Spark's workers run this.
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

    `packed` is the first second times 8 plus the status code, `last` the last second, `results` the
    number of results; the checks are sums that change when a result is added, moved or changed.
    """

    instance_id: Integers
    packed: Integers
    last: Integers
    results: Integers
    check_1: Integers
    check_2: Integers


def stretches(results: Results, alone: Integers, apart_s: int | None) -> Stretches:
    """Join results, which may come in any order, to stretches.

    A stretch ends when the status changes and after more than `apart_s` seconds without a result
    (None: however long). Each result of the instances in `alone` is a stretch of its own: they
    are reported together with another instance, whose results may lie between. Of several results
    of an instance at one second the worst counts (availability rule 4).
    """
    if not len(results.packed):
        return Stretches(*[np.empty(0, np.int64)] * len(Stretches._fields))
    instance_id, second, status = _sorted(results)
    worst = _worst_of_second(instance_id, second, status)
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
    """Instances, seconds and statuses, ordered by instance, time and harm."""
    # One number per result sorts several times faster than several columns.
    start = int(results.packed.min())
    bits = int(results.packed.max() - start).bit_length()
    keys = (results.instance_id << bits) | (results.packed - start)
    keys.sort()
    packed = (keys & ((1 << bits) - 1)) + start
    return keys >> bits, packed >> _STATUS_BITS, packed & ((1 << _STATUS_BITS) - 1)


def _worst_of_second(instance_id: Integers, second: Integers, status: Integers) -> Integers:
    """The worst status of each instance and second, for each result: the last in their order."""
    ends = np.empty(len(second), bool)
    ends[-1] = True
    ends[:-1] = (second[1:] != second[:-1]) | (instance_id[1:] != instance_id[:-1])
    if ends.all():
        return status
    last = np.flatnonzero(ends)
    return np.repeat(status[last], np.diff(last, prepend=-1))
