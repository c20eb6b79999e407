"""Reads the files of archived days: what was announced, and the results of a few hosts."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date, timedelta
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from sam_pipeline.spark_jobs.inputs.announced import (
    EXCLUSION_COLUMNS,
    Announced,
    Downtime,
    Exclusion,
    GroupMember,
    Membership,
    in_order,
    newest_members,
)
from sam_pipeline.spark_jobs.inputs.archive.days import FROM_DATABASE, ArchivedDays
from sam_pipeline.spark_jobs.inputs.archive.files import (
    AWAY,
    DAMAGED,
    MISSING,
    REFUSED,
    ArchivedFile,
    UnreadableFile,
    opened_parquet,
)
from sam_pipeline.spark_jobs.rules.days import Period, day_start
from sam_pipeline.sql.archive.layout import ENDPOINT, MEMBER, STATUSES
from sam_pipeline.sql.archive.manifest import (
    DOWNTIMES,
    EXCLUSIONS,
    RESULTS,
    TOPOLOGY,
    newest_of,
    read_manifest,
)
from sam_pipeline.sql.archive.store import OpenArchive
from sam_pipeline.sql.errors import (
    ArchiveAway,
    ArchiveDamaged,
    ArchiveError,
    ArchiveRefused,
    NotArchived,
)

_MEMBERSHIP = (
    *("site", "service_flavour", "host_name", "vo", "production", "monitored"),
    *("valid_from_s", "valid_to_s", "grid_site"),
)
_ONE_DAY = timedelta(days=1)
_EXCLUSION = EXCLUSION_COLUMNS.split(", ")
_MEMBER = (*GroupMember._fields, "valid_from_s", "valid_to_s")
_DOWNTIME = (
    *("downtime_id", "site", "host_name", "service_flavour", "start_s", "end_s"),
    *("classification", "severity", "description", "announced_s"),
)
_HOST = "host_name"
_ADVICE = "`sam-db archive verify` checks the archive"
_ERRORS: Mapping[str, tuple[type[ArchiveError], str]] = {
    MISSING: (ArchiveDamaged, f"a manifest names it: {_ADVICE}"),
    DAMAGED: (ArchiveDamaged, _ADVICE),
    REFUSED: (ArchiveRefused, "check the permissions or the keys of [archive]"),
    AWAY: (ArchiveAway, "try again when the store answers"),
}

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


def read_archived(
    archived: ArchivedDays, period: Period, look_back: int, stored: Sequence[Exclusion]
) -> dict[date, Announced]:
    """What `read_announced` reads from the database, for those of the days that are archived.

    Args:
        stored: the exclusions in the database, for days that are not archived.
    """
    # A year has the same endpoints on most days: they are in memory once.
    known: dict[Membership, Membership] = {}

    @cache
    def exclusions_of(day: date) -> Sequence[Exclusion]:
        if day not in archived:
            return stored
        rows = _rows(archived, day, EXCLUSIONS, _EXCLUSION)
        return [Exclusion(*(row[name] for name in _EXCLUSION)) for row in rows]

    def read(day: date) -> Announced:
        # The files of a day have the exclusions that end on the day before it, or later.
        earlier = (Period(day - n * _ONE_DAY, day - n * _ONE_DAY) for n in range(2, look_back + 1))
        ended = [
            exclusion
            for before in earlier
            for exclusion in exclusions_of(before.first)
            if before.start <= exclusion.end < before.end
        ]
        topology = _rows(archived, day, TOPOLOGY, ["record", *{*_MEMBERSHIP, *_MEMBER}])
        endpoints = [
            Membership(*(row[name] for name in _MEMBERSHIP))
            for row in topology
            if row["record"] == ENDPOINT
        ]
        at = day_start(day)
        members = newest_members(
            GroupMember(*(row[name] for name in GroupMember._fields))
            for row in sorted(topology, key=itemgetter("valid_from_s"))
            if row["record"] == MEMBER
            and row["valid_from_s"] <= at
            and (row["valid_to_s"] is None or row["valid_to_s"] > at)
        )
        return Announced(
            [known.setdefault(endpoint, endpoint) for endpoint in endpoints],
            in_order(_downtimes(archived, day)),
            sorted([*ended, *exclusions_of(day)], key=attrgetter("exclusion_id")),
            members,
        )

    return {day: read(day) for day in period.days() if day in archived}


def archived_announcers(archived: ArchivedDays) -> dict[Downtime, str]:
    """The publishers of the downtimes of all archived days."""
    return {
        downtime: publisher
        for day in archived.manifests
        for downtime, publisher in _downtimes(archived, day).items()
    }


def _downtimes(archived: ArchivedDays, day: date) -> dict[Downtime, str]:
    """The downtimes of a day, with their publishers."""
    publishers = {}
    for row in _rows(archived, day, DOWNTIMES, [*_DOWNTIME, "publisher"]):
        values: list[Any] = ["" if row[name] is None else row[name] for name in _DOWNTIME]
        publishers[Downtime(*values)] = row["publisher"] or ""
    return publishers


def _rows(
    archived: ArchivedDays, day: date, kind: str, columns: Sequence[str]
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with readable():
        for file in files_of(archived, day, kind):
            with opened_parquet(archived.source, file, []) as parquet:
                rows += parquet.read(columns=list(columns), use_threads=False).to_pylist()
    return rows


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
                with suppress(NotArchived):
                    found[day] = read_manifest(store, day, version)
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
            for file in files_of(archived, day, RESULTS):
                with opened_parquet(archived.source, file, [_HOST]) as parquet:
                    for group in range(parquet.num_row_groups):
                        if not _may_have(parquet, group, wanted):
                            continue
                        rows = parquet.read_row_group(group, columns=columns, use_threads=False)
                        host = rows[_HOST].cast(pa.string())
                        rows = rows.filter(pc.is_in(host, value_set=names))
                        for row in rows.to_pylist():
                            texts = {name: "" for name, value in row.items() if value is None}
                            measured = int(row["measured_at"].timestamp())
                            of_row = {"measured_at": measured, "status": STATUSES[row["status"]]}
                            yield ArchivedResult(**{**row, **texts, **of_row})


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


def files_of(archived: ArchivedDays, day: date, kind: str) -> list[ArchivedFile]:
    """The files of a kind of a day."""
    return [
        ArchivedFile(file.name, file.rows, file.size_bytes)
        for file in archived.manifests[day].of_kind(kind)
    ]


def archive_error(kind: str, text: str) -> ArchiveError:
    """The error of a command that could not read a file."""
    error, advice = _ERRORS[kind]
    return error(f"{text}: {advice}")


@contextmanager
def readable() -> Iterator[None]:
    """Raise an UnreadableFile of the block as an ArchiveError."""
    try:
        yield
    except UnreadableFile as unreadable:
        raise archive_error(unreadable.kind, unreadable.text) from unreadable
