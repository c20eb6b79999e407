"""Parquet files: how they are written, and how a finished one enters the store."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sam_pipeline.sql.archive.manifest import DataFile
from sam_pipeline.sql.archive.store import Store

_DELTA = ("measured_at", "received_at", "result_id")
_SINGLE = (*_DELTA, "message_id", "details")

PARQUET: Mapping[str, Any] = {
    "compression": "zstd",
    "write_statistics": True,
    "write_page_index": True,
}
"""Options of all files; see docs/archive.md."""


def put(
    store: Store, path: Path, kind: str, name: str, rows: int, statuses: Mapping[str, int]
) -> DataFile:
    """Put a finished file, and describe it."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    size = path.stat().st_size
    store.put(path, name)
    return DataFile(kind, name, rows, size, digest, statuses)
