"""Which messages arrived, exactly and by id: one bit for each, and the ids that came twice.

A message is the number `number` of the producer `producer`; both begin with 0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple, Optional

MAX_LISTED = 20
"""The number of ids of lost or repeated messages that are listed; all of them are counted."""

Bitmap = bytearray
"""Bit `n % 8` of byte `n // 8` is set if message `n` arrived."""


class Arrivals:
    """What one consumer received."""

    def __init__(self, shares: Sequence[int]) -> None:
        """`shares`: how many messages each producer sends at most."""
        self.bitmaps = [Bitmap((share + 7) // 8) for share in shares]
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
        bitmap, at, bit = self.bitmaps[producer], number >> 3, 1 << (number & 7)
        if bitmap[at] & bit:
            self.duplicates += 1
            if len(self.repeated) < MAX_LISTED:
                self.repeated.append((producer, number))
        else:
            bitmap[at] |= bit
            self.count += 1


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
    delivered = sum(one.count for one in arrivals)
    readers = [one.bitmaps for one in arrivals]
    if shared:
        union = [Bitmap(len(bitmap)) for bitmap in readers[0]]
        for bitmaps in readers:
            for producer, bitmap in enumerate(bitmaps):
                for at, (before, now) in enumerate(zip(union[producer], bitmap)):
                    for bit in range(8) if before & now else ():
                        if (before & now) >> bit & 1:
                            duplicates += 1
                            name = _name(producer, at * 8 + bit)
                            repeated.append(f"{name} at two consumers")
                    union[producer][at] = before | now
        readers = [union]
        delivered = sum(count(bitmap) for bitmap in union)
    missing = unconfirmed = 0
    missing_ids: list[str] = []
    for reader, bitmaps in enumerate(readers):
        for producer, (total, confirmed) in enumerate(sent):
            arrived = bitmaps[producer]
            lost = confirmed - count(first_bits(arrived, confirmed))
            absent = total - count(first_bits(arrived, total))
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
        delivered=delivered,
        missing=missing,
        unconfirmed=unconfirmed,
        duplicates=duplicates,
        missing_ids=missing_ids[:MAX_LISTED],
        duplicate_ids=repeated[:MAX_LISTED],
    )


def count(bitmap: Bitmap) -> int:
    """How many messages arrived."""
    return bin(int.from_bytes(bitmap, "little")).count("1")


def first_bits(bitmap: Bitmap, limit: int) -> Bitmap:
    """The bits of the numbers below the limit."""
    whole, rest = divmod(limit, 8)
    head = bitmap[:whole]
    if rest and whole < len(bitmap):
        head.append(bitmap[whole] & ((1 << rest) - 1))
    return head


def gaps(bitmap: Bitmap, limit: int) -> Iterator[tuple[int, int]]:
    """The first and last number of each run of messages below the limit that did not arrive."""
    first = None
    for number in range(limit):
        if bitmap[number >> 3] >> (number & 7) & 1:
            if first is not None:
                yield first, number - 1
            first = None
        elif first is None:
            first = number
    if first is not None:
        yield first, limit - 1


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
