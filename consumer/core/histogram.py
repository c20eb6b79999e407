"""How values are distributed, in a handful of numbers that Prometheus adds up."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise


@dataclass(frozen=True)
class Distribution:
    """`counts[i]` values were at most `edges[i]`, the last is of all; `total` is their sum."""

    edges: Sequence[float]
    counts: Sequence[int]
    total: float


class Histogram:
    """Counts values between edges; many at once cost little."""

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = tuple(edges)
        self._counts = [0] * (len(edges) + 1)
        self._total = 0.0

    def add(self, values: Sequence[float], times: int = 1) -> None:
        ordered = sorted(values)
        ends = [0, *(bisect_right(ordered, edge) for edge in self._edges), len(ordered)]
        for at, (start, end) in enumerate(pairwise(ends)):
            self._counts[at] += times * (end - start)
        self._total += times * sum(ordered)

    def distribution(self) -> Distribution:
        return Distribution(self._edges, tuple(accumulate(self._counts)), self._total)
