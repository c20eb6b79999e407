"""A consumer's name is held by one process at a time: Artemis and RabbitMQ would let two share the
messages silently."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sam_pipeline.consumer.errors import SourceTaken
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.program.command import CANNOT_CREATE
from sam_pipeline.schema.spool.disk import flock_at_once


@contextmanager
def name_held(directory: Path, who: str) -> Iterator[None]:
    """Nobody else on this machine (who uses the same state directory) consumes as `who` meanwhile.

    Raises:
        SourceTaken: somebody does.
    """
    path = directory / f"consume-{who}.lock"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SpoolError(f"state file {path}: {error.strerror}", CANNOT_CREATE) from error
    try:
        if not flock_at_once(file):
            pid = os.pread(file, 20, 0).decode("ascii", "replace").strip()
            words = f"another sam-consume of the name {who!r} runs here (process {pid}, {path})"
            raise SourceTaken(f"{words}: stop it, or give this one another name")
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(file)
