"""The bodies of dead letters as the table has them: long ones compressed."""

from __future__ import annotations

import zlib
from typing import NamedTuple

COMPRESSED_FROM = 1024
"""A shorter body is stored as it is: its row has as many bytes of other columns."""


class StoredBody(NamedTuple):
    """The columns of a body; `body_bytes` is its size before compression."""

    body: bytes
    body_bytes: int
    compressed: bool


def stored_body(body: bytes) -> StoredBody:
    """The columns for a body; one that compression would not shorten stays as it is."""
    if len(body) >= COMPRESSED_FROM:
        compressed = zlib.compress(body)
        if len(compressed) < len(body):
            return StoredBody(compressed, len(body), True)
    return StoredBody(body, len(body), False)


def original_body(stored: StoredBody) -> bytes:
    """The bytes that were received."""
    if not stored.compressed:
        return stored.body
    # Never more than expected, whatever the table has.
    return zlib.decompressobj().decompress(stored.body, stored.body_bytes)
