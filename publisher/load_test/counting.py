"""Which messages arrived, exactly and by id: one bit for each, and the ids that came twice.

A message is the number `number` of the producer `producer`; both begin with 0.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple, Optional

MAX_LISTED = 20
"""The number of ids of lost or repeated messages that are listed; all of them are counted."""


class Arrivals:
    """What one consumer received."""

    def __init__(self, shares: Sequence[int]) -> None:
        """`shares`: how many messages each producer sends at most."""
        self._bitmaps = [bytearray((share + 7) // 8) for share in shares]
        self.count = 0
        """Without duplicates."""
        self.duplicates = 0
        self.repeated: list[tuple[int, int]] = []
        """Producer and number of the first MAX_LISTED duplicates."""

    def add(self, producer: int, number: int) -> None:
        """Note an arrival.

        Raises:
            IndexError: no message has this number.
        """
        bitmap, at, bit = self._bitmaps[producer], number >> 3, 1 << (number & 7)
        if bitmap[at] & bit:
            self.duplicates += 1
            if len(self.repeated) < MAX_LISTED:
                self.repeated.append((producer, number))
        else:
            bitmap[at] |= bit
            self.count += 1

    def bitmaps(self) -> list[int]:
        """A number per producer: bit `n` is set if its message `n` arrived."""
        return [int.from_bytes(bitmap, "little") for bitmap in self._bitmaps]


class Sent(NamedTuple):
    """What a producer sent: the numbers below `total`; those below `confirmed` got a receipt."""

    total: int
    confirmed: int


class Account(NamedTuple):
    """The totals of all messages; a topic delivers each of them to each consumer.

    `missing` were confirmed and did not arrive; `unconfirmed` neither got a receipt nor arrived.
    """

    sent: int
    confirmed: int
    expected: int
    delivered: int
    missing: int
    unconfirmed: int
    duplicates: int
    missing_ids: Sequence[str]
    duplicate_ids: Sequence[str]


def balance(sent: Sequence[Sent], arrivals: Sequence[Arrivals], shared: bool) -> Account:
    """Compare sent with received messages.

    Args:
        shared: the consumers read one queue, so each message belongs to one of them.
    """
    duplicates = sum(one.duplicates for one in arrivals)
    repeated = [
        f"{_name(*message)} at consumer {number}"
        for number, one in enumerate(arrivals)
        for message in one.repeated
    ]
    readers = [one.bitmaps() for one in arrivals]
    if shared:
        union = [0] * len(sent)
        for bitmaps in readers:
            for producer, bitmap in enumerate(bitmaps):
                twice = union[producer] & bitmap
                duplicates += count(twice)
                for match in re.finditer("1", f"{twice:b}"[::-1]):
                    repeated.append(f"{_name(producer, match.start())} at two consumers")
                union[producer] |= bitmap
        readers = [union]
    missing = unconfirmed = 0
    missing_ids: list[str] = []
    for reader, bitmaps in enumerate(readers):
        for producer, (total, confirmed) in enumerate(sent):
            arrived = bitmaps[producer]
            lost = confirmed - count(arrived & ((1 << confirmed) - 1))
            absent = total - count(arrived & ((1 << total) - 1))
            missing += lost
            unconfirmed += absent - lost
            if lost and len(missing_ids) < MAX_LISTED:
                where = "" if shared else f" at consumer {reader}"
                for first, last in gaps(arrived, confirmed):
                    until = f" to {last}" if last > first else ""
                    missing_ids.append(f"{_name(producer, first)}{until}{where}")
    return Account(
        sent=sum(one.total for one in sent),
        confirmed=sum(one.confirmed for one in sent),
        expected=sum(one.total for one in sent) * len(readers),
        delivered=sum(count(bitmap) for bitmaps in readers for bitmap in bitmaps),
        missing=missing,
        unconfirmed=unconfirmed,
        duplicates=duplicates,
        missing_ids=missing_ids[:MAX_LISTED],
        duplicate_ids=repeated[:MAX_LISTED],
    )


def count(bitmap: int) -> int:
    """How many messages arrived."""
    return f"{bitmap:b}".count("1")


def gaps(bitmap: int, limit: int) -> Iterator[tuple[int, int]]:
    """The first and last number of each run of messages below the limit that did not arrive."""
    for match in re.finditer("0+", f"{bitmap:b}"[::-1].ljust(limit, "0")[:limit]):
        yield match.start(), match.end() - 1


def _name(producer: int, number: int) -> str:
    return f"producer {producer} message {number}"


PRECISION_BITS = 7
"""Below 2**7 µs each value is a bucket; above, each power of two has 2**6 buckets."""

_LOW = (1 << PRECISION_BITS) - 1


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


@dataclass
class Durations:
    """Their number by bucket, and the longest one, in µs."""

    counts: dict[int, int] = field(default_factory=dict)
    longest_us: int = 0

    def add(self, value_us: int) -> None:
        number = bucket(value_us)
        self.counts[number] = self.counts.get(number, 0) + 1
        if value_us > self.longest_us:
            self.longest_us = value_us

    def add_all(self, others: Durations) -> None:
        self.longest_us = max(self.longest_us, others.longest_us)
        for number, count in others.counts.items():
            self.counts[number] = self.counts.get(number, 0) + count

    def quantiles(self) -> Optional[dict[str, float]]:
        """`median`, `p99` and the exact `maximum`, in ms; None without durations."""
        total = sum(self.counts.values())
        if not total:
            return None
        numbers = sorted(self.counts)
        seen = list(accumulate(self.counts[number] for number in numbers))

        def quantile(share: float) -> float:
            value_us = middle(numbers[bisect_left(seen, total * share)])
            return round(min(value_us, self.longest_us) / 1000, 3)

        maximum = round(self.longest_us / 1000, 3)
        return {"median": quantile(0.5), "p99": quantile(0.99), "maximum": maximum}
