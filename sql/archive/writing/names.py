"""The names that results refer to by ids, each as a dictionary of Arrow and a code for each id."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from sqlalchemy import Connection

from sam_pipeline.sql.archive.digests import Hashes, Integers, instance_keys, name_hashes
from sam_pipeline.sql.archive.writing.rows import read_table

Codes = npt.NDArray[np.int32]

_INSTANCE = ("host_name", "service_flavour", "metric_name", "vo", "fqan")
_GATHERER = ("gathered_at", "monitoring_host")
_SOURCE = {
    "site_hint": "site_name",
    **{name: name for name in ("service_uri", "service_type", "metric_type", "data_type")},
    **{name: name for name in ("role", "nagios_name", "encrypted", "publisher")},
}
"""Columns of the file, and those of the view."""


class NamesById(NamedTuple):
    """Codes and dictionary of columns whose value an id determines; `code_of[id]` is a code."""

    columns: Mapping[str, tuple[Codes, pa.Array]]
    row_of: Integers

    def encoded(self, ids: Any) -> dict[str, pa.Array]:
        """The columns for rows with these ids, with dictionaries of the names that they use."""
        rows = self.row_of[ids]
        return {
            name: _compact(codes[rows], values) for name, (codes, values) in self.columns.items()
        }


class SortedInstances(NamedTuple):
    """The metric instances in the order of their names, numbered from 0; `key` as in digests.py.

    `rank_of[instance_id]` is the number of an instance.
    """

    names: NamesById
    rank_of: Integers
    key: Hashes


def read_instances(connection: Connection) -> SortedInstances:
    statement = f"SELECT instance_id, {', '.join(_INSTANCE)} FROM report_instance"
    rows = read_table(connection, statement, {}, _schema("instance_id", _INSTANCE))
    rows = rows.sort_by([(name, "ascending") for name in _INSTANCE])
    columns = {name: _encoded(rows[name]) for name in _INSTANCE}
    (host, hosts), (flavour, flavours) = columns["host_name"], columns["service_flavour"]
    pairs, endpoint = np.unique(
        flavour.astype(np.int64) * max(len(hosts), 1) + host, return_inverse=True
    )
    host_names, flavour_names = hosts.to_pylist(), flavours.to_pylist()
    endpoints = [
        (flavour_names[pair // len(hosts)], host_names[pair % len(hosts)]) for pair in pairs
    ]
    others = (columns[name] for name in ("metric_name", "vo", "fqan"))
    key = instance_keys(
        name_hashes(endpoints)[endpoint],
        *(name_hashes(values.to_pylist())[codes] for codes, values in others),
    )
    count = np.arange(len(rows))
    return SortedInstances(NamesById(columns, count), _row_of(rows["instance_id"]), key)


def read_sources(connection: Connection) -> NamesById:
    return _read(connection, "archive_source", "source_id", _SOURCE)


def read_gatherers(connection: Connection) -> NamesById:
    return _read(connection, "gatherer", "gatherer_id", {name: name for name in _GATHERER})


def _read(connection: Connection, table: str, key: str, names: Mapping[str, str]) -> NamesById:
    statement = f"SELECT {key}, {', '.join(names.values())} FROM {table}"
    rows = read_table(connection, statement, {}, _schema(key, tuple(names)))
    return NamesById({name: _encoded(rows[name]) for name in names}, _row_of(rows[key]))


def _schema(key: str, names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([(key, pa.int64()), *((name, pa.string()) for name in names)])


def _encoded(column: pa.ChunkedArray) -> tuple[Codes, pa.Array]:
    """The codes of names and their dictionary, which is sorted; no name is ''."""
    names = pc.fill_null(column, "").combine_chunks()
    values = pc.unique(names)
    values = values.take(pc.sort_indices(values))
    codes: Codes = pc.index_in(names, values).to_numpy(zero_copy_only=False).astype(np.int32)
    return codes, values


def _row_of(ids: pa.ChunkedArray) -> Integers:
    """The row of each id; ids are dense, since sequences number them."""
    numbers = ids.to_numpy()
    row_of = np.zeros(int(numbers.max()) + 1 if len(numbers) else 0, np.int64)
    row_of[numbers] = np.arange(len(numbers))
    return row_of


def _compact(codes: Codes, values: pa.Array) -> pa.DictionaryArray:
    """The names of these codes, with a dictionary of only those that are used."""
    used = np.bincount(codes, minlength=len(values)) > 0
    code_of = (np.cumsum(used) - 1).astype(np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(code_of[codes]), values.filter(pa.array(used)))
