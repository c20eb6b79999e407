"""A histogram in the form of Prometheus."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise


class Histogram:
    """Counts values between edges; adding many values at once is cheap."""

    def __init__(self, edges: Sequence[float] = ()) -> None:
        self.edges = edges
        self.total = 0.0
        """The sum of all values."""
        self._counts = [0] * (len(edges) + 1)

    def add(self, values: Sequence[float], times: int = 1) -> None:
        """Count each value `times` times."""
        ordered = sorted(values)
        ends = [0, *(bisect_right(ordered, edge) for edge in self.edges), len(ordered)]
        for index, (start, end) in enumerate(pairwise(ends)):
            self._counts[index] += times * (end - start)
        self.total += times * sum(ordered)

    def cumulative(self) -> list[int]:
        """For each edge the number of values up to it; the last item counts all values."""
        return list(accumulate(self._counts))
