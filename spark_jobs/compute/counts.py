"""Which results of a day count for a report, how many there are, and their digests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sam_pipeline.spark_jobs.compute.folding import MetricStretches
from sam_pipeline.spark_jobs.compute.plan import (
    COUNTS,
    NOT_IN_TOPOLOGY,
    REASONS,
    Plan,
    PlannedDay,
)
from sam_pipeline.spark_jobs.compute.stretches import (
    Stretches,
    newest,
    second_of,
)
from sam_pipeline.spark_jobs.rules.shares import Integers
from sam_pipeline.sql.archive.digests import Hashes, digest_of_results


@dataclass(frozen=True)
class ResultCounts:
    """The results of a report and day, or of a part of it.

    `ignored` counts the results that do not count, by REASONS. The digests, of the results that
    count and of the last ones before the day, are sums modulo 2⁶⁴, so they do not depend on the
    order of the results. `mixed` are things with results of several VOs: (thing, VO).
    """

    read: int = 0
    ignored: Sequence[int] = (0,) * len(REASONS)
    digest: int = 0
    carried_digest: int = 0
    mixed: Sequence[tuple[int, int]] = ()


def added_up(parts: Iterable[ResultCounts]) -> ResultCounts:
    total = ResultCounts()
    for part in parts:
        total = ResultCounts(
            total.read + part.read,
            [a + b for a, b in zip(total.ignored, part.ignored, strict=True)],
            (total.digest + part.digest) % 2**64,
            (total.carried_digest + part.carried_digest) % 2**64,
            [*total.mixed, *part.mixed],
        )
    return total


def count(
    plan: Plan, day: PlannedDay, stretches: Stretches, vo: Integers, keys: Hashes
) -> tuple[MetricStretches, ResultCounts]:
    """What counts for the report, of the stretches of a day and the last results before it.

    Args:
        vo, keys: the number of the VO and the key (instances.py) of each instance.
    """
    instance = stretches.instance
    position, thing = plan.metrics.follow(instance)
    counts = (plan.refused[instance[position]] == COUNTS) & day.metrics[thing]
    counts &= second_of(stretches.packed[position]) >= day.start - plan.look_back[thing]
    position, thing = position[counts], thing[counts]
    is_counted = np.zeros(len(instance), bool)
    is_counted[position] = True
    reason = plan.refused[instance]
    reason = np.where((reason == COUNTS) & ~is_counted, REASONS.index(NOT_IN_TOPOLOGY), reason)
    results = np.bincount(reason, stretches.results, len(REASONS) + 1).astype(np.int64)

    counted = stretches.where(is_counted)
    before = counted.where(second_of(counted.packed) < day.start)
    carried = newest(before.where(np.lexsort((before.packed, before.instance))))
    of_part = ResultCounts(
        int(results.sum()),
        results[: len(REASONS)].tolist(),
        int(np.sum(keys[counted.instance] * counted.check)),
        digest_of_results(keys[carried.instance], carried.packed),
        _mixed(thing, vo[instance[position]]) if plan.one_vo else (),
    )
    return MetricStretches(thing, stretches.packed[position], stretches.last[position]), of_part


def _mixed(thing: Integers, vo: Integers) -> list[tuple[int, int]]:
    """The different pairs of things with more than one VO."""
    pairs = np.unique(np.column_stack([thing, vo]), axis=0)
    _, of_pair, count = np.unique(pairs[:, 0], return_inverse=True, return_counts=True)
    return [(int(a), int(b)) for a, b in pairs[count[of_pair] > 1]]
