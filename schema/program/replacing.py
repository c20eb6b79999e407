"""Atomic replacement of a file: written under another name, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path, mode: int = 0o666, directory_mode: int = 0o777) -> Iterator[BinaryIO]:
    """A temporary file to write, renamed to `path` at the end of the block.

    After an error the old file is still at `path`. Missing directories are made; the umask applies
    to both modes. Nothing is fsynced: after a power cut the file may be the old one.
    """
    # A leading dot hides it from readers of the directory; each process has a name of its own.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    path.parent.mkdir(mode=directory_mode, parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        temporary.unlink()  # left by a killed process with our process id
    try:
        # O_EXCL does not follow a planted link.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(descriptor, "wb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
