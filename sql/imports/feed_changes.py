"""Makes the class views match a snapshot of a feed, in one transaction.

A feed (GOCDB, CRIC, the VO feed of one VO) adds statements only where it differs from its own last
ones, and closes or cancels only rows that hold by its own statements; those of others stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, text

from sam_pipeline.schema.program.command import text_table
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.records.classes import (
    DOWNTIME,
    SERVICE_ENDPOINT,
    SITE_CONTACT,
    SITE_GROUP,
    MessageClass,
)
from sam_pipeline.schema.times import format_time, parse_time
from sam_pipeline.sql.database.engine import load_transaction, reading
from sam_pipeline.sql.errors import (
    DATABASE_ERRORS,
    LOCK_TIMEOUT,
    BadInput,
    ImportRunning,
    sqlstate,
)
from sam_pipeline.sql.imports.feed_rows import ALL_TYPES, FeedRows
from sam_pipeline.sql.loading.catalogue import ANNOUNCED_AT, SOURCE
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.topology.downtime import without_endpoints
from sam_pipeline.sql.topology.view_rows import (
    HAND,
    HOLDS,
    Row,
    insert_rows,
    key_of,
    last_said,
    stored_rows,
)

COLUMNS = ("kind", "read", "new", "changed", "ended", "unchanged", "kept")
"""The fields of FeedChanges that a summary shows."""
MAX_EXAMPLES = 5
"""How many sites a line of the summary shows."""

MAX_VANISHED_PERCENT, MIN_VANISHED = 20, 3
"""An export is probably incomplete if all rows vanish at once, or at least this number and this
part of them."""

_DETAILS = {
    SERVICE_ENDPOINT.name: ("serviceURI", "gridSite", "production", "monitored"),
    SITE_GROUP.name: ("weight",),
    SITE_CONTACT.name: ("contact",),
    DOWNTIME.name: ("startTime", "endTime", "classification", "severity", "description"),
}
"""Attributes outside the key; if one of them changes, a new row is inserted."""


class RowChange(NamedTuple):
    """A row before and after an import: None before it begins, or after it ends."""

    message_class: MessageClass
    before: Row | None
    after: Row | None

    def __str__(self) -> str:
        """`+ serviceEndpoint A ce01 CE`, `-` if it ends, `~ …: production Y -> N` if it changes."""
        before, after = self.before or {}, self.after or {}
        row = after or before
        names = [key for key in self.message_class.natural_key if key != "validFrom"]
        details = [key for key in self.message_class.keys if key not in (*names, "timestamp")]
        if before and after:
            pairs = ((key, before.get(key), after.get(key)) for key in details)
            values = [
                f"{key} {old or '-'} -> {new or '-'}" for key, old, new in pairs if old != new
            ]
        else:
            values = [f"{key} {row[key]}" for key in details if key in row]
        sign = "~" if before and after else "+" if after else "-"
        line = " ".join([sign, self.message_class.name, *(row[key] for key in names if key in row)])
        return f"{line}: {', '.join(values)}" if values else line


@dataclass(frozen=True)
class FeedChanges:
    """The rows to insert for one kind of export, and the counts behind them.

    The `read` rows of the export are `new`, `changed`, `unchanged`, or `kept`: what another source
    stated holds. `ended` rows are missing from the export, and closed or cancelled. A warning
    names current and future downtimes that are `without_endpoint`.
    """

    kind: str
    message_class: MessageClass
    rows: tuple[Row, ...]
    read: int
    new: int = 0
    changed: int = 0
    ended: int = 0
    unchanged: int = 0
    kept: int = 0
    differences: tuple[RowChange, ...] = ()
    without_endpoint: str = ""


@dataclass(frozen=True)
class Window:
    """The period that an export of downtimes covers: `[start, end)`, in wire format."""

    start: str
    end: str


@dataclass(frozen=True)
class FeedSnapshot:
    """When the exports of a feed were made, and how to compare them; times in wire format.

    `feed` is its name. New rows are valid from `at` on, in a first import from `since` on.
    Missing downtimes are only ended inside the `window`. `accept_shrinking` accepts an export that
    looks incomplete.
    """

    feed: str
    at: str
    since: str | None = None
    window: Window | None = None
    accept_shrinking: bool = False

    @property
    def source(self) -> str:
        """The source of its statements."""
        return f"feed {self.feed}"

    @property
    def title(self) -> str:
        """The feed, for messages."""
        kind, _, vo = self.feed.partition(":")
        return f"the VO feed of {vo}" if vo else kind.upper()


@dataclass(frozen=True)
class FeedOutcome:
    """The changes by a snapshot; of a feed from a server, also its URL and documents."""

    snapshot: FeedSnapshot
    rows: FeedRows
    changes: Sequence[FeedChanges]
    url: str = ""
    documents: int = 0
    unchanged: int = 0

    def document(self, dry_run: bool) -> dict[str, Any]:
        """The outcome for JSON."""
        kinds = [dict(zip(COLUMNS, row, strict=True)) for row in self._counts()]
        document: dict[str, Any] = {"at": self.snapshot.at, "dry_run": dry_run, "kinds": kinds}
        if self.url:
            document |= {"url": self.url, "documents": self.documents}
            document["unchanged_documents"] = self.unchanged
        document["left_out"] = [item._asdict() for item in self.rows.left_out]
        document["filtered_sites"] = {
            condition: sorted(sites) for condition, sites in self.rows.filtered.items()
        }
        document["downtimes_without_endpoint"] = self._without_endpoint()
        if dry_run:
            document["rows"] = [
                {"class": change.message_class.name, "record": row}
                for change in self.changes
                for row in change.rows
            ]
        return document

    def summary(self) -> list[str]:
        lines = text_table(COLUMNS, self._counts())
        if self.url:
            unchanged = f", {self.unchanged} of them unchanged" if self.unchanged else ""
            lines.insert(0, f"{self.url}: {plural(self.documents, 'document')}{unchanged}")
        for condition, sites in self.rows.filtered.items():
            shown = ", ".join(sorted(sites)[:MAX_EXAMPLES])
            if len(sites) > MAX_EXAMPLES:
                shown += f", … and {len(sites) - MAX_EXAMPLES} more"
            lines.append(f"not taken: {plural(len(sites), 'site')} ({condition}): {shown}")
        lines += self._without_endpoint()
        if self.rows.left_out:
            lines.append(f"{plural(len(self.rows.left_out), 'element')} left out")
        return lines

    def _counts(self) -> list[list[Any]]:
        return [[getattr(change, name) for name in COLUMNS] for change in self.changes]

    def _without_endpoint(self) -> list[str]:
        return [change.without_endpoint for change in self.changes if change.without_endpoint]


# One import at a time, because the stored rows must not change between comparison and insert.
_LOCK = text("SELECT lock_statements()")


def apply_snapshot(
    engine: Engine, rows: FeedRows, snapshot: FeedSnapshot, *, dry_run: bool = False
) -> list[FeedChanges]:
    """Compare a feed with the stored rows, and insert the changes in the same transaction.

    Raises:
        BadInput: the feed is implausible or outdated; nothing is written.
        ImportRunning: another import took too long; nothing is written.
        DatabaseAway: nothing is written; try again later.
    """

    def action(connection: Connection) -> list[FeedChanges]:
        if connection.dialect.name == "postgresql" and not dry_run:
            try:
                connection.execute(_LOCK)
            except DATABASE_ERRORS as error:
                if sqlstate(error) != LOCK_TIMEOUT:
                    raise
                problem = "another import is storing its topology in this database"
                raise ImportRunning(f"{problem}; nothing was changed, try again later") from error
        changes = []
        parts = [
            (SERVICE_ENDPOINT, "", rows.endpoints),
            *((SITE_GROUP, group_type, groups) for group_type, groups in rows.groups.items()),
            (SITE_CONTACT, "", rows.contacts),
        ]
        for message_class, group_type, exported in parts:
            if exported is not None:
                stated = last_said(connection, message_class, snapshot.source)
                stated = [row for row in stated if group_type in (ALL_TYPES, row.get("groupType"))]
                kind = f"{message_class.name} {group_type}".strip()
                changes.append(topology_changes(kind, message_class, exported, stated, snapshot))
        if rows.downtimes is not None:
            endpoints = (
                *stored_rows(connection, SERVICE_ENDPOINT),
                *(row for c in changes if c.message_class is SERVICE_ENDPOINT for row in c.rows),
            )
            key = SERVICE_ENDPOINT.natural_key
            changes.append(
                downtime_changes(
                    rows.downtimes,
                    last_said(connection, DOWNTIME, snapshot.source),
                    stored_rows(connection, DOWNTIME),
                    snapshot,
                    list({key_of(row, key): row for row in endpoints}.values()),
                )
            )
        if not dry_run:
            for change in changes:
                insert_rows(connection, change.message_class, change.rows)
        return changes

    if dry_run:
        with reading(engine) as connection:
            return action(connection)
    fold_all(engine)  # the first result, perhaps just loaded, decides which days are due
    return load_transaction(engine, action)


def topology_changes(
    kind: str,
    message_class: MessageClass,
    exported: Sequence[Row],
    stated: Sequence[Row],
    snapshot: FeedSnapshot,
) -> FeedChanges:
    """The changes that make serviceEndpoint, siteGroup or siteContact match a snapshot.

    A contact has no validity: one that vanished is removed, by a row without a contact.

    Args:
        exported: rows without `validFrom`.
        stated: the last statement of the feed about each key, of the same kind.

    Raises:
        BadInput: too many rows vanished without `accept_shrinking`, or the snapshot is not newer
            than the last one; nothing was changed.
    """
    at, is_dated = snapshot.at, "validFrom" in message_class.natural_key
    keys = tuple(key for key in message_class.natural_key if key != "validFrom")
    details = _DETAILS[message_class.name]
    valid = [
        row for row in stated if row.get("validTo", "9") > at and (is_dated or "contact" in row)
    ]
    known = {key_of(row, keys): row for row in valid}
    wanted = {key_of(row, keys): row for row in exported}
    gone = [row for key, row in known.items() if key not in wanted]
    is_many = len(gone) >= MIN_VANISHED and len(gone) * 100 > len(known) * MAX_VANISHED_PERCENT
    if (is_many or 0 < len(gone) == len(known)) and not snapshot.accept_shrinking:
        raise BadInput(
            f"{kind}: {len(gone)} of {len(known)} rows from {snapshot.title} are missing from the"
            " export; if it is complete, --accept-shrinking closes them; nothing was changed"
        )
    gone = [row for row in gone if HOLDS in row]
    both = wanted.keys() & known.keys()
    changed = {key for key in both if key_of(wanted[key], details) != key_of(known[key], details)}
    begun = [row for key, row in wanted.items() if key in changed or key not in known]
    if is_dated:
        replaced = [known[key] for key in changed if HOLDS in known[key]]
        ended: list[Row] = [{**row, "validTo": at} for row in (*gone, *replaced)]
        start = snapshot.since if snapshot.since and not stated else at
        begun = [{**row, "validFrom": start} for row in begun]
    else:
        ended = [{key: row[key] for key in keys} for row in gone]
    if rows := (*ended, *begun):
        _refuse_old_snapshot(kind, stated, snapshot)
    return FeedChanges(
        kind,
        message_class,
        rows=tuple({**row, "timestamp": at, SOURCE: snapshot.source} for row in rows),
        read=len(wanted),
        new=len(begun) - len(changed),
        changed=len(changed),
        ended=len(gone),
        unchanged=len(both) - len(changed),
        differences=(
            *(RowChange(message_class, row, None) for row in gone),
            *(RowChange(message_class, known.get(key_of(row, keys)), row) for row in begun),
        ),
    )


def downtime_changes(
    exported: Sequence[Row],
    stated: Sequence[Row],
    holding: Sequence[Row],
    snapshot: FeedSnapshot,
    endpoints: Sequence[Row] = (),
) -> FeedChanges:
    """The changes that make downtimes match a snapshot.

    Of the downtimes that vanished inside the window, future ones are cancelled, current ones end
    at the time of the snapshot, and past ones are kept. One that vanished together with its
    endpoint, which is expected until the end of the day (UTC), lasts as long.

    Args:
        exported: rows without `timestamp`.
        stated: the last statement of the feed about each downtime.
        holding: all rows from all sources.
        endpoints: all rows of serviceEndpoint, as they are after the snapshot.

    Raises:
        BadInput: an empty export would end downtimes without `accept_shrinking`, or the snapshot is
            not newer than the last one; nothing was changed.
    """
    at, window = snapshot.at, snapshot.window
    keys, details = DOWNTIME.natural_key, _DETAILS[DOWNTIME.name]
    known = {key_of(row, keys): row for row in stated}
    held = {key_of(row, keys): row for row in holding if "downtimeId" in row}
    wanted = {key_of(row, keys): row for row in exported}
    counts: Counter[str] = Counter()
    differences: list[RowChange] = []
    changed: list[Row] = []
    ended: list[Row] = []
    for key, row in wanted.items():
        is_repeated = key in known and key_of(row, details) == key_of(known[key], details)
        if not is_repeated:
            # Only the first time the feed knows when people could read it.
            changed.append({**row, ANNOUNCED_AT: at} if key in known else row)
        if key not in held:
            counts["new"] += 1
            differences.append(RowChange(DOWNTIME, None, row))
        elif key_of(row, details) == key_of(held[key], details):
            counts["unchanged"] += 1
        elif is_repeated or held[key][SOURCE] == HAND or held[key]["timestamp"] >= at:
            counts["kept"] += 1
        else:
            counts["changed"] += 1
            differences.append(RowChange(DOWNTIME, held[key], row))
    for key, row in known.items():
        if key in wanted or window is None or HOLDS not in row:
            continue
        start, end = row["startTime"], row["endTime"]
        last = max(at, start)
        if start < last and _ends_today(row, endpoints, at):
            midnight = parse_time(f"{at[:10]}T00:00:00Z") + timedelta(days=1)
            last = max(min(end, format_time(midnight)), last)
        if start < window.end and end > window.start and end > last:
            ended.append({**row, "endTime": last})
            differences.append(RowChange(DOWNTIME, row, ended[-1]))
    if ended and not wanted and not snapshot.accept_shrinking:
        raise BadInput(
            f"the export has no downtimes, but {len(ended)} from {snapshot.title} are in the"
            " window; if it is complete, --accept-shrinking ends them; nothing was changed"
        )
    rows = [*changed, *ended]
    if rows:
        _refuse_old_snapshot("downtime", stated, snapshot)
    return FeedChanges(
        "downtime",
        DOWNTIME,
        rows=tuple(
            {ANNOUNCED_AT: at, **row, "timestamp": at, SOURCE: snapshot.source} for row in rows
        ),
        read=len(wanted),
        ended=len(ended),
        differences=tuple(differences),
        without_endpoint=without_endpoints(
            (row for row in exported if row["endTime"] > max(at, row["startTime"])),
            (row for row in endpoints if row.get("validTo", "9") > at),
        ),
        **counts,
    )


def _ends_today(downtime: Row, endpoints: Sequence[Row], at: str) -> bool:
    """Whether all endpoints of a downtime have ended since the beginning of the day."""
    keys = [key for key in ("hostName", "serviceFlavour") if key in downtime]
    ends = [
        row.get("validTo", "9")
        for row in endpoints
        if key_of(row, keys) == key_of(downtime, keys)
        and downtime.get("siteName") in (None, row["siteName"], row.get("gridSite"))
        and row["validFrom"] <= at
    ]
    return bool(ends) and f"{at[:10]}T00:00:00Z" < max(ends) <= at


def _refuse_old_snapshot(kind: str, stated: Sequence[Row], snapshot: FeedSnapshot) -> None:
    """Make sure that snapshots are imported in order, so that the history is consistent."""
    newest = max((row["timestamp"] for row in stated), default="")
    if newest >= snapshot.at:
        raise BadInput(
            f"{kind}: the snapshot of {snapshot.at} differs from the feed of {newest}; a"
            " snapshot must be newer than the previous one; nothing was changed"
        )
