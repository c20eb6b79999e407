"""Locks the name of a consumer, so that only one process uses it at a time.

Artemis and RabbitMQ would silently share the messages between two processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sam_pipeline.consumer.errors import SourceTaken
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.program.command import CANNOT_CREATE
from sam_pipeline.schema.spool.disk import flock_at_once


def open_state_file(path: Path, flags: int = 0) -> int:
    """The descriptor of a file in the state directory, created if missing; raises SpoolError."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
    except OSError as error:
        advice = "STATE_DIRECTORY can name another directory"
        problem = f"state file {path}: {error.strerror}; {advice}"
        raise SpoolError(problem, CANNOT_CREATE) from error


@contextmanager
def name_locked(directory: Path, name: str) -> Iterator[None]:
    """Hold the lock of a name inside the block; it covers processes with this state directory.

    Raises:
        SourceTaken: another process holds it.
    """
    path = directory / f"consume-{name}.lock"
    file = open_state_file(path)
    try:
        if not flock_at_once(file):
            pid = os.pread(file, 20, 0).decode("ascii", "replace").strip()
            problem = f"another sam-consume named {name!r} is running (process {pid}, {path})"
            raise SourceTaken(f"{problem}: stop it, or configure another name")
        with suppress(OSError):  # a full disk: the lock holds without the number in it
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(file)
