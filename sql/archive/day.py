"""Archives a day: its files are put first, and its manifest last.

Killed at any point, the archive has the old version or the new one, and perhaps files that no
manifest names, which the next attempt deletes.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from importlib.metadata import version as version_of
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import parquet as pq
from sqlalchemy import Connection, Engine, text

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.archive.digests import digest_of_rows
from sam_pipeline.sql.archive.layout import ENDPOINT, MEMBER, PARQUET, SCHEMAS
from sam_pipeline.sql.archive.manifest import (
    DOWNTIMES,
    EXCLUSIONS,
    TOPOLOGY,
    DatabaseState,
    Manifest,
    clean,
    data_name,
    newest,
)
from sam_pipeline.sql.archive.results import DayResults, put
from sam_pipeline.sql.archive.store import Store, translated
from sam_pipeline.sql.database.engine import reading_at_once
from sam_pipeline.sql.database.operations import login_name
from sam_pipeline.sql.database.version import wanted_version

_VALID = "valid_from_s < :end AND (valid_to_s IS NULL OR valid_to_s > :start)"
_OF_SECONDS = {
    "valid_from": "valid_from_s",
    "valid_to": "valid_to_s",
    "start_time": "start_s",
    "end_time": "end_s",
}
"""Times by the column that has them in epoch seconds: on SQLite the views show times as text."""

_STATEMENTS = (
    (TOPOLOGY, ENDPOINT, f"SELECT * FROM report_topology WHERE {_VALID}"),
    (TOPOLOGY, MEMBER, f"SELECT * FROM report_site_group WHERE {_VALID}"),
    # All parts of a downtime, so that it can be restored.
    (
        DOWNTIMES,
        "",
        "SELECT * FROM report_downtime WHERE whole_start_s < :end AND whole_end_s > :start",
    ),
    # A result of the day before that does not exist is not carried over to the day either.
    (EXCLUSIONS, "", "SELECT * FROM report_exclusion WHERE start_s < :end AND end_s >= :before"),
)


def archive_day(
    engine: Engine,
    store: Store,
    day: date,
    change_no: int,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> Manifest:
    """Write the next version of a day, and return its manifest.

    The caller holds the lock of the archive (`archive_lock`).

    Args:
        change_no: the number that `take_changes` returned before the call.
        on_rows: called with the number of results read so far.

    Raises:
        ArchiveError: the store failed; it has the same versions as before.
        DatabaseAway: the database failed.
        ConfigError: the archive has this day of another database.
    """
    previous = newest(store, day)
    version = previous.version + 1 if previous else 1
    clean(store, day)
    with store.workspace() as work:
        with reading_at_once(engine) as connection:
            database = str(connection.scalar(text("SELECT database_id FROM database_identity")))
            if previous and previous.source.database != database:
                other = f"from another database, {previous.source.database}"
                raise ConfigError([f"{store.url}: {day} was archived {other}, not {database}"])
            last = connection.scalar(text("SELECT result_id FROM report_newest_result")) or 0
            inputs = read_inputs(connection, day)
            results = DayResults(connection, day, work, on_rows)
        files, digests = results.write(store, version, work, previous)
        for kind, rows in inputs.items():
            name = data_name(kind, day, version)
            with translated(f"{store.url}/{name}"):
                pq.write_table(rows, work / f"{kind}.parquet", **PARQUET)
                files.append(put(store, work / f"{kind}.parquet", kind, name, len(rows), {}))
            digests[kind] = digest_of_rows(rows.to_pylist())
        manifest = Manifest(
            day=day,
            version=version,
            schema_version=wanted_version(),
            software_version=version_of("sam-pipeline"),
            made_at=format_time(datetime.now(UTC)),
            made_by=f"{login_name()}@{socket.gethostname()}",
            source=DatabaseState(database, int(last), change_no),
            files=tuple(files),
            digests=digests,
        )
        store.create(manifest.name, manifest.as_json())
    return manifest


def read_inputs(connection: Connection, day: date) -> dict[str, pa.Table]:
    """The tables by kind, with the columns of the files, in an order that only depends on them."""
    start = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
    one_day = int(timedelta(days=1).total_seconds())
    times = {"start": start, "end": start + one_day, "before": start - one_day}
    rows: dict[str, list[dict[str, Any]]] = {TOPOLOGY: [], DOWNTIMES: [], EXCLUSIONS: []}
    for kind, record, statement in _STATEMENTS:
        for row in connection.execute(text(statement), times).mappings():
            stored = {name: {**row, "record": record}.get(name) for name in SCHEMAS[kind].names}
            for name, seconds in _OF_SECONDS.items():
                if name in stored:
                    second = row[seconds]
                    stored[name] = None if second is None else datetime.fromtimestamp(second, UTC)
            if isinstance(added := stored.get("added_at"), str):
                stored["added_at"] = datetime.fromisoformat(added)
            rows[kind].append(stored)
    return {
        kind: pa.Table.from_pylist(sorted(of_kind, key=lambda row: repr([*row.values()])), schema)
        for kind, of_kind in rows.items()
        for schema in [SCHEMAS[kind]]
    }
