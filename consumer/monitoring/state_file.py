"""The state file, which a running daemon replaces every second for other processes to read."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from sam_pipeline.consumer.errors import NoState
from sam_pipeline.consumer.monitoring.snapshot import Snapshot, from_document, to_document
from sam_pipeline.schema.program.command import to_json
from sam_pipeline.schema.program.replacing import replacing

MODE = 0o644
"""Readable by every account, since it contains no secrets."""


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
