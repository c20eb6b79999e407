"""Exclusions (availability rule 7): add, remove and list them.

The database marks the days they overlap, so the next `sam-report run --due` recomputes those.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import Connection, text

from sam_pipeline.schema.times import format_time
from sam_pipeline.spark_jobs.errors import NoExclusion, ReportUsage
from sam_pipeline.spark_jobs.inputs.announced import EXCLUSION_COLUMNS, Exclusion
from sam_pipeline.spark_jobs.rules.days import moment
from sam_pipeline.spark_jobs.runs.published import as_moment
from sam_pipeline.spark_jobs.runs.record import stored_time
from sam_pipeline.sql.operations import record_operation

_INSERT = text(
    "INSERT INTO exclusion (kind, monitoring_host, metric_name, site, service_flavour, host_name,"
    " start_time, end_time, reason, who, added_at)"
    " VALUES (:kind, :monitoring_host, :metric_name, :site, :service_flavour, :host_name,"
    " :start, :end, :reason, :who, :added_at) RETURNING exclusion_id"
)
_REMOVE = text(
    "UPDATE exclusion SET removed_at = :now, removed_by = :who, removed_because = :reason"
    " WHERE exclusion_id = :exclusion_id AND removed_at IS NULL"
)


@dataclass(frozen=True)
class ExclusionEntry:
    """An exclusion with its history: when it was added, and when, by whom and why removed."""

    exclusion: Exclusion
    added_at: datetime
    removed_at: datetime | None
    removed_by: str | None
    removed_because: str | None


def add(connection: Connection, exclusion: Exclusion, now: int) -> int:
    """Add an exclusion, in force from now on, and return its id (`exclusion_id` is ignored)."""
    row = {
        **asdict(exclusion),
        "start": stored_time(connection, exclusion.start),
        "end": stored_time(connection, exclusion.end),
        "added_at": stored_time(connection, now),
    }
    exclusion_id: int = connection.execute(_INSERT, row).scalar_one()
    given = {**asdict(exclusion), "exclusion_id": exclusion_id}
    given |= {name: format_time(moment(given[name])) for name in ("start", "end")}
    arguments = {name: str(value) for name, value in given.items() if value}
    record_operation(connection, "exclusion add", arguments)
    return exclusion_id


def remove(connection: Connection, exclusion_id: int, who: str, reason: str, now: int) -> Exclusion:
    """Remove an exclusion and return it; its history stays.

    Raises:
        NoExclusion: no exclusion has that id.
        ReportUsage: it was removed before.
    """
    known = {entry.exclusion.exclusion_id: entry for entry in entries(connection)}
    if exclusion_id not in known:
        raise NoExclusion(f"no exclusion {exclusion_id}: `sam-report exclusion list` shows them")
    row = {
        "exclusion_id": exclusion_id,
        "now": stored_time(connection, now),
        "who": who,
        "reason": reason,
    }
    if connection.execute(_REMOVE, row).rowcount != 1:
        by = known[exclusion_id].removed_by
        raise ReportUsage(f"exclusion {exclusion_id} was already removed by {by}")
    arguments = {"exclusion_id": str(exclusion_id), "who": who, "reason": reason}
    record_operation(connection, "exclusion remove", arguments)
    return known[exclusion_id].exclusion


def entries(connection: Connection) -> list[ExclusionEntry]:
    """All exclusions ever added, ordered by their start."""
    rows = connection.execute(
        text(
            f"SELECT {EXCLUSION_COLUMNS}, added_at, removed_at, removed_by, removed_because"
            " FROM exclusion_history ORDER BY start_s, exclusion_id"
        )
    )
    return [
        ExclusionEntry(
            Exclusion(*row[:11]),
            as_moment(row.added_at),
            None if row.removed_at is None else as_moment(row.removed_at),
            row.removed_by,
            row.removed_because,
        )
        for row in rows
    ]
