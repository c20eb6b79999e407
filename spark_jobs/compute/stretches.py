"""Successive results of an instance with the same status, as one row: a stretch.

Nine results out of ten only repeat the previous status. The tasks that read results keep the first
and the last second of each stretch, so changes travel instead of results. Within a stretch its
instance has no result with another status, so a slice must contain every result of its time range.

Times and statuses are packed into one number, the epoch second times 8 plus the status code, which
sorts by time, then by severity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sam_pipeline.spark_jobs.rules.shares import Integers
from sam_pipeline.sql.archive.digests import STATUS_BITS, Hashes, scrambled

Flags = npt.NDArray[np.bool_]

NAMES = ("host_name", "service_flavour", "metric_name", "vo", "fqan")
"""The names of an instance."""

_STATUS = (1 << STATUS_BITS) - 1


class Results(NamedTuple):
    """Results column by column."""

    instance: Integers
    packed: Integers


class Stretches(NamedTuple):
    """Stretches column by column: first second and status (packed), last second, and two sums.

    `results` is the number of results. `check` changes when a result is added, moved or changed;
    it is a sum (modulo 2⁶⁴), so it does not depend on how results are cut into stretches.
    """

    instance: Integers
    packed: Integers
    last: Integers
    results: Integers
    check: Hashes

    def where(self, rows: npt.NDArray[np.generic]) -> Stretches:
        """The stretches of these rows: a mask, or row numbers."""
        return Stretches(*(column[rows] for column in self))


def pack(second: Integers, status: Integers | int) -> Integers:
    return (second << STATUS_BITS) | status


def second_of(packed: Integers) -> Integers:
    return packed >> STATUS_BITS


def status_of(packed: Integers) -> Integers:
    return packed & _STATUS


def concatenated(parts: Sequence[Stretches]) -> Stretches:
    """All stretches of the parts; there may be none."""
    none = np.empty(0, np.int64)
    nothing = Stretches(none, none, none, none, np.empty(0, np.uint64))
    return Stretches(*map(np.concatenate, zip(nothing, *parts, strict=True)))


def stretches(results: Results, alone: Integers, apart_s: int | None) -> Stretches:
    """Join results, given in any order, into stretches ordered by instance and time.

    Of several results of an instance in the same second the worst counts (availability rule 4).

    Args:
        alone: instances whose results are never joined. They are reported together with another
            instance, whose results may lie in between.
        apart_s: a gap of more than this many seconds ends a stretch; None: no gap does.
    """
    if not len(results.packed):
        return concatenated([])
    instance, packed = _sorted(results)
    second, status = second_of(packed), status_of(packed)
    # The worst status of each second is the last one in this order.
    worst = status
    ends_second = np.empty(len(second), bool)
    ends_second[-1] = True
    ends_second[:-1] = (second[1:] != second[:-1]) | (instance[1:] != instance[:-1])
    if not ends_second.all():
        last = np.flatnonzero(ends_second)
        worst = np.repeat(status[last], np.diff(last, prepend=-1))

    begins = np.empty(len(second), bool)
    begins[0] = True
    begins[1:] = (instance[1:] != instance[:-1]) | (worst[1:] != worst[:-1])
    if apart_s is not None:
        begins[1:] |= second[1:] - second[:-1] > apart_s
    if len(alone):
        begins |= np.isin(instance, alone)
    first = np.flatnonzero(begins)
    after = np.append(first[1:], len(second))
    return Stretches(
        instance=instance[first],
        packed=pack(second[first], worst[first]),
        last=second[after - 1],
        results=after - first,
        check=np.add.reduceat(scrambled(packed), first),
    )


def newest(rows: Stretches) -> Stretches:
    """The newest result of each instance; no result is counted.

    Args:
        rows: ordered by instance and time.
    """
    ids = rows.instance
    ends = np.append(ids[1:] != ids[:-1], [True])[: len(ids)]
    last = rows.where(ends)
    nothing = np.zeros_like
    return last._replace(
        packed=pack(last.last, status_of(last.packed)),
        results=nothing(last.results),
        check=nothing(last.check),
    )


def _sorted(results: Results) -> Results:
    """The results by instance, time and severity."""
    # Sorting one number per result is several times faster than sorting by two columns.
    start = int(results.packed.min())
    bits = int(results.packed.max() - start).bit_length()
    keys = (results.instance << bits) | (results.packed - start)
    keys.sort()
    return Results(keys >> bits, (keys & ((1 << bits) - 1)) + start)
