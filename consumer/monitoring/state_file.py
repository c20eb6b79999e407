"""The file in which a running daemon says how it does, once a second; others read it."""

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
"""Whoever watches may read it: there is no secret in it."""


class StateFile:
    """The file of one daemon, replaced at each writing."""

    def __init__(self, directory: Path, name: str) -> None:
        self.path = directory / file_name(name)

    def write(self, snapshot: Snapshot) -> None:
        """Not fsynced: it is news, and old a second later.

        Raises:
            OSError
        """
        with replacing(self.path, MODE, directory_mode=0o755) as file:
            file.write(to_json(to_document(snapshot)).encode())


def file_name(name: str) -> str:
    return f"consume-{name}.state.json"


def read_state(directories: Sequence[Path], name: str) -> Snapshot:
    """What the daemon of that name said last; of several, the one that lives, or else the newest.

    Raises:
        NoState: nobody of that name has said anything there, or nothing that we understand.
    """
    paths = [directory / file_name(name) for directory in directories]
    found, problems = [], []
    for path in paths:
        try:
            found.append(from_document(json.loads(path.read_text(encoding="utf-8"))))
        except FileNotFoundError:
            problems.append(f"{path}: no such file")
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
        except (ValueError, KeyError, TypeError, AttributeError):
            problems.append(f"{path}: not written by this version")
    if not found:
        words = f"no daemon {name!r} has told its state"
        raise NoState(f"{words} ({'; '.join(problems)})")
    return max(found, key=lambda each: (is_alive(each), each.written_at))


def is_alive(snapshot: Snapshot) -> bool:
    """Whether the very process that wrote it lives."""
    try:
        os.kill(snapshot.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's, but there
        pass
    start = process_start(snapshot.pid)
    return start is None or start == snapshot.process_start


def process_start(pid: int) -> int | None:
    """When a process began, in the kernel's ticks; -1 for a dead one, None if it is not told."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name of the program may hold anything
    return -1 if fields[0] in "ZX" else int(fields[19])
