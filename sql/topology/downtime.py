"""Announces, moves and cancels downtimes, for `sam-db downtime`.

A downtime has one row of the class view per flavour. What a person said last holds, so each change
gets a timestamp newer than that of the row it changes. Warnings name sites, hosts and flavours that
never occur together in the topology, perhaps by a typing error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from sqlalchemy import Connection, Engine, text

from sam_pipeline.schema.program.wording import did_you_mean, plural
from sam_pipeline.schema.records.classes import DOWNTIME, SERVICE_ENDPOINT
from sam_pipeline.schema.records.normalise import normalise
from sam_pipeline.schema.times import format_time, parse_time
from sam_pipeline.sql.database.engine import load_transaction, reading
from sam_pipeline.sql.database.operations import record_operation
from sam_pipeline.sql.errors import (
    DatabaseRefused,
    DowntimeRefused,
    NoSuchDowntime,
    StatementFailed,
)
from sam_pipeline.sql.loading.catalogue import ANNOUNCED_AT, SOURCE
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.topology.view_rows import HAND, Row, days_of, insert_rows, key_of, stored_rows

_ANNOUNCED = text("""
    SELECT downtime_id, site, host_name, service_flavour, whole_start_s, min(announced_s)
    FROM report_downtime
    GROUP BY downtime_id, site, host_name, service_flavour, whole_start_s
""")
_MARKED = text("SELECT day FROM report_changed_day WHERE change_no IS NULL")

_LABELS = {"siteName": "site", "hostName": "host", "serviceFlavour": "flavour"}

EXAMPLES = 3
"""How many downtimes without an endpoint a warning names."""


@dataclass(frozen=True)
class DowntimeChange:
    """One row of a downtime before and after a change; `before` is None for a new row."""

    before: Row | None
    after: Row

    def days(self, today: date) -> set[date]:
        """The UTC days up to today that the row overlaps, before or after the change."""
        rows = [self.after] if self.before is None else [self.before, self.after]
        return {day for row in rows for day in days_of(row["startTime"], row["endTime"], today)}


@dataclass(frozen=True)
class ChangedDowntimes:
    """The changes made, and the days whose reports they make due.

    Days before the first result and days frozen by a prune are never due.
    """

    changes: Sequence[DowntimeChange]
    due_days: Sequence[date]


def announcement(fields: Mapping[str, str], now: datetime) -> list[Row]:
    """The rows of a downtime, checked like those of a message.

    Raises:
        RecordRefused: a field is invalid; the message names it.
    """
    return [dict(row) for row in normalise(fields, DOWNTIME.name, {}, now)]


def announce(engine: Engine, rows: Sequence[Row], now: datetime) -> ChangedDowntimes:
    """Store the rows; a row moves the downtime with the same id, site, host and flavour."""

    def changes_to(stored: Sequence[Row]) -> list[DowntimeChange]:
        known = {key_of(row, DOWNTIME.natural_key): row for row in stored}
        return [DowntimeChange(known.get(key_of(row, DOWNTIME.natural_key)), row) for row in rows]

    return _store(engine, "downtime add", changes_to, now)


def cancel(
    engine: Engine, ids: Sequence[str], end: str | None, why: str, now: datetime
) -> ChangedDowntimes:
    """End the downtimes at `end`, or cancel them if it is None: then they end at their start.

    Downtimes that are already cancelled are not changed and not returned.

    Raises:
        NoSuchDowntime: an id is unknown.
        DowntimeRefused: `end` lies outside its downtime.
    """

    def changes_to(stored: Sequence[Row]) -> list[DowntimeChange]:
        changes = []
        for downtime_id in ids:
            rows = [row for row in stored if row["downtimeId"] == downtime_id]
            if not rows:
                raise NoSuchDowntime(f"no downtime {downtime_id}; nothing was changed")
            for row in rows:
                start, old_end = row["startTime"], row["endTime"]
                if start >= old_end:
                    continue
                if end and not start < end < old_end:
                    raise DowntimeRefused(
                        f"downtime {downtime_id} lasts from {start} to {old_end} and can't be"
                        f" ended at {end}; nothing was changed"
                    )
                description = "; ".join(filter(None, [row.get("description"), why]))
                ended = {**row, "endTime": end or start, "description": description}
                changes.append(DowntimeChange(row, ended))
        return changes

    return _store(engine, "downtime end" if end else "downtime cancel", changes_to, now)


def list_downtimes(engine: Engine) -> list[Row]:
    """All downtimes, ordered by start; `announcedAt` is when the first part was announced."""
    names = (*DOWNTIME.natural_key, "startTime")
    announced = {}
    with reading(engine) as connection:
        rows = stored_rows(connection, DOWNTIME)
        for *by, start, first in connection.execute(_ANNOUNCED):
            start, first = (format_time(datetime.fromtimestamp(at, UTC)) for at in (start, first))
            announced[(*(name or "" for name in by), start)] = first
    return sorted(
        (
            {**row, ANNOUNCED_AT: at} if (at := announced.get(key_of(row, names))) else row
            for row in rows
        ),
        key=lambda row: key_of(row, ("startTime", "endTime", *names)),
    )


def unknown_names(engine: Engine, rows: Iterable[Row]) -> list[str]:
    """A warning for each row whose site, host and flavour never occur together in the topology."""
    with reading(engine) as connection:
        topology = stored_rows(connection, SERVICE_ENDPOINT)
    return [warning for row in rows if (warning := not_in_topology(row, topology))]


def downtimes_without_endpoints(engine: Engine, now: str) -> str:
    """A warning about downtimes that are not over and apply to no endpoint; "" if all apply.

    Also "" if the views are broken, or this user may not read them.
    """
    try:
        with reading(engine) as connection:
            downtimes = stored_rows(connection, DOWNTIME)
            topology = stored_rows(connection, SERVICE_ENDPOINT)
    except (DatabaseRefused, StatementFailed):
        return ""
    return without_endpoints(
        (row for row in downtimes if row["endTime"] > max(now, row["startTime"])),
        (row for row in topology if row.get("validTo", "9") > now),
    )


def _store(
    engine: Engine,
    command: str,
    changes_to: Callable[[Sequence[Row]], list[DowntimeChange]],
    now: datetime,
) -> ChangedDowntimes:
    """Insert the changes that `changes_to` returns for the stored rows, with newer timestamps.

    Each is an operation with this command.
    """

    def action(connection: Connection) -> ChangedDowntimes:
        stored = [row for row in stored_rows(connection, DOWNTIME) if "downtimeId" in row]
        changes = []
        for change in changes_to(stored):
            known = (change.before or {}).get("timestamp")
            newest = max(now, parse_time(known) + timedelta(seconds=1)) if known else now
            stamp = {"timestamp": format_time(newest), SOURCE: HAND}
            changes.append(DowntimeChange(change.before, {**change.after, **stamp}))
        insert_rows(connection, DOWNTIME, (change.after for change in changes))
        touched = {day for change in changes for day in change.days(now.date())}
        marked = {date.fromisoformat(str(day)) for day in connection.scalars(_MARKED)}
        for change in changes:
            record_operation(connection, command, change.after)
        return ChangedDowntimes(changes, sorted(touched & marked))

    fold_all(engine)  # the first result, perhaps just loaded, decides which days are due
    return load_transaction(engine, action)


def not_in_topology(names: Mapping[str, str], topology: Iterable[Mapping[str, str]]) -> str | None:
    """A warning with the nearest known name if no endpoint has all of the names that are given.

    `names` and the endpoints have the keys siteName, hostName and serviceFlavour, and the endpoints
    perhaps gridSite, which also matches the site; others do not matter.
    """
    endpoints, path = list(topology), []
    for key, label in _LABELS.items():
        if key not in names:
            continue
        keys = ("siteName", "gridSite") if key == "siteName" else (key,)
        known = {endpoint[k] for endpoint in endpoints for k in keys if k in endpoint}
        endpoints = [e for e in endpoints if names[key] in [e.get(k) for k in keys]]
        path.append(f"{label} {names[key]}")
        if not endpoints:
            hint = did_you_mean(names[key], known)
            return f"{' with '.join(path)} is not in the topology{hint and f': {hint}'}"
    return None


def without_endpoints(
    downtimes: Iterable[Mapping[str, str]], topology: Iterable[Mapping[str, str]]
) -> str:
    """A warning about the downtimes that apply to no endpoint, with examples; "" if all apply.

    Both have the keys of `not_in_topology`, and downtimes also downtimeId.
    """
    endpoints = list(topology)
    known = {
        (site, host, flavour)
        for endpoint in endpoints
        for site in ("", endpoint["siteName"], endpoint.get("gridSite", ""))
        for host in ("", endpoint["hostName"])
        for flavour in ("", endpoint["serviceFlavour"])
    }
    unmatched: set[tuple[str, ...]] = set()
    for downtime in downtimes:
        site, host, flavour = (downtime.get(key, "") for key in _LABELS)
        if (site, host, flavour) not in known:
            unmatched.add((site, host, flavour, downtime.get("downtimeId", "")))
    if not unmatched:
        return ""
    # Downtimes of a known host come first: their flavour or site probably has another name here.
    # The others may be of sites that no report needs.
    hosts = {endpoint["hostName"] for endpoint in endpoints}
    in_order = sorted(unmatched, key=lambda names: (names[1] not in hosts, names))
    examples = []
    for *names, downtime_id in in_order[:EXAMPLES]:
        given = {key: name for key, name in zip(_LABELS, names, strict=True) if name}
        which = f"downtime {downtime_id}: " if downtime_id else ""
        examples.append(f"{which}{not_in_topology(given, endpoints)}")
    more = len(unmatched) - len(examples)
    return (
        f"{plural(len(unmatched), 'downtime')} without an endpoint in the topology:"
        f" {'; '.join(examples)}{f'; and {more} more' if more else ''}"
    )
