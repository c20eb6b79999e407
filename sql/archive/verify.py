"""Compares a version of a day with its manifest, and with the database if that still has the day.

Every number in the manifest is computed again, so that any false one is found.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from itertools import pairwise

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import parquet as pq
from sqlalchemy import Connection, text

from sam_pipeline.sql.archive.digests import (
    Integers,
    digest_of_results,
    digest_of_rows,
    instance_keys,
    name_hashes,
    pack,
)
from sam_pipeline.sql.archive.layout import SCHEMAS, STATUSES
from sam_pipeline.sql.archive.manifest import KINDS, LAST_RESULTS, RESULTS, DataFile, Manifest
from sam_pipeline.sql.archive.record import Changes
from sam_pipeline.sql.archive.rows import INSTANCE, read_instances, read_rows
from sam_pipeline.sql.archive.store import Store

DAY_MS = 86_400_000

_IDS = pa.schema(
    [
        ("instance_id", pa.int64()),
        ("measured_at", pa.timestamp("us", "UTC")),
        ("status", pa.int64()),
    ]
)
_WINDOW = {
    "sqlite": "measured_at >= :start AND measured_at < :end",
    "postgresql": "measured_at >= to_timestamp(:start) AND measured_at < to_timestamp(:end)",
}


def problems_of_files(store: Store, manifest: Manifest) -> Iterator[str]:
    """The problems of the files of a version; each line begins with the path of a file."""
    digests, results, last = dict.fromkeys(KINDS, ""), 0, 0
    is_readable, end_of_last = True, ("",)
    for kind in KINDS:
        for file in manifest.of_kind(kind):
            where = f"{store.url}/{file.name}"
            rows, problems = _read(store, file)
            yield from (f"{where}: {problem}" for problem in problems)
            if rows is None:
                is_readable = False
                continue
            if len(rows) != file.rows:
                yield f"{where}: has {len(rows)} rows, the manifest says {file.rows}"
            if kind != RESULTS:
                digests[kind] = digest_of_rows(rows.to_pylist())
                continue
            contents = _Results(rows, manifest.day)
            if contents.statuses != {k: v for k, v in file.statuses.items() if v}:
                yield f"{where}: statuses {contents.statuses}, the manifest says {file.statuses}"
            if not (contents.is_sorted and end_of_last < contents.first):
                yield f"{where}: not sorted, or results of another day"
            results, last = results + contents.digest, last + contents.last_digest
            end_of_last = contents.last
    digests[RESULTS], digests[LAST_RESULTS] = (f"{n % 2**64:016x}" for n in (results, last))
    if is_readable:
        for name, digest in digests.items():
            if manifest.digests.get(name) != digest:
                said = manifest.digests.get(name)
                yield f"{store.url}/{manifest.name}: digest of {name} is {digest}, not {said}"


def problem_with_database(
    connection: Connection, manifest: Manifest, changes: Changes
) -> str | None:
    """How the results differ from those of the database.

    None if they don't, or if the database has pruned results of the day, or changed them since.
    """
    if not (changes.has(manifest.day) and changes.is_in(manifest)):
        return None
    identity = connection.scalar(text("SELECT database_id FROM database_identity"))
    if identity != manifest.source.database:
        return f"was archived from the database {manifest.source.database}, this one is {identity}"
    start = _start_ms(manifest.day) // 1000
    statement = (
        "SELECT instance_id, measured_at, status FROM metric_result"
        f" WHERE {_WINDOW[connection.dialect.name]}"
    )
    window = {"start": start, "end": start + DAY_MS // 1000}
    instances = read_instances(connection)
    rows, digest = 0, 0
    for part in read_rows(connection, statement, window, _IDS):
        ids, status = (part[name].to_numpy() for name in ("instance_id", "status"))
        second = part["measured_at"].cast(pa.int64()).to_numpy() // 1_000_000
        key = instances.key[instances.rank_of[ids]]
        digest += digest_of_results(key, pack(second, status))
        rows += len(part)
    if (rows, f"{digest % 2**64:016x}") != (manifest.rows, manifest.digests.get(RESULTS)):
        return f"differs from the database, which has {rows} results, not {manifest.rows}"
    return None


def _read(store: Store, file: DataFile) -> tuple[pa.Table | None, list[str]]:
    """The rows of a file if it can be read, and its problems."""
    source, problems = store.source(), []
    try:
        with source.filesystem().open_input_file(source.path(file.name)) as stream:
            content = stream.read_buffer()
    except FileNotFoundError:
        # Its folder is not missing because the store is away: then nothing could be read.
        store.names(file.name)
        return None, ["is missing"]
    except OSError as error:
        return None, [f"can't be read: {error}"]
    if content.size != file.size_bytes:
        problems.append(f"has {content.size} bytes, the manifest says {file.size_bytes}")
    if hashlib.sha256(content).hexdigest() != file.sha256:
        problems.append("its SHA-256 differs from the manifest")
    try:
        rows = pq.read_table(pa.BufferReader(content), partitioning=None)
    except (pa.ArrowInvalid, OSError) as error:
        return None, [*problems, f"is not a Parquet file: {error}"]
    if not rows.schema.equals(SCHEMAS[file.kind]):
        return None, [*problems, "has other columns than docs/archive.md describes"]
    return rows, problems


class _Results:
    """The contents of a file of results; `first` and `last` are the names of these instances."""

    def __init__(self, rows: pa.Table, day: date) -> None:
        rows = rows.unify_dictionaries().combine_chunks()
        codes = [rows[name].chunk(0).indices.to_numpy() for name in INSTANCE] if len(rows) else []
        ms = rows["measured_at"].cast(pa.int64()).to_numpy()
        status = rows["status"].to_numpy().astype(np.int64)
        begins_instance = np.zeros(len(rows), bool)
        begins_instance[:1] = True
        for column in codes:
            begins_instance[1:] |= column[1:] != column[:-1]
        begins: Integers = np.flatnonzero(begins_instance)
        place = np.cumsum(begins_instance) - 1
        names = list(
            zip(*(rows[name].take(pa.array(begins)).to_pylist() for name in INSTANCE), strict=True)
        )
        times = pack(ms // 1000, status)
        keys = instance_keys(
            name_hashes([(flavour, host) for host, flavour, *_ in names]),
            *(name_hashes([name[place] for name in names]) for place in (2, 3, 4)),
        )
        start = _start_ms(day)
        self.first, self.last = (names[0], names[-1]) if names else ((), ())
        self.statuses = {STATUSES[n]: k for n, k in sorted(Counter(status.tolist()).items())}
        self.digest = digest_of_results(keys[place], times)
        last = np.maximum.reduceat(times, begins) if names else times
        self.last_digest = digest_of_results(keys, last)
        self.is_sorted = (
            all(before < after for before, after in pairwise(names))
            and bool((np.diff(ms)[~begins_instance[1:]] >= 0).all())
            and bool(((ms >= start) & (ms < start + DAY_MS)).all())
        )


def _start_ms(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000
