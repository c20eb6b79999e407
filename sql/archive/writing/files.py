"""Parquet files: how they are written, and how a finished one enters the store."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sam_pipeline.sql.archive.layout import SCHEMAS
from sam_pipeline.sql.archive.manifest import RESULTS, DataFile
from sam_pipeline.sql.archive.store import Store

_INCREASING = ("measured_at", "received_at", "result_id")

PARQUET: Mapping[str, Any] = {
    "compression": "zstd",
    "write_statistics": True,
    "write_page_index": True,
}
"""Options of all files; see docs/archive.md."""

PARQUET_OF_RESULTS: Mapping[str, Any] = {
    **PARQUET,
    # A fifth of the size, and half of the time: neighbours differ by little.
    "column_encoding": dict.fromkeys(_INCREASING, "DELTA_BINARY_PACKED"),
    "use_dictionary": [name for name in SCHEMAS[RESULTS].names if name not in _INCREASING],
}


def put(
    store: Store, path: Path, kind: str, name: str, rows: int, statuses: Mapping[str, int]
) -> DataFile:
    """Put a finished file, and describe it."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    size = path.stat().st_size
    store.put(path, name)
    return DataFile(kind, name, rows, size, digest, statuses)
