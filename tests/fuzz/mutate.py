"""Mutations of valid bytes: bits flipped, parts removed, repeated or inserted."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

MAX_CHANGES = 5
LONG_EVERY = 300
"""One input in this many gets a very long part, which reveals quadratic running times."""
LONG = 30_000


def mutated(seeds: Sequence[bytes], tokens: Sequence[bytes], chance: random.Random) -> bytes:
    """One of the seeds with a few changes; `tokens` have a meaning in its format."""
    data = chance.choice(seeds)
    for _ in range(chance.randint(0, MAX_CHANGES)):
        data = chance.choice(_CHANGES)(data, seeds, tokens, chance)
    if not chance.randrange(LONG_EVERY):
        data = _long(data, seeds, tokens, chance)
    return data


def _flip(data: bytes, seeds: object, tokens: object, chance: random.Random) -> bytes:
    if not data:
        return data
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def _put(data: bytes, seeds: object, tokens: Sequence[bytes], chance: random.Random) -> bytes:
    at = chance.randint(0, len(data))
    return data[:at] + chance.choice(tokens) + data[at:]


def _noise(data: bytes, seeds: object, tokens: object, chance: random.Random) -> bytes:
    at = chance.randint(0, len(data))
    return data[:at] + chance.randbytes(chance.randint(1, 8)) + data[at:]


def _cut(data: bytes, seeds: object, tokens: object, chance: random.Random) -> bytes:
    start, end = _slice(data, chance)
    return data[:start] + data[end:]


def _end(data: bytes, seeds: object, tokens: object, chance: random.Random) -> bytes:
    return data[: chance.randint(0, len(data))]


def _repeat(data: bytes, seeds: object, tokens: object, chance: random.Random) -> bytes:
    start, end = _slice(data, chance)
    return data[:end] + data[start:end] * chance.randint(1, 3) + data[end:]


def _replace(data: bytes, seeds: object, tokens: Sequence[bytes], chance: random.Random) -> bytes:
    start, end = _slice(data, chance)
    return data[:start] + chance.choice(tokens) + data[end:]


def _splice(data: bytes, seeds: Sequence[bytes], tokens: object, chance: random.Random) -> bytes:
    other = chance.choice(seeds)
    return data[: chance.randint(0, len(data))] + other[chance.randint(0, len(other)) :]


def _long(data: bytes, seeds: object, tokens: Sequence[bytes], chance: random.Random) -> bytes:
    start, end = _slice(data, chance)
    unit = chance.choice([data[start:end], chance.choice(tokens)]) or b"x"
    at = chance.randint(0, len(data))
    return data[:at] + unit * (LONG // len(unit)) + data[at:]


def _slice(data: bytes, chance: random.Random) -> tuple[int, int]:
    start = chance.randint(0, len(data))
    return start, min(len(data), start + chance.randint(0, 20))


Change = Callable[[bytes, Sequence[bytes], Sequence[bytes], random.Random], bytes]
_CHANGES: tuple[Change, ...] = (_flip, _put, _noise, _cut, _end, _repeat, _replace, _splice)
