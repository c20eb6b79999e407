"""Archives a day: its files are put first, and its manifest last.

Killed at any point, the archive has the old version or the new one, and perhaps files that no
manifest names, which the next attempt deletes.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import UTC, date, datetime
from importlib.metadata import version as version_of

from pyarrow import parquet as pq  # type: ignore[import-untyped]
from sqlalchemy import Engine, text

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.login import login_name
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.archive.digests import digest_of_rows
from sam_pipeline.sql.archive.manifest import (
    DatabaseState,
    Manifest,
    data_name,
    newest,
)
from sam_pipeline.sql.archive.retention import delete_unnamed
from sam_pipeline.sql.archive.store import Store, translated
from sam_pipeline.sql.archive.writing.files import PARQUET, put
from sam_pipeline.sql.archive.writing.inputs import read_inputs
from sam_pipeline.sql.archive.writing.results import DayResults
from sam_pipeline.sql.database.engine import reading_at_once
from sam_pipeline.sql.database.version import wanted_version


def archive_day(
    engine: Engine,
    store: Store,
    day: date,
    change_no: int,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> Manifest:
    """Write the next version of a day, and return its manifest.

    The caller holds the lock of the archive (lock.py).

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
    delete_unnamed(store, day)
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
