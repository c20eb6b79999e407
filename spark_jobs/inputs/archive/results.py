"""Results of a few hosts from the archive, on days that the database no longer has."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from sam_pipeline.spark_jobs.inputs.archive.days import FROM_DATABASE, ArchivedDays, readable
from sam_pipeline.spark_jobs.inputs.archive.files import opened_parquet
from sam_pipeline.spark_jobs.inputs.archive.opening import OpenArchive
from sam_pipeline.sql.archive.layout import STATUSES
from sam_pipeline.sql.archive.manifest import RESULTS, Manifest, newest_of, read_manifest
from sam_pipeline.sql.archive.store import Store
from sam_pipeline.sql.errors import ArchiveAway, ArchiveRefused, NotArchived

_HOST = "host_name"

logger = logging.getLogger(__name__)


class ArchivedResult(NamedTuple):
    """A result with the columns that explanations need; missing texts are empty."""

    host_name: str
    service_flavour: str
    metric_name: str
    vo: str
    fqan: str
    measured_at: int
    status: str
    summary: str
    message_id: str
    publisher: str
    performance_data: str
    monitoring_host: str
    result_id: int


def find_days(
    open_archive: OpenArchive, days: Sequence[date], versions: Mapping[date, int]
) -> ArchivedDays:
    """The results of the days that the archive has, in these versions if it still has them.

    If the archive is unavailable, it has none; a warning says so.
    """
    try:
        store = open_archive()
        if store is None:
            return FROM_DATABASE
        found = newest_of(store, days)
        for day, version in versions.items():
            if day in found and found[day].version != version:
                found[day] = _version(store, day, version) or found[day]
        return ArchivedDays(store.source(), found)
    except (ArchiveAway, ArchiveRefused) as error:
        logger.warning("%s; results that were pruned are not shown", error)
        return FROM_DATABASE


def results_of_hosts(archived: ArchivedDays, hosts: Collection[str]) -> Iterator[ArchivedResult]:
    """The results of these hosts on all of the days.

    Only the row groups whose names may be among the hosts are read.
    """
    wanted, names = sorted(hosts), pa.array(sorted(hosts), pa.string())
    columns = list(ArchivedResult._fields)
    with readable():
        for day in archived.manifests:
            for file in archived.files(day, RESULTS):
                with opened_parquet(archived.source, file, [_HOST]) as parquet:
                    for group in range(parquet.num_row_groups):
                        if not _may_have(parquet, group, wanted):
                            continue
                        rows = parquet.read_row_group(group, columns=columns, use_threads=False)
                        host = rows[_HOST].cast(pa.string())
                        rows = rows.filter(pc.is_in(host, value_set=names))
                        yield from map(_result, rows.to_pylist())


def _version(store: Store, day: date, version: int) -> Manifest | None:
    try:
        return read_manifest(store, day, version)
    except NotArchived:
        return None


def _may_have(parquet: Any, group: int, hosts: Sequence[str]) -> bool:
    """Whether a row group may have one of the hosts, which are sorted."""
    of_group = parquet.metadata.row_group(group)
    column = next(
        of_column
        for of_column in map(of_group.column, range(of_group.num_columns))
        if of_column.path_in_schema == _HOST
    )
    statistics = column.statistics
    if statistics is None or not statistics.has_min_max:
        return True
    first = bisect_left(hosts, statistics.min)
    return first < len(hosts) and hosts[first] <= statistics.max


def _result(row: dict[str, Any]) -> ArchivedResult:
    texts = {name: "" for name, value in row.items() if value is None}
    measured = int(row["measured_at"].timestamp())
    return ArchivedResult(
        **{**row, **texts, "measured_at": measured, "status": STATUSES[row["status"]]}
    )
