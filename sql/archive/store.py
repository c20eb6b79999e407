"""Where the files of the archive are: a directory, or a bucket of an S3-compatible server.

A name is a path relative to the root, with slashes. Files never change: each is put under its final
name once, when it is complete.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from sam_pipeline.schema.spool.disk import sync_directory, with_advice
from sam_pipeline.sql.archive.data_source import DataSource
from sam_pipeline.sql.errors import (
    ArchiveAway,
    ArchiveConflict,
    ArchiveError,
    ArchiveFull,
    ArchiveRefused,
    NotArchived,
)

_WORK = ".work"
_REFUSED = (errno.EACCES, errno.EPERM)
_AWAY = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT)


class Store(Protocol):
    """Operations on whole files; they raise ArchiveError."""

    url: str

    def names(self, prefix: str = "") -> list[str]:
        """The names that begin with `prefix`, a folder that ends in a slash, sorted."""

    def read(self, name: str) -> bytes:
        """The content of a small file; raises NotArchived if there is none."""

    def put(self, file: Path, name: str) -> None:
        """Store a finished file of the workspace, and flush it; the file may be gone after that.

        Raises:
            ArchiveConflict: there is a file of that name already.
        """

    def create(self, name: str, content: bytes) -> None:
        """Store a small file, and flush it; nobody ever sees part of it. Raises like `put`."""

    def delete(self, name: str) -> None:
        """Delete a file; it may be gone already."""

    def workspace(self) -> AbstractContextManager[Path]:
        """A directory for files until they are put; it is deleted at the end of the block."""

    def source(self) -> DataSource:
        """How data files are opened."""


OpenArchive = Callable[[], Store | None]
"""Opens the archive if a day is wanted from it; returns None if none is configured."""


def no_archive() -> None:
    return None


class LocalStore:
    """A directory, which must exist: a disk that is not mounted is not an empty archive."""

    def __init__(self, root: Path) -> None:
        self.url = f"file://{root}"
        self._root = root

    def names(self, prefix: str = "") -> list[str]:
        folder = self._root / prefix
        with translated(str(folder)):
            os.stat(self._root)
            paths = [Path(where, name) for where, _, names in os.walk(folder) for name in names]
        return sorted(path.relative_to(self._root).as_posix() for path in paths)

    def read(self, name: str) -> bytes:
        path = self._root / name
        try:
            return path.read_bytes()
        except FileNotFoundError as error:
            raise NotArchived(f"{path}: no such file") from error
        except OSError as error:
            raise of_disk(error, str(path)) from error

    def put(self, file: Path, name: str) -> None:
        target = self._root / name
        with translated(str(target)):
            self._make_folder(target.parent)
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            # Unlike a rename, it fails if there is a file already.
            os.link(file, target)
            os.unlink(file)
            sync_directory(str(target.parent))

    def create(self, name: str, content: bytes) -> None:
        with self.workspace() as work:
            with translated(str(work)):
                (work / "new").write_bytes(content)
            self.put(work / "new", name)

    def delete(self, name: str) -> None:
        path = self._root / name
        with translated(str(path)), suppress(FileNotFoundError):
            path.unlink()
        with suppress(OSError):  # not empty
            for folder in path.parents:
                if folder == self._root:
                    break
                folder.rmdir()

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        # On the same file system, so that a finished file is put without being copied.
        with translated(str(self._root)):
            self._make_folder(self._root / _WORK)
            work = Path(tempfile.mkdtemp(dir=self._root / _WORK))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def source(self) -> DataSource:
        return DataSource(str(self._root))

    def _make_folder(self, folder: Path) -> None:
        """Make the folders between the root and this one, so that they survive a power cut."""
        os.stat(self._root)
        if not folder.is_dir():
            if folder.parent != self._root:
                self._make_folder(folder.parent)
            with suppress(FileExistsError):
                folder.mkdir()
            sync_directory(str(folder.parent))


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Raise an OSError of the block as an ArchiveError that names the path."""
    try:
        yield
    except OSError as error:
        raise of_disk(error, path) from error


def of_disk(error: OSError, path: str) -> ArchiveError:
    """Translate an error of a file in the archive."""
    text = f"{path}: {with_advice(error)}"
    if error.errno == errno.EEXIST:
        return ArchiveConflict(text)
    if error.errno in _REFUSED:
        return ArchiveRefused(text)
    if error.errno in _AWAY:
        return ArchiveAway(f"{text}: create the directory, or mount its disk")
    return ArchiveFull(text)
