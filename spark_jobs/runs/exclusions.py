"""Exclusions (availability rule 7): entered, taken back, listed.

The database marks the days that one touches, so that the next `sam-report run --due` obeys.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Any

from sqlalchemy import Connection, text

from sam_pipeline.spark_jobs.errors import ReportUsage
from sam_pipeline.spark_jobs.inputs.announced import Exclusion
from sam_pipeline.spark_jobs.rules.days import day_start
from sam_pipeline.spark_jobs.runs.due import horizon
from sam_pipeline.spark_jobs.runs.published import as_moment
from sam_pipeline.spark_jobs.runs.record import stored_time

_COLUMNS = (
    "exclusion_id, kind, monitoring_host, metric_name, site, service_flavour, host_name, start_s,"
    " end_s, reason, who"
)
_INSERT = text(
    "INSERT INTO exclusion (kind, monitoring_host, metric_name, site, service_flavour, host_name,"
    " start_time, end_time, reason, who, added_at)"
    " VALUES (:kind, :monitoring_host, :metric_name, :site, :service_flavour, :host_name,"
    " :start, :end, :reason, :who, :added_at) RETURNING exclusion_id"
)
_REMOVE = text(
    "UPDATE exclusion SET removed_at = :now, removed_by = :who"
    " WHERE exclusion_id = :exclusion_id AND removed_at IS NULL"
)


@dataclass(frozen=True)
class ExclusionEntry:
    """An exclusion as it was entered, and perhaps taken back."""

    exclusion: Exclusion
    added_at: datetime
    removed_at: datetime | None
    removed_by: str | None


def add(connection: Connection, exclusion: Exclusion, now: int) -> int:
    """Enter it, from now on in force; its id (the one it has is not looked at)."""
    row = {
        **asdict(exclusion),
        "start": stored_time(connection, exclusion.start),
        "end": stored_time(connection, exclusion.end),
        "added_at": stored_time(connection, now),
    }
    exclusion_id: int = connection.execute(_INSERT, row).scalar_one()
    return exclusion_id


def remove(connection: Connection, exclusion_id: int, who: str, now: int) -> Exclusion:
    """Take one back; it stays on record.

    Raises:
        ReportUsage: there is none of that id, or it was taken back before.
    """
    known = {each.exclusion.exclusion_id: each for each in entries(connection)}
    if exclusion_id not in known:
        raise ReportUsage(f"no exclusion {exclusion_id}: `sam-report exclusion list` shows them")
    row = {"exclusion_id": exclusion_id, "now": stored_time(connection, now), "who": who}
    if connection.execute(_REMOVE, row).rowcount != 1:
        by = known[exclusion_id].removed_by
        raise ReportUsage(f"exclusion {exclusion_id} was removed before, by {by}")
    return known[exclusion_id].exclusion


def entries(connection: Connection) -> list[ExclusionEntry]:
    """Everything that was ever entered, by start."""
    found = connection.execute(
        text(
            f"SELECT {_COLUMNS}, added_at, removed_at, removed_by FROM exclusion_history"
            " ORDER BY start_s, exclusion_id"
        )
    )
    return [_entry(tuple(row)) for row in found]


def frozen_before(connection: Connection, exclusion: Exclusion) -> date | None:
    """Its days before this one stay as they are, as results were pruned; none: they don't."""
    kept = horizon(connection)
    return kept if kept is not None and exclusion.start < day_start(kept) else None


def _entry(row: tuple[Any, ...]) -> ExclusionEntry:
    removed_at = None if row[12] is None else as_moment(row[12])
    return ExclusionEntry(Exclusion(*row[:11]), as_moment(row[11]), removed_at, row[13])
