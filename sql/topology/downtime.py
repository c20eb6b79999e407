"""Downtimes by hand: announced, moved, cancelled; in the past too.

What is announced is one row of the class view for each flavour. The newest `timestamp` of a
downtime wins, so every change by hand gets one that is newer than what it changes.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from sqlalchemy import Connection, Engine, text

from sam_pipeline.schema.records.classes import DOWNTIME, SERVICE_ENDPOINT
from sam_pipeline.schema.records.normalise import normalise
from sam_pipeline.schema.times import format_time, parse_time
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.transaction import load_transaction
from sam_pipeline.sql.errors import DowntimeRefused
from sam_pipeline.sql.loading.catalogue import MESSAGE_ID
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.topology.moments import days_of
from sam_pipeline.sql.topology.view_rows import BY_HAND, Row, insert_rows, key_of, stored_rows

_MARKED = text("SELECT day FROM report_changed_day WHERE change_no IS NULL")


@dataclass(frozen=True)
class Change:
    """A downtime before and after a change by hand, row by row; before: None, it is new."""

    before: Row | None
    after: Row

    def days(self, today: date) -> set[date]:
        """The UTC days that it touches, up to today."""
        rows = [self.after] if self.before is None else [self.before, self.after]
        return {day for row in rows for day in days_of(row["startTime"], row["endTime"], today)}


@dataclass(frozen=True)
class Changed:
    """What was done, and the days of it whose reports are to be made again.

    These are none before the first with results, and none that prune has frozen.
    """

    changes: Sequence[Change]
    due_days: Sequence[date]


def new_id(now: datetime) -> str:
    return f"local-{now:%Y%m%d}-{secrets.token_hex(4)}"


def signed(words: str, who: str) -> str:
    """`power cut (jane)`"""
    return f"{words} ({who})"


def announcement(fields: Mapping[str, str], now: datetime) -> list[Row]:
    """The rows of a downtime, checked as a message's would be.

    Raises:
        RecordRefused: in words.
    """
    return [dict(row) for row in normalise(fields, DOWNTIME.name, {}, now)]


def announce(engine: Engine, rows: Sequence[Row], now: datetime) -> Changed:
    """Store the rows; one whose id, site, host and flavour are known is moved."""

    def action(connection: Connection) -> Changed:
        known = {key_of(row, DOWNTIME.natural_key): row for row in _known(connection)}
        changes = [
            _stamped(Change(known.get(key_of(row, DOWNTIME.natural_key)), row), now) for row in rows
        ]
        return _stored_with_days(connection, changes, now)

    fold_all(engine)  # reports begin with the first result, be it a new one
    return load_transaction(engine, action)


def cancel(engine: Engine, ids: Sequence[str], end: str | None, why: str, now: datetime) -> Changed:
    """End the downtimes of these ids where they began, so that they never count, or at `end`.

    Those cancelled already stay as they are and are left out of the result.

    Raises:
        DowntimeRefused: an id is unknown, or its downtime does not last until `end`.
    """

    def action(connection: Connection) -> Changed:
        stored = _known(connection)
        changes = [_stamped(each, now) for one in ids for each in _ended(one, stored, end, why)]
        return _stored_with_days(connection, changes, now)

    fold_all(engine)  # reports begin with the first result, be it a new one
    return load_transaction(engine, action)


def list_downtimes(engine: Engine) -> list[Row]:
    """All, by start."""
    with reading(engine) as connection:
        return sorted(
            stored_rows(connection, DOWNTIME),
            key=lambda row: key_of(row, ("startTime", "endTime", *DOWNTIME.natural_key)),
        )


def unknown_names(engine: Engine, rows: Iterable[Row]) -> list[str]:
    """In words, what of the rows never was in the topology, nor will be."""
    with reading(engine) as connection:
        endpoints = stored_rows(connection, SERVICE_ENDPOINT)
    return [words for row in rows if (words := _unknown(row, endpoints))]


def _unknown(row: Row, endpoints: Iterable[Row]) -> str:
    told = []
    for key, word in (("siteName", "site"), ("hostName", "host"), ("serviceFlavour", "flavour")):
        if key not in row:
            continue
        endpoints = [each for each in endpoints if each[key] == row[key]]
        told.append(f"{word} {row[key]}")
        if not endpoints:
            return f"{' with '.join(told)} is not in the topology"
    return ""


def _known(connection: Connection) -> list[Row]:
    return [row for row in stored_rows(connection, DOWNTIME) if "downtimeId" in row]


def _stored_with_days(connection: Connection, changes: Sequence[Change], now: datetime) -> Changed:
    insert_rows(connection, DOWNTIME, (each.after for each in changes))
    touched = {day for each in changes for day in each.days(now.date())}
    marked = {date.fromisoformat(str(day)) for day in connection.scalars(_MARKED)}
    return Changed(changes, sorted(touched & marked))


def _ended(downtime_id: str, stored: Iterable[Row], end: str | None, why: str) -> list[Change]:
    found = [row for row in stored if row["downtimeId"] == downtime_id]
    if not found:
        raise DowntimeRefused(f"there is no downtime {downtime_id}; nothing was changed")
    alive = [row for row in found if row["startTime"] < row["endTime"]]
    for row in alive:
        if end and not row["startTime"] < end < row["endTime"]:
            raise DowntimeRefused(
                f"downtime {downtime_id} lasts from {row['startTime']} to {row['endTime']}: it"
                f" can't be ended at {end}; nothing was changed"
            )
    return [
        Change(
            row,
            {
                **row,
                "endTime": end or row["startTime"],
                "description": "; ".join(filter(None, [row.get("description"), why])),
            },
        )
        for row in alive
    ]


def _stamped(change: Change, now: datetime) -> Change:
    """The same, newer than what was known, and by hand."""
    known = (change.before or {}).get("timestamp")
    newer = parse_time(known) + timedelta(seconds=1) if known else now
    stamp = {"timestamp": format_time(max(now, newer)), MESSAGE_ID: BY_HAND + format_time(now)}
    return Change(change.before, {**change.after, **stamp})
