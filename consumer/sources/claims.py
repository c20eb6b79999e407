"""The list, on disk, of the spool elements that this consumer has locked.

A lock in a directory queue does not name its owner and becomes stale only after ten minutes. With
this list a consumer that was killed releases its own locks at once when it is restarted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from sam_pipeline.consumer.errors import SourceTaken
from sam_pipeline.consumer.process.hint_file import HintFile
from sam_pipeline.schema.spool.disk import flock_at_once


class Claims:
    """An append-only file that is emptied whenever nothing is claimed."""

    def __init__(self, directory: Path, consumer: str, spool: str) -> None:
        digest = hashlib.sha256(f"{consumer}\0{spool}".encode()).hexdigest()[:16]
        self._file = HintFile(directory / f"consume-{digest}.claims")
        if not flock_at_once(self._file.descriptor):
            self._file.close()
            raise SourceTaken(f"another sam-consume named {consumer!r} reads {spool}")
        self.any = True
        """Whether there may be claims; an earlier process may have left some."""

    def left_behind(self) -> set[str]:
        """The elements that an earlier process claimed and may still have locked."""
        names: set[str] = set()
        for line in self._file.read().decode("ascii", "replace").splitlines():
            if line.startswith("-"):
                names.discard(line[1:])
            else:
                names.add(line)
        return names

    def add(self, name: str) -> None:
        """Claim an element before it is locked, so that a kill leaves no lock without a claim."""
        self.any = True
        self._file.append(f"{name}\n".encode("ascii"))

    def withdraw(self, name: str) -> None:
        """Another reader has the lock."""
        self._file.append(f"-{name}\n".encode("ascii"))

    def keep(self, names: Iterable[str]) -> None:
        """Forget the history: only these elements are claimed."""
        self._file.replace("".join(f"{name}\n" for name in names).encode("ascii"))

    def clear(self) -> None:
        self.any = False
        self._file.replace(b"")

    def close(self) -> None:
        self._file.close()
