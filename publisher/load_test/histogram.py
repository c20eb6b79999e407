"""Durations counted in buckets of 1.6 % of their value: exact enough, and small."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Optional

PRECISION_BITS = 7
"""Below 2**7 µs each value is a bucket; above, each power of two has 2**6 buckets."""
BUCKETS = 1 << 13
"""A limit on the numbers of buckets: there is none for more than a year."""

_LOW = (1 << PRECISION_BITS) - 1


class Quantiles(NamedTuple):
    """Of a number of durations, in ms."""

    median: float
    p99: float
    maximum: float


def bucket(value_us: int) -> int:
    """The number of the bucket of a duration; the greater, the longer."""
    shift = value_us.bit_length() - PRECISION_BITS
    return value_us if shift <= 0 else (shift << PRECISION_BITS) + (value_us >> shift)


def middle(number: int) -> float:
    """The duration in the middle of a bucket, in µs."""
    if number <= _LOW:
        return float(number)
    shift = number >> PRECISION_BITS
    return ((number & _LOW) + 0.5) * (1 << shift)


def quantiles(counts: Mapping[int, int], longest_us: int) -> Optional[Quantiles]:
    """The quantiles of durations by bucket; the longest one is exact. None if there are none."""
    total = sum(counts.values())
    if not total:
        return None
    wanted = [total * 0.5, total * 0.99]
    found: list[float] = []
    seen = 0
    for number in sorted(counts):
        seen += counts[number]
        while len(found) < len(wanted) and seen >= wanted[len(found)]:
            found.append(min(middle(number), longest_us))
    median, p99 = (round(value / 1000, 3) for value in found)
    return Quantiles(median, p99, round(longest_us / 1000, 3))
