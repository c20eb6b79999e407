"""What a snapshot of GOCDB changes: from what it says and what is stored to rows to insert.

A row that an import wrote is known by its `messageId`. Only such rows are closed or cancelled: what
came by message, from CSV or by hand is its sender's to take back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sam_pipeline.schema.records.classes import DOWNTIME, SERVICE_ENDPOINT, SITE_GROUP, MessageClass
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.loading.catalogue import MESSAGE_ID
from sam_pipeline.sql.topology.view_rows import GOCDB, Row, key_of, source_of

MOST_VANISHED_PERCENT = 20
"""More than that at once looks like half an export."""

_DETAILS = {
    SERVICE_ENDPOINT.name: ("serviceURI", "production", "monitored"),
    SITE_GROUP.name: (),
}
_DOWNTIME_DETAILS = (
    "startTime",
    "endTime",
    "classification",
    "severity",
    "description",
)


@dataclass(frozen=True)
class Changes:
    """The rows to insert, and of how many kinds of change they are made.

    Of `read` rows of the export some are `new`, `changed`, `unchanged` or `kept`: as someone else
    said later. `ended` were known, and are in the export no more: closed, or cancelled.
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
    """The time an export of downtimes is about: `[start, end)`, as texts of the wire."""

    start: str
    end: str

    def touches(self, row: Row) -> bool:
        return row["startTime"] < self.end and row["endTime"] > self.start


@dataclass(frozen=True)
class Snapshot:
    """When the exports were taken, and how to take them up; times as on the wire.

    What is new is valid from `at` on; in a first import from `since` on. Downtimes vanish only
    inside the `window`. `force`: also what looks like half an export.
    """

    at: str
    now: str
    since: str | None = None
    window: Window | None = None
    force: bool = False


def topology_changes(
    kind: str,
    message_class: MessageClass,
    told: Sequence[Row],
    stored: Sequence[Row],
    snapshot: Snapshot,
) -> Changes:
    """What a snapshot changes in serviceEndpoint or siteGroup.

    `told` are the rows of the export, without `validFrom`; `stored` the rows of the same kind, from
    all sources.

    Raises:
        BadInput: too much vanished and no `force`; or another snapshot as new is known.
    """
    at = snapshot.at
    keys = tuple(key for key in message_class.natural_key if key != "validFrom")
    details = _DETAILS[message_class.name]
    ours = [row for row in stored if source_of(row) == "gocdb"]
    known = {key_of(row, keys): row for row in ours if _is_open(row, at)}
    wanted = {key_of(row, keys): row for row in told}
    gone = [row for key, row in known.items() if key not in wanted]
    if not snapshot.force:
        _refuse_half_an_export(kind, len(gone), len(known))
    same = {
        key
        for key in wanted.keys() & known.keys()
        if key_of(wanted[key], details) == key_of(known[key], details)
    }
    changed = wanted.keys() & known.keys() - same
    start = snapshot.since if snapshot.since and not ours else at
    begun = [
        {**row, "validFrom": start, MESSAGE_ID: GOCDB + at}
        for key, row in wanted.items()
        if key not in same
    ]
    ended = [{**row, "validTo": at} for row in [*gone, *(known[key] for key in changed)]]
    if begun or ended:
        moments = (row[key] for row in ours for key in ("validFrom", "validTo") if key in row)
        _refuse_an_old_one(kind, moments, snapshot)
        _refuse_a_clash(begun, stored, message_class)
    return Changes(
        kind,
        message_class,
        rows=(*ended, *begun),
        read=len(wanted),
        new=len(begun) - len(changed),
        changed=len(changed),
        ended=len(gone),
        unchanged=len(same),
    )


def downtime_changes(told: Sequence[Row], stored: Sequence[Row], snapshot: Snapshot) -> Changes:
    """What a snapshot changes in the downtimes.

    `told` are the rows of the export, without `timestamp`; `stored` all rows, from all sources.
    What vanished inside the window is cancelled if it was to come, and ends with the snapshot if
    it was running; what was over stays.

    Raises:
        BadInput: the export is empty, would end some, and no `force`; or another snapshot
            as new is known.
    """
    at = snapshot.at
    keys = DOWNTIME.natural_key
    known = {key_of(row, keys): row for row in stored if "downtimeId" in row}
    wanted = {key_of(row, keys): row for row in told}
    same, kept, new, changed = 0, 0, [], []
    for key, row in wanted.items():
        before = known.get(key)
        if before is None:
            new.append(row)
        elif key_of(row, _DOWNTIME_DETAILS) == key_of(before, _DOWNTIME_DETAILS):
            same += 1
        elif _word_of_others(before, at):
            kept += 1
        else:
            changed.append(row)
    ours = [row for row in known.values() if source_of(row) == "gocdb"]
    gone = [row for row in ours if key_of(row, keys) not in wanted]
    ended = list(_ended(gone, at, snapshot.window)) if snapshot.window else []
    if ended and not wanted and not snapshot.force:
        raise BadInput(
            f"the export has no downtime at all, and {len(ended)} are known from GOCDB in the"
            " window: is it whole? --force ends them all the same; nothing was changed"
        )
    rows = [*new, *changed, *ended]
    if rows:
        _refuse_an_old_one("downtime", (row.get("timestamp", "") for row in ours), snapshot)
    return Changes(
        "downtime",
        DOWNTIME,
        rows=tuple({**row, "timestamp": at, MESSAGE_ID: GOCDB + at} for row in rows),
        read=len(wanted),
        new=len(new),
        changed=len(changed),
        ended=len(ended),
        unchanged=same,
        kept=kept,
    )


def _is_open(row: Row, at: str) -> bool:
    return "validTo" not in row or row["validTo"] > at


def _word_of_others(row: Row, at: str) -> bool:
    """By hand is meant to differ from GOCDB; of messages the newest announcement wins."""
    source = source_of(row)
    return source == "by hand" or (source == "message" and row.get("timestamp", "") >= at)


def _ended(gone: Iterable[Row], at: str, window: Window) -> Iterable[Row]:
    for row in gone:
        if window.touches(row) and row["endTime"] > max(at, row["startTime"]):
            yield {**row, "endTime": max(at, row["startTime"])}


def _refuse_half_an_export(kind: str, gone: int, known: int) -> None:
    if gone * 100 > known * MOST_VANISHED_PERCENT:
        raise BadInput(
            f"{kind}: {gone} of the {known} known from GOCDB are not in the export, more than"
            f" {MOST_VANISHED_PERCENT} %: is it whole? --force closes them all the same;"
            " nothing was changed"
        )


def _refuse_an_old_one(kind: str, moments: Iterable[str], snapshot: Snapshot) -> None:
    """Of two snapshots of one moment, or taken up in the wrong order, no history can be made.

    A `validTo` in the future is someone else's announcement, no snapshot.
    """
    newest = max((moment for moment in moments if moment <= snapshot.now), default="")
    if newest >= snapshot.at:
        raise BadInput(
            f"{kind}: this snapshot of {snapshot.at} differs from what is known since {newest}:"
            " a snapshot must be newer than the one before; nothing was changed"
        )


def _refuse_a_clash(
    begun: Iterable[Row], stored: Iterable[Row], message_class: MessageClass
) -> None:
    """Of two rows of one natural key the first stays: ours would be lost."""
    keys = message_class.natural_key
    taken = {key_of(row, keys): row for row in stored}
    for row in begun:
        other = taken.get(key_of(row, keys))
        if other is not None:
            raise BadInput(
                f"{message_class.name}: {' '.join(filter(None, key_of(row, keys)))} was announced"
                f" already (message {other.get(MESSAGE_ID, 'without id')}): choose another --at or"
                " --since; nothing was changed"
            )
