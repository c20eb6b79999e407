"""Digests of a day, which runs of reports record as well.

A digest of results is a sum over the results, modulo 2⁶⁴, of the key of the instance, which depends
on its names only, times the scrambled time and status. So it depends neither on the order of the
results nor on the numbers that a database gave to names. The digest of a run covers the results
that count for its report; that of an archived day covers all of its results. The others are
SHA-256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

STATUS_BITS = 3
STATUS_CODES = np.array([0, 1, 2, 5])
"""How runs number OK, WARNING, UNKNOWN and CRITICAL, by their number in views and files."""


def scrambled(packed: Integers | Hashes) -> Hashes:
    """A hash of each number: the finalizer of SplitMix64 (Steele, Lea and Flood, 2014)."""
    mixed = packed.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def name_hashes(names: Sequence[object]) -> Hashes:
    """A hash of each name; that of an endpoint is of (flavour, host)."""
    digests = [hashlib.blake2b(repr(name).encode(), digest_size=8).digest() for name in names]
    return np.array([int.from_bytes(digest, "big") for digest in digests], np.uint64)


def instance_keys(endpoint: Hashes, metric: Hashes, vo: Hashes, fqan: Hashes) -> Hashes:
    """An odd number for each instance, from the hashes of its names."""
    return scrambled(endpoint + metric + vo + fqan) | np.uint64(1)


def pack(second: Integers, status: Integers) -> Integers:
    """Time and status of each result in one number, with the status as views and files have it."""
    packed: Integers = (second << STATUS_BITS) | STATUS_CODES[status]
    return packed


def digest_of_results(keys: Hashes, times: Integers) -> int:
    """The digest of results, or of a part: the parts are added up, modulo 2⁶⁴.

    Args:
        keys: that of the instance of each result.
        times: that of each result, from `pack`.
    """
    return int(np.sum(keys * scrambled(times)))


def digest_of_rows(rows: Iterable[object]) -> str:
    """The digest of other inputs, row by row, in the order of their texts."""
    digest = hashlib.sha256()
    for line in sorted(map(repr, rows)):
        digest.update(line.encode() + b"\n")
    return digest.hexdigest()
