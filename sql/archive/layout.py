"""The columns of the files. docs/archive.md describes them.

The files of topology, downtimes and exclusions have the columns of the input views of the same
name. The endpoints and the members of groups share a file: `record` is the kind of a row, and the
columns of the other kind are null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from sam_pipeline.sql.archive.manifest import DOWNTIMES, EXCLUSIONS, RESULTS, TOPOLOGY

STATUSES = ("OK", "WARNING", "UNKNOWN", "CRITICAL")
"""The names of statuses by their number, which is `status_code` of the views."""

ENDPOINT, MEMBER = "endpoint", "member"
"""The values of `record` in the file of the topology."""

ROWS_PER_GROUP = 250_000
ROWS_PER_FILE = 4 * ROWS_PER_GROUP

SORTED_BY = ("host_name", "service_flavour", "metric_name", "vo", "fqan", "measured_at")

_NAME = pa.dictionary(pa.int32(), pa.string())
_TIME = pa.timestamp("ms", "UTC")


def _schema(*columns: tuple[str, pa.DataType], optional: str = "") -> pa.Schema:
    nullable = optional.split()
    return pa.schema([pa.field(name, kind, name in nullable) for name, kind in columns])


def _each(kind: pa.DataType, names: str) -> list[tuple[str, pa.DataType]]:
    return [(name, kind) for name in names.split()]


NAMES = (
    *("host_name", "service_flavour", "metric_name", "vo", "fqan"),
    *("gathered_at", "monitoring_host", "site_hint", "service_uri", "service_type"),
    *("metric_type", "data_type", "role", "nagios_name", "encrypted"),
)
"""Names of a result; one that it does not have is ''."""

SCHEMAS: Mapping[str, pa.Schema] = {
    RESULTS: _schema(
        *_each(_NAME, " ".join((*NAMES, "publisher"))),
        *_each(_TIME, "measured_at received_at"),
        ("status", pa.int8()),
        *_each(pa.string(), "summary performance_data details message_id"),
        ("result_id", pa.int64()),
        optional="publisher summary performance_data details message_id",
    ),
    TOPOLOGY: _schema(
        ("record", _NAME),
        *_each(pa.string(), "site host_name service_flavour vo service_uri grid_site production"),
        *_each(pa.string(), "monitored group_type group_name"),
        ("weight", pa.int64()),
        *_each(_TIME, "valid_from valid_to"),
        *_each(pa.int64(), "valid_from_s valid_to_s"),
        optional="host_name service_flavour vo service_uri grid_site production monitored"
        " group_type group_name weight valid_to valid_to_s",
    ),
    DOWNTIMES: _schema(
        *_each(pa.string(), "downtime_id site host_name service_flavour"),
        *_each(_TIME, "start_time end_time"),
        *_each(pa.int64(), "start_s end_s"),
        *_each(pa.string(), "classification severity description publisher"),
        *_each(pa.int64(), "announced_s whole_start_s whole_end_s"),
        optional="downtime_id description publisher",
    ),
    EXCLUSIONS: _schema(
        ("exclusion_id", pa.int64()),
        *_each(pa.string(), "kind monitoring_host metric_name site service_flavour host_name"),
        *_each(_TIME, "start_time end_time"),
        *_each(pa.int64(), "start_s end_s"),
        *_each(pa.string(), "reason who"),
        ("added_at", _TIME),
    ),
}
"""The columns by kind of file; columns that are never null say so."""

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
