"""Mutations of valid bytes: bits flipped, parts removed, repeated or inserted."""

from __future__ import annotations

import random
from collections.abc import Sequence

MAX_CHANGES = 5
LONG_EVERY = 300
"""One input in this many gets a very long part, which reveals quadratic running times."""
LONG = 30_000


def mutated(seeds: Sequence[bytes], tokens: Sequence[bytes], chance: random.Random) -> bytes:
    """One of the seeds with a few changes; `tokens` have a meaning in its format."""
    data = chance.choice(seeds)
    for _ in range(chance.randint(0, MAX_CHANGES)):
        before, part, after = _cut(data, chance)
        token, other = chance.choice(tokens), chance.choice(seeds)
        flipped = bytes([after[0] ^ 1 << chance.randrange(8)]) if after else b""
        noise = chance.randbytes(chance.randint(1, 8))
        data = chance.choice(
            [
                before + part + flipped + after[1:],
                before + token + part + after,
                before + noise + part + after,
                before + after,
                before,
                before + part * chance.randint(2, 4) + after,
                before + token + after,
                before + other[chance.randint(0, len(other)) :],
            ]
        )
    if not chance.randrange(LONG_EVERY):
        before, part, after = _cut(data, chance)
        unit = chance.choice([part, chance.choice(tokens)]) or b"x"
        data = before + unit * (LONG // len(unit)) + after
    return data


def _cut(data: bytes, chance: random.Random) -> tuple[bytes, bytes, bytes]:
    """What is before, in and after a short part."""
    start = chance.randint(0, len(data))
    end = start + chance.randint(0, 20)
    return data[:start], data[start:end], data[end:]
