"""What the daemon says of itself to others: numbers, and what they amount to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from sam_pipeline.schema.times import format_time, parse_time

RUNNING, WAITING, DEGRADED = "running", "waiting", "degraded"
STOPPED, STUCK = "stopped", "stuck"
STATES = (RUNNING, WAITING, DEGRADED, STOPPED, STUCK)

TIMES = (
    *("since", "written_at", "turned_at", "ended_at"),
    *("waiting_since", "last_commit", "behind_since"),
)

STUCK_AFTER = timedelta(seconds=120)
"""A turn of the main loop may take as long as a lock timeout of the database, some times over."""
SILENT_AFTER = timedelta(seconds=30)
"""The daemon writes every second; on a busy machine some seconds late."""


@dataclass(frozen=True)
class BrokerState:
    """One configured broker; `missing` has a line for each part that does not deliver."""

    broker: str
    messages: int
    held: int
    """Taken, and not acked yet."""
    missing: tuple[str, ...]
    spool_elements: int | None
    """Of a spool: how many wait there untaken; None for a network broker."""


@dataclass(frozen=True)
class Snapshot:
    """The state file of a daemon, as an object; counts are of the process since its start."""

    name: str
    """Of the consumer, and the number of one that shares it."""
    version: str
    pid: int
    process_start: int
    """In the kernel's ticks: with the pid it names the process for ever."""
    since: datetime
    written_at: datetime
    turned_at: datetime
    ended_at: datetime | None
    ended_because: str
    waiting_since: datetime | None
    waiting_for: str
    last_commit: datetime | None
    behind_since: datetime | None
    lag_s: float | None
    held_messages: int
    held_bytes: int
    spool_elements: int
    messages_per_s: float
    rows_per_s: float
    messages: int
    rows: int
    checks: int
    damaged_elements: int
    log_lines_dropped: int
    brokers: tuple[BrokerState, ...]
    rows_by_class: Mapping[str, int]
    dead_letters: Mapping[str, int]
    open_dead_letters: Mapping[str, int] | None
    ignored_keys: Mapping[str, int]

    @property
    def backlog(self) -> int:
        """Messages that are here and not yet rows: taken from brokers, or waiting in spools.

        What waits at a network broker only that broker knows.
        """
        return self.held_messages + self.spool_elements


@dataclass(frozen=True)
class Verdict:
    """One of STATES, and why it is no better."""

    state: str
    why: str = ""

    @property
    def healthy(self) -> bool:
        return self.state == RUNNING

    def __str__(self) -> str:
        return f"{self.state}: {self.why}" if self.why else self.state


def judge(snapshot: Snapshot, now: datetime, alive: bool = True) -> Verdict:
    """How the daemon that said this does, seen at `now`."""
    if snapshot.ended_at:
        why = f"({snapshot.ended_because}) " if snapshot.ended_because else ""
        return Verdict(STOPPED, f"ended {why}at {format_time(snapshot.ended_at)}")
    if not alive:
        said = format_time(snapshot.written_at)
        return Verdict(STOPPED, f"process {snapshot.pid} is gone, last heard of at {said}")
    if now - snapshot.written_at > SILENT_AFTER:
        said = format_time(snapshot.written_at)
        return Verdict(
            STUCK, f"process {snapshot.pid} is there, and has written nothing since {said}"
        )
    if now - snapshot.turned_at > STUCK_AFTER:
        return Verdict(STUCK, f"no turn of the main loop since {format_time(snapshot.turned_at)}")
    if snapshot.waiting_since:
        since = format_time(snapshot.waiting_since)
        return Verdict(WAITING, f"nothing can be stored since {since}: {snapshot.waiting_for}")
    missing = [text for broker in snapshot.brokers for text in broker.missing]
    return (
        Verdict(DEGRADED, f"not connected: {', '.join(missing)}") if missing else Verdict(RUNNING)
    )


def to_document(snapshot: Snapshot) -> dict[str, object]:
    return asdict(snapshot)


def from_document(document: Mapping[str, Any]) -> Snapshot:
    """What `to_document` gave, after a way through JSON.

    Raises:
        KeyError, TypeError, ValueError: another version wrote it, or it is none.
    """
    times = {name: _moment(document[name]) for name in TIMES}
    brokers = tuple(
        BrokerState(**{**each, "missing": tuple(each["missing"])}) for each in document["brokers"]
    )
    return Snapshot(**{**document, **times, "brokers": brokers})


def _moment(text: str | None) -> datetime | None:
    return None if text is None else parse_time(text)
