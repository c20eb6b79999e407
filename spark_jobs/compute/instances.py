"""The metric instances of the database: what can have results."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.compute.stretches import Hashes, scrambled
from sam_pipeline.spark_jobs.rules.shares import Integers

_ALL = """
SELECT instance_id, service_flavour, host_name, metric_name, vo, fqan
FROM report_instance ORDER BY instance_id
"""


class Instances(NamedTuple):
    """All metric instances, numbered from 0 in the order of their ids, with a row for each.

    `endpoint`, `metric`, `vo` and `fqan` are places in the lists of names. The name of an endpoint
    is (flavour, host). `key` is an odd number that depends on all names, and on nothing else.
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
        """The ids of those that differ only in their FQANs: a report treats them as one."""
        name = (self.endpoint * len(self.metrics) + self.metric) * len(self.vos) + self.vo
        _, number, count = np.unique(name, return_inverse=True, return_counts=True)
        shared: Integers = self.ids[count[number] > 1]
        return shared


def read_instances(connection: Connection) -> Instances:
    """Read all metric instances."""
    rows = connection.execute(text(_ALL)).all()
    ids, *names = zip(*rows, strict=True) if rows else [()] * 6
    numbered = map(_numbered, names)
    (flavour, flavours), (host, hosts), (metric, metrics), (vo, vos), (fqan, fqans) = numbered
    pairs, endpoint = np.unique(flavour * len(hosts) + host, return_inverse=True)
    endpoints = [(flavours[pair // len(hosts)], hosts[pair % len(hosts)]) for pair in pairs]
    key = _hashes(endpoints)[endpoint] + _hashes(metrics)[metric]
    key = key + _hashes(vos)[vo] + _hashes(fqans)[fqan]
    return Instances(
        np.array(ids, np.int64),
        *(endpoint, metric, vo, fqan),
        scrambled(key) | np.uint64(1),
        *(endpoints, metrics, vos, fqans),
    )


def _numbered(names: Sequence[str | None]) -> tuple[Integers, list[Any]]:
    """The place of each name in the list of all names, and that list."""
    encoded = pa.array(names, pa.string()).dictionary_encode(null_encoding="encode")
    return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()


def _hashes(names: Sequence[object]) -> Hashes:
    digests = [hashlib.blake2b(repr(name).encode(), digest_size=8).digest() for name in names]
    return np.array([int.from_bytes(digest, "big") for digest in digests], np.uint64)
