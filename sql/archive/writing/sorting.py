"""Sorts the results of a day by instance and time, with files for those that do not fit in memory.

Results arrive in any order. They are sorted in runs; then the rows of a range of instances are
contiguous in each run, and are merged range by range.
"""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from sam_pipeline.sql.archive.digests import Integers
from sam_pipeline.sql.archive.store import translated

RUN_ROWS = 250_000
"""Rows of a run: with the copy that sorting makes, about 100 MB."""

_BATCH_ROWS = 8_192
"""Rows of a run that are read from its file at once."""

_MS_BITS = 27  # more milliseconds than a day has


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
