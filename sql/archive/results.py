"""Writes the results of a day as Parquet files, sorted, with the digests of all of them.

Results arrive in any order. They are sorted by instance and time in runs, those that do not fit in
memory in files; then the rows of a range of instances are contiguous in each run, and are merged
range by range.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyarrow import parquet as pq
from sqlalchemy import Connection

from sam_pipeline.sql.archive.digests import Integers, digest_of_results, pack
from sam_pipeline.sql.archive.layout import (
    PARQUET_OF_RESULTS,
    ROWS_PER_FILE,
    ROWS_PER_GROUP,
    SCHEMAS,
    STATUSES,
)
from sam_pipeline.sql.archive.manifest import LAST_RESULTS, RESULTS, DataFile, Manifest, data_name
from sam_pipeline.sql.archive.rows import (
    GATHERERS,
    SOURCES,
    read_instances,
    read_names,
    read_rows,
)
from sam_pipeline.sql.archive.store import Store, translated

RUN_ROWS = 250_000
"""Rows of a run: with the copy that sorting makes, about 100 MB."""

_BATCH_ROWS = 8_192
"""Rows of a run that are read from its file at once."""

_MS_BITS = 27  # more milliseconds than a day has

WRITERS = 2
"""Files that are written at the same time; each takes about 150 MB."""

_READ = pa.schema(
    [
        *((name, pa.int64()) for name in ("instance_id", "source_id", "gatherer_id")),
        *((name, pa.timestamp("us", "UTC")) for name in ("measured_at", "received_at")),
        ("status", pa.int8()),
        *((n, pa.string()) for n in ("summary", "performance_data", "message_id", "details")),
        ("result_id", pa.int64()),
    ]
)
_START = {"sqlite": ":start", "postgresql": "to_timestamp(:start)"}
_END = {"sqlite": ":end", "postgresql": "to_timestamp(:end)"}
# The times are bounded twice, so that PostgreSQL reads one partition of either table.
_STATEMENT = """
SELECT
    r.instance_id, r.source_id, r.gatherer_id, r.measured_at, r.received_at, r.status, r.summary,
    r.performance_data, r.message_id, d.details, r.result_id
FROM metric_result AS r
LEFT JOIN metric_result_detail AS d
    ON d.instance_id = r.instance_id
    AND d.measured_at = r.measured_at
    AND d.gatherer_id = r.gatherer_id
    AND d.ordinal = r.ordinal
    AND d.measured_at >= {start} AND d.measured_at < {end}
WHERE r.measured_at >= {start} AND r.measured_at < {end}
"""
_MS = pa.timestamp("ms", "UTC")


def put(
    store: Store, path: Path, kind: str, name: str, rows: int, statuses: Mapping[str, int]
) -> DataFile:
    """Put a finished file, and describe it."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    size = path.stat().st_size
    store.put(path, name)
    return DataFile(kind, name, rows, size, digest, statuses)


class DayResults:
    """The results of a day, as the database has them in the transaction of a connection."""

    def __init__(
        self, connection: Connection, day: date, work: Path, on_rows: Callable[[int], None]
    ) -> None:
        self._day = day
        self._instances = read_instances(connection)
        self._sources = read_names(connection, *SOURCES)
        self._gatherers = read_names(connection, *GATHERERS)
        start = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
        self._sorted = SortedResults(start * 1000, len(self._instances.key), work)
        dialect, done = connection.dialect.name, 0
        statement = _STATEMENT.format(start=_START[dialect], end=_END[dialect])
        for rows in read_rows(
            connection, statement, {"start": start, "end": start + 86_400}, _READ
        ):
            rank = self._instances.rank_of[rows["instance_id"].to_numpy()]
            rows = rows.drop_columns(["instance_id"]).append_column("rank", pa.array(rank))
            for name in ("measured_at", "received_at"):  # a fraction of a millisecond is cut off
                column = rows[name].cast(_MS, safe=False)
                rows = rows.set_column(rows.column_names.index(name), name, column)
            self._sorted.add(rows)
            on_rows(done := done + len(rows))

    def write(
        self, store: Store, version: int, work: Path, previous: Manifest | None
    ) -> tuple[list[DataFile], dict[str, str]]:
        """Write and put the files; returns them and the digests.

        Args:
            previous: a version that may still have details that were pruned from the database.
        """
        groups = self._sorted.groups(ROWS_PER_GROUP)
        per_file = ROWS_PER_FILE // ROWS_PER_GROUP
        archived = previous.of_kind(RESULTS) if previous else []

        def write_part(number: int) -> tuple[DataFile, int, int]:
            name = data_name(RESULTS, self._day, version, number)
            path = work / f"results-{number}.parquet"
            counts, digest, last = np.zeros(len(STATUSES), np.int64), 0, 0
            with translated(f"{store.url}/{name}"):
                with pq.ParquetWriter(path, SCHEMAS[RESULTS], **PARQUET_OF_RESULTS) as writer:
                    for group in groups[number * per_file : (number + 1) * per_file]:
                        rows = self._sorted.group(*group)
                        times = pack(
                            rows["measured_at"].cast(pa.int64()).to_numpy() // 1000,
                            rows["status"].to_numpy().astype(np.int64),
                        )
                        rank = rows["rank"].to_numpy()
                        keys = self._instances.key
                        begins = np.flatnonzero(np.diff(rank, prepend=-1))
                        digest += digest_of_results(keys[rank], times)
                        last += digest_of_results(
                            keys[rank[begins]], np.maximum.reduceat(times, begins)
                        )
                        counts += np.bincount(rows["status"].to_numpy(), minlength=len(counts))
                        columns = {
                            **dict(zip(rows.column_names, rows.columns, strict=True)),
                            **self._instances.names.encoded(rank),
                            **self._sources.encoded(rows["source_id"].to_numpy()),
                            **self._gatherers.encoded(rows["gatherer_id"].to_numpy()),
                        }
                        schema = SCHEMAS[RESULTS]
                        table = pa.table([columns[name] for name in schema.names], schema)
                        if archived:
                            table = _with_details(table, store, archived)
                        writer.write_table(table)
                statuses = dict(zip(STATUSES, counts.tolist(), strict=True))
                file = put(store, path, RESULTS, name, int(counts.sum()), statuses)
            return file, digest, last

        with ThreadPoolExecutor(WRITERS) as pool:
            parts = list(pool.map(write_part, range(-(-len(groups) // per_file))))
        files, digests, last_digests = zip(*parts, strict=True) if parts else ((), (), ())
        totals = {RESULTS: sum(digests), LAST_RESULTS: sum(last_digests)}
        return [*files], {name: f"{total % 2**64:016x}" for name, total in totals.items()}


def _with_details(rows: pa.Table, store: Store, archived: Sequence[DataFile]) -> pa.Table:
    """The rows, with details that were pruned from the database taken from an archived version."""
    hosts, source = rows["host_name"].cast(pa.string()), store.source()
    known = pq.read_table(
        [source.path(file.name) for file in archived],
        columns=["result_id", "status", "details"],
        filesystem=source.filesystem(),
        filters=[
            ("host_name", ">=", pc.min(hosts).as_py()),
            ("host_name", "<=", pc.max(hosts).as_py()),
        ],
    )
    known = known.filter(known["details"].is_valid())
    if not len(known):
        return rows
    found = pc.index_in(rows["result_id"], known["result_id"].combine_chunks())
    same = known.take(found)
    is_same = pc.equal(same["status"], rows["status"])
    details = pc.coalesce(rows["details"], pc.if_else(is_same, same["details"], None))
    return rows.set_column(rows.column_names.index("details"), "details", details)


class _Run:
    """A sorted part of the results, in memory or in a file, and the key of each row."""

    def __init__(self, key: Integers, rows: pa.Table, path: Path | None) -> None:
        self.key = key
        self._rows = rows
        self._lock = threading.Lock()
        if path is not None:
            with translated(str(path)):
                with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as run:
                    run.write_table(rows, _BATCH_ROWS)
                # Not mapped, as all pages would count as memory of this process.
                self._rows = pa.ipc.open_file(pa.OSFile(str(path)))

    def between(self, low: int, high: int) -> pa.Table | None:
        """The rows whose keys are in [low, high), if there are any."""
        start, stop = map(int, np.searchsorted(self.key, (low, high)))
        if start == stop:
            return None
        if isinstance(self._rows, pa.Table):
            return self._rows.slice(start, stop - start)
        first = start // _BATCH_ROWS
        with self._lock:
            batches = [
                self._rows.get_batch(number)
                for number in range(first, (stop - 1) // _BATCH_ROWS + 1)
            ]
        return pa.Table.from_batches(batches).slice(start - first * _BATCH_ROWS, stop - start)


class SortedResults:
    """The results of a day; each has a `rank`, the place of its instance in the order of names."""

    def __init__(self, start_ms: int, instances: int, work: Path) -> None:
        self._start_ms = start_ms
        self._work = work
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._runs: list[_Run] = []
        self._rows_of_instance = np.zeros(instances, np.int64)

    @property
    def rows(self) -> int:
        return int(self._rows_of_instance.sum())

    def add(self, rows: pa.Table) -> None:
        """Add rows with the columns rank, measured_at and result_id, and any others."""
        self._pending.append(rows)
        self._pending_rows += len(rows)
        if self._pending_rows >= RUN_ROWS:
            self._end_run(spill=True)

    def groups(self, rows_per_group: int) -> list[tuple[int, int]]:
        """The instances from rank to rank whose results make up one group of rows each.

        Call it after the last row was added.
        """
        if self._pending:
            self._end_run(spill=False)
        after = np.cumsum(self._rows_of_instance)
        groups, first, done = [], 0, 0
        while done < self.rows:
            end = int(np.searchsorted(after, done + rows_per_group)) + 1
            end = min(end, len(after))
            groups.append((first, end))
            first, done = end, int(after[end - 1])
        return groups

    def group(self, first: int, end: int) -> pa.Table:
        """The results of these instances in order."""
        low, high = first << _MS_BITS, end << _MS_BITS
        parts = (run.between(low, high) for run in self._runs)
        rows = pa.concat_tables(part for part in parts if part is not None)
        return rows.take(pa.array(_order(self._key(rows), rows)))

    def _end_run(self, spill: bool) -> None:
        rows = pa.concat_tables(self._pending)
        self._pending, self._pending_rows = [], 0
        key = self._key(rows)
        order = _order(key, rows)
        rows, key = rows.take(pa.array(order)), key[order]
        ranks = key >> _MS_BITS
        self._rows_of_instance += np.bincount(ranks, minlength=len(self._rows_of_instance))
        # Sorted in one piece, so that a file has batches of the same size.
        path = self._work / f"run-{len(self._runs)}.arrow" if spill else None
        self._runs.append(_Run(key, rows.combine_chunks(), path))

    def _key(self, rows: pa.Table) -> Integers:
        ms = rows["measured_at"].cast(pa.int64()).to_numpy() - self._start_ms
        key: Integers = (rows["rank"].to_numpy() << _MS_BITS) | ms
        return key


def _order(key: Integers, rows: pa.Table) -> Integers:
    """The rows by key; of results at the same time, the one that was stored first comes first."""
    order: Integers = np.lexsort((rows["result_id"].to_numpy(), key))
    return order
