"""The daemon at one moment, and the state file, in which other processes read it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sam_pipeline.consumer.core.silence import KINDS, Coverage, Gap, Silence
from sam_pipeline.consumer.core.state import CLOCKS_AGREE, Histogram
from sam_pipeline.consumer.errors import NoState
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.net.certificate import CertificateLife
from sam_pipeline.schema.program.command import to_json
from sam_pipeline.schema.program.replacing import replacing
from sam_pipeline.schema.times import format_time, parse_time

RUNNING, WAITING, DEGRADED = "running", "waiting", "degraded"
STOPPED, STUCK = "stopped", "stuck"
STATES = (RUNNING, WAITING, DEGRADED, STOPPED, STUCK)

HISTOGRAMS = ("lags", "batches", "commits", "sites")
"""Fields for /metrics only, which are not in the document."""

STUCK_AFTER = timedelta(seconds=120)
"""A turn of the main loop may last several lock timeouts of the database."""
SILENT_AFTER = timedelta(seconds=30)
"""The daemon writes its state every second, but on a busy machine some seconds late."""

MODE = 0o644
"""Readable by every account, since it contains no secrets."""


@dataclass(frozen=True)
class Health:
    """One of STATES, and the reason unless it is `running`."""

    state: str
    why: str = ""

    @property
    def healthy(self) -> bool:
        return self.state == RUNNING

    def __str__(self) -> str:
        return f"{self.state}: {self.why}" if self.why else self.state


@dataclass(frozen=True)
class BrokerState:
    """One configured broker."""

    broker: str
    messages: int
    held: int
    """Messages received from the broker and not yet acked."""
    missing: tuple[str, ...]
    """The addresses that do not deliver, each with the reason."""
    spool_elements: int | None
    """Elements of a spool that are not yet read; None for a network broker."""
    reconnects: int = 0
    """Sessions that replaced a lost one."""


@dataclass(frozen=True)
class Snapshot:
    """The daemon at one moment. Counts are those of the process since its start."""

    name: str
    """The name of the consumer, with the number of the instance if it is one of several."""
    version: str
    pid: int
    process_start: int
    """In ticks of the kernel. Together with the pid it identifies the process."""
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
    counts: Counts
    log_lines_dropped: int
    brokers: tuple[BrokerState, ...]
    open_dead_letters: Mapping[str, int] | None
    requests: Mapping[str, int]
    """The requests of HTTP doors by the status of their answers."""
    connections: int
    """The connections of HTTP doors."""
    schema: str = ""
    """The version of the schema of the database; empty if unknown, or of a relay."""
    received: Mapping[str, datetime] = field(default_factory=dict)
    """When records of a class last arrived."""
    coverage: Coverage | None = None
    """Of which times everything is known to have arrived; None without a daemon."""
    silent: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    """The number of silent classes, sites and probes, at the end of the coverage."""
    silences: tuple[Silence, ...] = ()
    """Some of them."""
    dead_letters_last_hour: int = 0
    dead_letters_by_minute: Mapping[str, int] = field(default_factory=dict)
    """The dead letters of the last hour, for the next process."""
    certificates: tuple[CertificateLife, ...] = ()
    unused_files: Mapping[str, str] = field(default_factory=dict)
    """Why the present content of files is not in use, by what it is for: the configuration, or
    credentials at a broker. What they had before is."""
    clock_offset_s: float = 0.0
    """How far the clock of the database is ahead of ours."""
    sites: Mapping[str, datetime | None] = field(default_factory=dict, compare=False)
    """The newest result of each site that should report."""
    lags: Histogram = field(default_factory=Histogram, compare=False)
    """Seconds from sending to commit."""
    batches: Histogram = field(default_factory=Histogram, compare=False)
    """Messages in a batch."""
    commits: Histogram = field(default_factory=Histogram, compare=False)
    """Seconds to store and commit a batch."""

    @property
    def backlog(self) -> int:
        """Messages on this host that are not yet loaded: received from brokers, or in spools.

        Messages that wait in network brokers are not counted.
        """
        return self.held_messages + self.spool_elements

    def health(self, now: datetime, alive: bool = True) -> Health:
        """The state of the daemon at `now`; `alive`: whether its process exists."""
        written = format_time(self.written_at)
        missing = [text for broker in self.brokers for text in broker.missing]
        if self.ended_at:
            reason = f"({self.ended_because}) " if self.ended_because else ""
            return Health(STOPPED, f"ended {reason}at {format_time(self.ended_at)}")
        if not alive:
            return Health(STOPPED, f"process {self.pid} does not exist, last report at {written}")
        if now - self.written_at > SILENT_AFTER:
            return Health(STUCK, f"process {self.pid} exists, but last report at {written}")
        if now - self.turned_at > STUCK_AFTER:
            return Health(STUCK, f"no turn of the main loop since {format_time(self.turned_at)}")
        if self.waiting_since:
            since = format_time(self.waiting_since)
            return Health(WAITING, f"unable to commit since {since}: {self.waiting_for}")
        if missing:
            return Health(DEGRADED, f"not connected: {', '.join(missing)}")
        if self.unused_files:
            problems = (f"{name}: {problem}" for name, problem in self.unused_files.items())
            return Health(DEGRADED, f"not in use: {'; '.join(problems)}")
        if abs(self.clock_offset_s) > CLOCKS_AGREE.total_seconds():
            text = "the clocks of this host and of the database differ by"
            return Health(DEGRADED, f"{text} {abs(self.clock_offset_s):.0f} s")
        return Health(RUNNING)


def to_document(snapshot: Snapshot) -> dict[str, object]:
    """The snapshot as a JSON document, with each of the counts as a member of it."""
    document = asdict(replace(snapshot, counts=Counts()))
    del document["counts"]
    document["certificates"] = [life._asdict() for life in snapshot.certificates]
    document |= snapshot.counts.document()
    return {name: value for name, value in document.items() if name not in HISTOGRAMS}


def from_document(document: Mapping[str, Any]) -> Snapshot:
    """The inverse of `to_document`, after a round trip through JSON.

    Raises:
        KeyError, TypeError, ValueError: it is not a snapshot of this version.
    """
    kinds = Snapshot.__annotations__
    times = [name for name, kind in kinds.items() if kind in ("datetime", "datetime | None")]
    moments = {name: document[name] and parse_time(document[name]) for name in times}
    brokers = tuple(
        BrokerState(**{**broker, "missing": tuple(broker["missing"])})
        for broker in document["brokers"]
    )
    coverage = document["coverage"]
    counts = Counts.from_document(document)
    known = {
        "counts": counts,
        "brokers": brokers,
        "received": {name: parse_time(moment) for name, moment in document["received"].items()},
        "coverage": coverage
        and Coverage(
            parse_time(coverage["until"]),
            tuple(Gap(*map(parse_time, gap)) for gap in coverage["gaps"]),
        ),
        "silences": tuple(
            Silence(**{**silence, "last": silence["last"] and parse_time(silence["last"])})
            for silence in document["silences"]
        ),
        "certificates": tuple(
            CertificateLife(life["file"], parse_time(life["begin"]), parse_time(life["end"]))
            for life in document["certificates"]
        ),
    }
    plain = {name: value for name, value in document.items() if name not in counts.document()}
    return Snapshot(**{**plain, **moments, **known})


def state_path(directory: Path, name: str) -> Path:
    """The path of the state file of a process."""
    return directory / f"consume-{name}.state.json"


def write_state(directory: Path, snapshot: Snapshot) -> None:
    """Replace the state file, without fsync: it is out of date a second later; raises OSError."""
    with replacing(state_path(directory, snapshot.name), MODE, directory_mode=0o755) as file:
        file.write(to_json(to_document(snapshot)).encode())


def read_state(directories: Sequence[Path], name: str) -> Snapshot:
    """The last snapshot of the daemon; of several, that of a live process, or else the newest.

    Raises:
        NoState: no directory has a readable state file of that name.
    """
    snapshots, problems = [], []
    for path in (state_path(directory, name) for directory in directories):
        try:
            snapshots.append(from_document(json.loads(path.read_text(encoding="utf-8"))))
        except FileNotFoundError:
            problems.append(f"{path}: no such file")
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
        except (ValueError, KeyError, TypeError, AttributeError):
            problems.append(f"{path}: not written by this version")
    if not snapshots:
        raise NoState(f"no state of a daemon named {name!r} ({'; '.join(problems)})")
    return max(snapshots, key=lambda snapshot: (is_alive(snapshot), snapshot.written_at))


def is_alive(snapshot: Snapshot) -> bool:
    """Whether the process that wrote the snapshot is alive."""
    try:
        os.kill(snapshot.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it exists, but belongs to another user
        pass
    start = process_start(snapshot.pid)
    return start is None or start == snapshot.process_start


def process_start(pid: int) -> int | None:
    """The start of a process in ticks of the kernel; -1 if it is dead, None if unknown."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name of the program may contain any character
    return -1 if fields[0] in "ZX" else int(fields[19])
