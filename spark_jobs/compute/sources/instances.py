"""The metric instances of a run: what can have results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.compute.stretches import NAMES
from sam_pipeline.spark_jobs.rules.shares import Integers
from sam_pipeline.sql.archive.digests import Hashes, instance_keys, name_hashes

UNKNOWN_ID = -1
"""The id of an instance that the database does not know."""

_ALL = f"SELECT instance_id, {', '.join(NAMES)} FROM report_instance"


class Instances(NamedTuple):
    """All metric instances, numbered from 0, with a row for each.

    `ids` are those of the database. `endpoint`, `metric`, `vo` and `fqan` are places in the lists
    of names. The name of an endpoint is (flavour, host). `key` is an odd number that depends on
    all names, and on nothing else.
    """

    ids: Integers
    endpoint: Integers
    metric: Integers
    vo: Integers
    fqan: Integers
    key: Hashes
    endpoints: Sequence[tuple[str, str]]
    metrics: Sequence[str]
    vos: Sequence[str | None]
    fqans: Sequence[str | None]

    def shared(self) -> Integers:
        """The numbers of those that differ only in their FQANs: a report treats them as one."""
        name = (self.endpoint * len(self.metrics) + self.metric) * len(self.vos) + self.vo
        _, number, count = np.unique(name, return_inverse=True, return_counts=True)
        return np.flatnonzero(count[number] > 1)


def read_instances(connection: Connection) -> pa.Table:
    """All metric instances of the database: `instance_id`, and a column for each of NAMES."""
    rows = connection.execute(text(_ALL)).all()
    ids, *names = zip(*rows, strict=True) if rows else [()] * (1 + len(NAMES))
    texts = [pa.array(column, pa.string()) for column in names]
    return pa.table([pa.array(ids, pa.int64()), *texts], ["instance_id", *NAMES])


def numbered(tables: Sequence[pa.Table]) -> Instances:
    """Number the instances of all tables, such as that of `read_instances`, each of them once.

    Tables of instances that have no id lack the column `instance_id`.
    """
    together = pa.concat_tables(tables, promote_options="default")
    columns = [
        together[name].combine_chunks().dictionary_encode(null_encoding="encode") for name in NAMES
    ]
    places = [column.indices.to_numpy().astype(np.int64) for column in columns]
    lists = [column.dictionary.to_pylist() for column in columns]
    code = np.zeros(len(together), np.int64)
    for place, names in zip(places, lists, strict=True):
        code = code * len(names) + place
    _, first, number = np.unique(code, return_index=True, return_inverse=True)
    ids = np.full(len(first), UNKNOWN_ID)
    if "instance_id" in together.column_names:
        of_row = together["instance_id"].fill_null(UNKNOWN_ID).to_numpy()
        known = of_row != UNKNOWN_ID
        ids[number[known]] = of_row[known]
    host, flavour, metric, vo, fqan = (place[first] for place in places)
    hosts, flavours, metrics, vos, fqans = lists
    pairs, endpoint = np.unique(flavour * len(hosts) + host, return_inverse=True)
    endpoints = [(flavours[pair // len(hosts)], hosts[pair % len(hosts)]) for pair in pairs]
    return Instances(
        *(ids, endpoint, metric, vo, fqan),
        instance_keys(
            name_hashes(endpoints)[endpoint],
            name_hashes(metrics)[metric],
            name_hashes(vos)[vo],
            name_hashes(fqans)[fqan],
        ),
        *(endpoints, metrics, vos, fqans),
    )
