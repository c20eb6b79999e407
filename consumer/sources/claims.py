"""Which elements of a spool this consumer has locked, on disk.

A lock in a directory queue does not say whose it is, and counts as stale only after ten minutes.
With this list the next life of a killed consumer takes its own locks back at once.
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

    Not fsynced: it need only survive the process. After a power cut the locks age.
    """

    def __init__(self, directory: Path, consumer: str, spool: str) -> None:
        digest = hashlib.sha256(f"{consumer}\0{spool}".encode()).hexdigest()[:16]
        self.path = directory / f"consume-{digest}.claims"
        self._file = open_state_file(self.path, os.O_APPEND)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            problem = f"another sam-consume of the name {consumer!r} reads {spool}"
            raise SourceTaken(problem) from None

    def left_behind(self) -> set[str]:
        """What a former life claimed and may have locked still."""
        names: set[str] = set()
        for line in self.path.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("-"):
                names.discard(line[1:])
            else:
                names.add(line)
        return names

    def add(self, name: str) -> None:
        """Before the lock is taken: a kill in between must not leave a lock of nobody."""
        os.write(self._file, f"{name}\n".encode("ascii"))

    def withdraw(self, name: str) -> None:
        """The lock was somebody else's."""
        os.write(self._file, f"-{name}\n".encode("ascii"))

    def clear(self) -> None:
        os.ftruncate(self._file, 0)

    def close(self) -> None:
        os.close(self._file)
