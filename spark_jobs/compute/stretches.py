"""Results of an instance that say the same, one after the other, as one row: what Spark reads.

Nine of ten results only repeat what was known. A task that reads results keeps the first and the
last second of each stretch instead, so Spark sorts changes, not results. No result of a stretch's
instance that was read lies inside it and says something else, which is why a slice must hold all
results of its time.

Only NumPy: Spark's workers run this.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

_STATUS_BITS = 3
_DAY_S = 86_400


class Results(NamedTuple):
    """Results column by column: `packed` is the epoch second times 8 plus the status's code."""

    instance_id: Integers
    packed: Integers


class Stretches(NamedTuple):
    """Stretches column by column, ordered by instance and time.

    `packed` is the first second times 8 plus the status's code, `last` the last second. `results`
    counts them; the checks are sums that change when one is added, moved or changed.
    """

    instance_id: Integers
    packed: Integers
    last: Integers
    results: Integers
    check_1: Integers
    check_2: Integers


def stretches(results: Results, alone: Integers, apart_s: int | None) -> Stretches:
    """The results as stretches; in whatever order they come, the answer is the same.

    A new stretch begins with another status, after more than `apart_s` seconds without a result
    (None: never), and with each result of an instance in `alone` (a sorted list): these share
    their place in the report with another instance, whose results may lie between. Of results at
    one second the worst is what the instance said (availability rule 4).
    """
    if not len(results.packed):
        nothing = np.empty(0, np.int64)
        return Stretches(*[nothing] * len(Stretches._fields))
    instance_id, second, status = _sorted(results)
    said = _worst_of_second(instance_id, second, status)
    begins = np.empty(len(second), bool)
    begins[0] = True
    begins[1:] = (instance_id[1:] != instance_id[:-1]) | (said[1:] != said[:-1])
    if apart_s is not None:
        begins[1:] |= second[1:] - second[:-1] > apart_s
    if len(alone):
        begins |= np.isin(instance_id, alone)
    first = np.flatnonzero(begins)
    after = np.append(first[1:], len(second))
    moment = second % _DAY_S + 1
    check = moment * (1 + status)
    return Stretches(
        instance_id=instance_id[first],
        packed=(second[first] << _STATUS_BITS) | said[first],
        last=second[after - 1],
        results=after - first,
        check_1=np.add.reduceat(check, first),
        check_2=np.add.reduceat(moment * check, first),
    )


def _sorted(results: Results) -> tuple[Integers, Integers, Integers]:
    """Instances, seconds and statuses by instance, then time, then harm."""
    # One number per result sorts several times quicker than an order over columns.
    start = int(results.packed.min())
    bits = int(results.packed.max() - start).bit_length()
    keys = (results.instance_id << bits) | (results.packed - start)
    keys.sort()
    packed = (keys & ((1 << bits) - 1)) + start
    return keys >> bits, packed >> _STATUS_BITS, packed & ((1 << _STATUS_BITS) - 1)


def _worst_of_second(instance_id: Integers, second: Integers, status: Integers) -> Integers:
    """What each instance said at each second: of sorted results the last of the second."""
    ends = np.empty(len(second), bool)
    ends[-1] = True
    ends[:-1] = (second[1:] != second[:-1]) | (instance_id[1:] != instance_id[:-1])
    if ends.all():
        return status
    last = np.flatnonzero(ends)
    return np.repeat(status[last], np.diff(last, prepend=-1))
