"""Whether memory or descriptors of a process grow for as long as it lives.

A process fills caches and pools when it starts, and a fault makes its memory jump. So the first
tenth of its life does not count, each point is the median of a block of samples, and the slope is
the median of the slopes between all blocks (Theil and Sen) with its confidence interval (Sen).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from statistics import median

from tests.soak.log import SAMPLE, SoakLog

Sample = tuple[float, float]
"""A time in seconds, and a size in any unit."""

WARM_UP = 0.1
BLOCKS = 20
MIN_LIFE_S = 1200.0
"""Of a shorter life nothing can be said."""
Z = 2.576
"""Quantile of the normal distribution: one life in 200 exceeds it without growing."""
TOLERANCE = 0.02
"""Of the median size: a growth that is smaller, over the whole life, is no leak."""
TOOL = "this tool"
"""Our own process: it is shown, because its memory must not grow with the number of messages."""
SERIES = {"rss": ("memory", "MB", 1e6), "descriptors": ("open files", "", 1.0)}


@dataclass(frozen=True)
class Growth:
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

    @property
    def is_leak(self) -> bool:
        """Whether even the lowest slope exceeds what noise and tolerance explain."""
        return self.lowest_slope * self.hours > max(self.noise, TOLERANCE * self.size)


def growth(samples: Sequence[Sample]) -> Growth | None:
    """The growth of one process, or None if it did not live long enough."""
    if not samples or samples[-1][0] - samples[0][0] < MIN_LIFE_S:
        return None
    blocks = _blocks(samples)
    slopes = sorted((y - x) / (t - s) for (s, x), (t, y) in combinations(blocks, 2))
    slope = median(slopes)
    # The variance of Kendall's statistic, the number of rising pairs minus that of falling ones.
    count = len(blocks)
    deviation = Z * sqrt(count * (count - 1) * (2 * count + 5) / 18)
    lowest = slopes[max(0, int((len(slopes) - deviation) / 2))]
    offset = median(size - slope * time for time, size in blocks)
    return Growth(
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
    return [(median(t for t, _ in part), median(y for _, y in part)) for part in parts if part]


def leaks(log: SoakLog, run: int) -> list[str]:
    """One sentence for each series of the product that grows."""
    return [
        f"a leak: {name}: {shown}"
        for name, shown, result in growths(log, run)
        if result and result.is_leak and not name.startswith(TOOL)
    ]


def growth_lines(log: SoakLog, run: int) -> list[str]:
    """One line for each series."""
    return [f"  {name:46}{shown}" for name, shown, _ in growths(log, run)]


def growths(log: SoakLog, run: int) -> Iterator[tuple[str, str, Growth | None]]:
    """Process and quantity, what to show, and the growth if the process lived long enough."""
    samples = list(log.entries(SAMPLE, run=run))
    for key, (quantity, unit, divisor) in SERIES.items():
        for name in samples[0][key] if samples else ():
            sizes = ((entry["at_s"], entry[key].get(name)) for entry in samples)
            result = growth([(at_s, size / divisor) for at_s, size in sizes if size is not None])
            shown = "lived too short for a judgement"
            if result:
                shown = (
                    f"median {result.size:.1f} {unit}, slope {result.slope:+.2f}/h (at least"
                    f" {result.lowest_slope:+.2f}), noise {result.noise:.2f}"
                )
            yield f"{name}, {quantity}", shown, result
