"""The list, on disk, of the spool elements that this consumer has locked.

A lock in a directory queue does not name its owner and becomes stale only after ten minutes. With
this list a consumer that was killed releases its own locks at once when it is restarted.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path

from sam_pipeline.consumer.errors import SourceTaken
from sam_pipeline.consumer.process.name_lock import open_state_file


class Claims:
    """An append-only file that is emptied whenever nothing is claimed.

    It is not fsynced, since it need only survive the process. After a power failure the locks
    become stale.
    """

    def __init__(self, directory: Path, consumer: str, spool: str) -> None:
        digest = hashlib.sha256(f"{consumer}\0{spool}".encode()).hexdigest()[:16]
        self.path = directory / f"consume-{digest}.claims"
        self._file = open_state_file(self.path, os.O_APPEND)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            problem = f"another sam-consume named {consumer!r} reads {spool}"
            raise SourceTaken(problem) from None

    def left_behind(self) -> set[str]:
        """The elements that an earlier process claimed and may still have locked."""
        names: set[str] = set()
        for line in self.path.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("-"):
                names.discard(line[1:])
            else:
                names.add(line)
        return names

    def add(self, name: str) -> None:
        """Claim an element before it is locked, so that a kill leaves no lock without a claim."""
        os.write(self._file, f"{name}\n".encode("ascii"))

    def withdraw(self, name: str) -> None:
        """Another reader has the lock."""
        os.write(self._file, f"-{name}\n".encode("ascii"))

    def clear(self) -> None:
        os.ftruncate(self._file, 0)

    def close(self) -> None:
        os.close(self._file)
