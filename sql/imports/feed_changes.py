"""Compares a snapshot of a feed with the stored rows, and returns the rows to insert.

A feed (GOCDB, CRIC, the VO feed of one VO) owns the rows whose `messageId` names it. Only these are
closed or cancelled; rows of other feeds, messages, CSV files or `sam-db downtime` are left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sam_pipeline.schema.records.classes import DOWNTIME, SERVICE_ENDPOINT, SITE_GROUP, MessageClass
from sam_pipeline.schema.times import format_time, parse_time
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.loading.catalogue import MESSAGE_ID
from sam_pipeline.sql.topology.view_rows import Row, key_of, source_of

MAX_VANISHED_PERCENT = 20
"""If more rows vanish at once, the export is probably incomplete."""

_DETAILS = {
    SERVICE_ENDPOINT.name: ("serviceURI", "production", "monitored"),
    SITE_GROUP.name: (),
    DOWNTIME.name: ("startTime", "endTime", "classification", "severity", "description"),
}
"""Attributes outside the key; if one of them changes, a new row is inserted."""


@dataclass(frozen=True)
class FeedChanges:
    """The rows to insert for one kind of export, and the counts behind them.

    The `read` rows of the export are `new`, `changed`, `unchanged`, or `kept` because another
    source has changed them. `ended` rows are missing from the export, and closed or cancelled.
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


@dataclass(frozen=True)
class Window:
    """The period that an export of downtimes covers: `[start, end)`, in wire format."""

    start: str
    end: str


@dataclass(frozen=True)
class FeedSnapshot:
    """When the exports of a feed were made, and how to compare them; times in wire format.

    `source` owns the rows. New ones are valid from `at` on, in a first import from `since` on.
    Missing downtimes are only ended inside the `window`. `accept_shrinking` accepts an export that
    looks incomplete.
    """

    source: str
    at: str
    now: str
    since: str | None = None
    window: Window | None = None
    accept_shrinking: bool = False

    @property
    def message_id(self) -> str:
        """The message id of the rows; `source_of` reads it."""
        return f"{self.source}:{self.at}"

    @property
    def feed(self) -> str:
        """The name of the feed, for messages."""
        kind, _, vo = self.source.partition(":")
        return f"the VO feed of {vo}" if vo else kind.upper()


def topology_changes(
    kind: str,
    message_class: MessageClass,
    exported: Sequence[Row],
    stored: Sequence[Row],
    snapshot: FeedSnapshot,
) -> FeedChanges:
    """The changes that make serviceEndpoint or siteGroup match a snapshot.

    Args:
        exported: rows without `validFrom`.
        stored: rows of the same kind from all sources.

    Raises:
        BadInput: too many rows vanished without `accept_shrinking`, the snapshot is not newer than
            the last one, or a new row has the natural key of a stored one; nothing was changed.
    """
    at = snapshot.at
    keys = tuple(key for key in message_class.natural_key if key != "validFrom")
    details = _DETAILS[message_class.name]
    ours = [row for row in stored if source_of(row) == snapshot.source]
    known = {key_of(row, keys): row for row in ours if row.get("validTo", "9") > at}
    wanted = {key_of(row, keys): row for row in exported}
    gone = [row for key, row in known.items() if key not in wanted]
    if len(gone) * 100 > len(known) * MAX_VANISHED_PERCENT and not snapshot.accept_shrinking:
        raise BadInput(
            f"{kind}: {len(gone)} of {len(known)} rows from {snapshot.feed} are missing from the"
            f" export, more than {MAX_VANISHED_PERCENT} %; if it is complete, --accept-shrinking"
            " closes them; nothing was changed"
        )
    both = wanted.keys() & known.keys()
    changed = {key for key in both if key_of(wanted[key], details) != key_of(known[key], details)}
    start = snapshot.since if snapshot.since and not ours else at
    begun = [
        {**row, "validFrom": start, MESSAGE_ID: snapshot.message_id}
        for key, row in wanted.items()
        if key in changed or key not in known
    ]
    ended = [{**row, "validTo": at} for row in [*gone, *(known[key] for key in changed)]]
    if begun or ended:
        moments = (row[key] for row in ours for key in ("validFrom", "validTo") if key in row)
        _refuse_old_snapshot(kind, moments, snapshot)
    taken = {key_of(row, message_class.natural_key): row for row in stored}
    for row in begun:  # a row with the natural key of a stored one would be ignored
        natural_key = key_of(row, message_class.natural_key)
        if natural_key in taken:
            message_id = taken[natural_key].get(MESSAGE_ID, "without id")
            raise BadInput(
                f"{message_class.name}: {' '.join(filter(None, natural_key))} was announced already"
                f" (message {message_id}): choose another --at or --since; nothing was changed"
            )
    return FeedChanges(
        kind,
        message_class,
        rows=(*ended, *begun),
        read=len(wanted),
        new=len(begun) - len(changed),
        changed=len(changed),
        ended=len(gone),
        unchanged=len(both) - len(changed),
    )


def downtime_changes(
    exported: Sequence[Row],
    stored: Sequence[Row],
    snapshot: FeedSnapshot,
    endpoints: Sequence[Row] = (),
) -> FeedChanges:
    """The changes that make downtimes match a snapshot.

    Of the downtimes that vanished inside the window, future ones are cancelled, current ones end
    at the time of the snapshot, and past ones are kept. One that vanished together with its
    endpoint, which is expected until the end of the day (UTC), lasts as long.

    Args:
        exported: rows without `timestamp`.
        stored: all rows from all sources.
        endpoints: all rows of serviceEndpoint, as they are after the snapshot.

    Raises:
        BadInput: an empty export would end downtimes without `accept_shrinking`, or the snapshot is
            not newer than the last one; nothing was changed.
    """
    at, window = snapshot.at, snapshot.window
    keys, details = DOWNTIME.natural_key, _DETAILS[DOWNTIME.name]
    known = {key_of(row, keys): row for row in stored if "downtimeId" in row}
    wanted = {key_of(row, keys): row for row in exported}
    unchanged, kept, new, changed, ended = 0, 0, [], [], []
    for key, row in wanted.items():
        before = known.get(key)
        source = source_of(before or {})
        if before is None:
            new.append(row)
        elif key_of(row, details) == key_of(before, details):
            unchanged += 1
        # A change by hand takes precedence over feeds; of messages the newest wins.
        elif source == "by hand" or (source == "message" and before.get("timestamp", "") >= at):
            kept += 1
        else:
            changed.append(row)
    ours = {key: row for key, row in known.items() if source_of(row) == snapshot.source}
    for key, row in ours.items():
        if key in wanted or window is None:
            continue
        start, end = row["startTime"], row["endTime"]
        last = max(at, start)
        if start < last and _ends_today(row, endpoints, at):
            midnight = parse_time(f"{at[:10]}T00:00:00Z") + timedelta(days=1)
            last = max(min(end, format_time(midnight)), last)
        if start < window.end and end > window.start and end > last:
            ended.append({**row, "endTime": last})
    if ended and not wanted and not snapshot.accept_shrinking:
        raise BadInput(
            f"the export has no downtimes, but {len(ended)} from {snapshot.feed} are in the"
            " window; if it is complete, --accept-shrinking ends them; nothing was changed"
        )
    rows = [*new, *changed, *ended]
    if rows:
        moments = (row.get("timestamp", "") for row in ours.values())
        _refuse_old_snapshot("downtime", moments, snapshot)
    return FeedChanges(
        "downtime",
        DOWNTIME,
        rows=tuple({**row, "timestamp": at, MESSAGE_ID: snapshot.message_id} for row in rows),
        read=len(wanted),
        new=len(new),
        changed=len(changed),
        ended=len(ended),
        unchanged=unchanged,
        kept=kept,
    )


def _ends_today(downtime: Row, endpoints: Sequence[Row], at: str) -> bool:
    """Whether all endpoints of a downtime have ended since the beginning of the day."""
    keys = [key for key in ("siteName", "hostName", "serviceFlavour") if key in downtime]
    ends = [
        row.get("validTo", "9")
        for row in endpoints
        if key_of(row, keys) == key_of(downtime, keys) and row["validFrom"] <= at
    ]
    return bool(ends) and f"{at[:10]}T00:00:00Z" < max(ends) <= at


def _refuse_old_snapshot(kind: str, moments: Iterable[str], snapshot: FeedSnapshot) -> None:
    """Make sure that snapshots are imported in order, so that the history is consistent.

    A `validTo` in the future was announced and is not the time of a snapshot.
    """
    newest = max((moment for moment in moments if moment <= snapshot.now), default="")
    if newest >= snapshot.at:
        raise BadInput(
            f"{kind}: the snapshot of {snapshot.at} differs from the state stored at {newest}; a"
            " snapshot must be newer than the previous one; nothing was changed"
        )
