"""Whether memory or descriptors of a process grow for as long as it lives.

A process fills caches and pools when it starts, so the first tenth of its life does not count. Each
point is the median of a block of samples, because a fault makes memory jump for a while. The slope
is the median of the slopes between all blocks (Theil and Sen), with its confidence interval (Sen).

Memory that a process has used once often stays with its allocator: its size follows the largest
peak so far, which is exceeded ever more seldom. A leak goes on. So a process leaks if its size
grows over its whole life, and still in the second half of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from statistics import median

Sample = tuple[float, float]
"""A time in seconds, and a size in any unit."""

WARM_UP = 0.1
BLOCKS = 20
MIN_LIFE_S = 2700.0
"""Of a shorter life nothing can be said: the first peaks take longer than its first tenth."""
Z = 2.576
"""Quantile of the normal distribution: one life in 200 exceeds it without growing."""
TOLERANCE = 0.02
"""Of the median size: a growth that is smaller, over the whole time, is no leak."""


@dataclass(frozen=True)
class Trend:
    """Sizes in the unit of the samples; the slopes are per hour."""

    size: float
    """The median."""
    slope: float
    lowest_slope: float
    """The lower end of the confidence interval."""
    noise: float
    """The median distance of a block from the line."""
    hours: float
    """Between the first and the last block."""

    def grows(self, slope: float) -> bool:
        """Whether a growth with this slope exceeds what noise and tolerance explain."""
        return slope * self.hours > max(self.noise, TOLERANCE * self.size)


@dataclass(frozen=True)
class Growth:
    """The trend after the first tenth of a life, and that of the second half of this time."""

    whole: Trend
    late: Trend

    @property
    def is_leak(self) -> bool:
        """Whether it grows certainly as a whole, and most likely still in the second half."""
        whole, late = self.whole, self.late
        return whole.grows(whole.lowest_slope) and late.grows(late.slope)


def growth(samples: Sequence[Sample]) -> Growth | None:
    """The growth of one process, or None if it did not live long enough."""
    if not samples or samples[-1][0] - samples[0][0] < MIN_LIFE_S:
        return None
    blocks = _blocks(samples)
    return Growth(whole=_trend(blocks), late=_trend(blocks[len(blocks) // 2 :]))


def _trend(blocks: Sequence[Sample]) -> Trend:
    slopes = sorted((y - x) / (t - s) for (s, x), (t, y) in combinations(blocks, 2))
    slope = median(slopes)
    # The variance of Kendall's statistic, the number of rising pairs minus that of falling ones.
    count = len(blocks)
    deviation = Z * sqrt(count * (count - 1) * (2 * count + 5) / 18)
    lowest = slopes[max(0, int((len(slopes) - deviation) / 2))]
    offset = median(size - slope * time for time, size in blocks)
    return Trend(
        size=median(size for _, size in blocks),
        slope=3600 * slope,
        lowest_slope=3600 * lowest,
        noise=median(abs(size - slope * time - offset) for time, size in blocks),
        hours=(blocks[-1][0] - blocks[0][0]) / 3600,
    )


def _blocks(samples: Sequence[Sample]) -> list[Sample]:
    """The median time and size of equal parts of the life after its first tenth."""
    first, last = samples[0][0], samples[-1][0]
    begin = first + WARM_UP * (last - first)
    length_s = (last - begin) / BLOCKS
    parts: list[list[Sample]] = [[] for _ in range(BLOCKS)]
    for time, size in samples:
        if time >= begin:
            parts[min(BLOCKS - 1, int((time - begin) / length_s))].append((time, size))
    return [
        (median(time for time, _ in part), median(size for _, size in part))
        for part in parts
        if part
    ]
