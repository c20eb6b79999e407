"""The chain of operations: each has a digest that covers it and the operation before.

Whoever changes, inserts or removes an operation afterwards has to compute the digests of all later
ones. Removing the newest ones leaves no trace in the chain itself: compare its last digest with one
that was kept elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import count
from typing import NamedTuple

START = ""
"""The previous digest of the first operation."""


class RecordedOperation(NamedTuple):
    """A row of `operation_log`; `happened_at` is `YYYY-MM-DDThh:mm:ssZ`, `arguments` JSON."""

    operation_id: int
    happened_at: str
    database_login: str
    os_login: str
    command: str
    arguments: str
    previous_digest: str
    digest: str


def digest_of(*fields: str) -> str:
    """SHA-256 of the SHA-256 of each field, in hex; `operation_digest` of PostgreSQL."""
    return sha256(b"".join(sha256(field.encode()).digest() for field in fields)).hexdigest()


def broken_links(operations: Iterable[RecordedOperation]) -> Iterator[str]:
    """How the operations, oldest first and from the first one on, differ from an unbroken chain."""
    previous = START
    for number, operation in zip(count(1), operations):
        where = f"operation {operation.operation_id}"
        if operation.operation_id != number:
            yield f"{where}: should be number {number}; operations were removed or added before it"
            return
        if operation.previous_digest != previous:
            yield f"{where}: does not continue operation {number - 1}, which was replaced"
        if operation.digest != digest_of(str(number), *operation[1:-1]):
            yield f"{where}: was changed after it was recorded"
        previous = operation.digest
