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


NAMES = (
    *("host_name", "service_flavour", "metric_name", "vo", "fqan"),
    *("gathered_at", "monitoring_host", "site_hint", "service_uri", "service_type"),
    *("metric_type", "data_type", "role", "nagios_name", "encrypted"),
)
"""Names of a result; one that it does not have is ''."""

SCHEMAS: Mapping[str, pa.Schema] = {
    RESULTS: _schema(
        *((name, _NAME) for name in NAMES),
        ("publisher", _NAME),
        ("measured_at", _TIME),
        ("received_at", _TIME),
        ("status", pa.int8()),
        ("summary", pa.string()),
        ("performance_data", pa.string()),
        ("details", pa.string()),
        ("message_id", pa.string()),
        ("result_id", pa.int64()),
        optional="publisher summary performance_data details message_id",
    ),
    TOPOLOGY: _schema(
        ("record", _NAME),
        ("site", pa.string()),
        ("host_name", pa.string()),
        ("service_flavour", pa.string()),
        ("vo", pa.string()),
        ("service_uri", pa.string()),
        ("grid_site", pa.string()),
        ("production", pa.string()),
        ("monitored", pa.string()),
        ("group_type", pa.string()),
        ("group_name", pa.string()),
        ("weight", pa.int64()),
        ("valid_from", _TIME),
        ("valid_to", _TIME),
        ("valid_from_s", pa.int64()),
        ("valid_to_s", pa.int64()),
        optional="host_name service_flavour vo service_uri grid_site production monitored"
        " group_type group_name weight valid_to valid_to_s",
    ),
    DOWNTIMES: _schema(
        ("downtime_id", pa.string()),
        ("site", pa.string()),
        ("host_name", pa.string()),
        ("service_flavour", pa.string()),
        ("start_time", _TIME),
        ("end_time", _TIME),
        ("start_s", pa.int64()),
        ("end_s", pa.int64()),
        ("classification", pa.string()),
        ("severity", pa.string()),
        ("description", pa.string()),
        ("publisher", pa.string()),
        ("announced_s", pa.int64()),
        ("whole_start_s", pa.int64()),
        ("whole_end_s", pa.int64()),
        optional="downtime_id description publisher",
    ),
    EXCLUSIONS: _schema(
        ("exclusion_id", pa.int64()),
        ("kind", pa.string()),
        ("monitoring_host", pa.string()),
        ("metric_name", pa.string()),
        ("site", pa.string()),
        ("service_flavour", pa.string()),
        ("host_name", pa.string()),
        ("start_time", _TIME),
        ("end_time", _TIME),
        ("start_s", pa.int64()),
        ("end_s", pa.int64()),
        ("reason", pa.string()),
        ("who", pa.string()),
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
