"""The directory queue on disk (DQS layout): one element, one file, safe among many processes.

    QUEUE/DDDDDDDD/EEEEEEEEEEEEEE       an element
    QUEUE/DDDDDDDD/EEEEEEEEEEEEEE.tmp   being written
    QUEUE/DDDDDDDD/EEEEEEEEEEEEEE.lck   the lock of an element: a hard link to it, or a file
    QUEUE.bad/                          quarantine: unreadable elements, each with the reason

Other implementations read and write the same directory. Unlike them we fsync the file before it
gets its name, and the directory afterwards: once `add` returns, the message survives a power cut.

Any user with write permission in QUEUE could plant links there. None is followed: directories are
opened with O_NOFOLLOW, and files relative to the descriptor of their directory.

A queue belongs to one account (directories 0700, files 0600), or the accounts of a group share it
(2770 and 0640): each of them writes, locks, removes, purges and sets aside.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Optional

from sam_pipeline.schema.errors import DamagedElement, SpoolError
from sam_pipeline.schema.log import lazy_logger
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.directory import (
    ASIDE,
    DIRECTORY,
    ELEMENT,
    FOREIGN,
    GROUP_FILE_MODE,
    LOCK,
    ROLES,
    TEMPORARY,
    Entry,
    content_of,
    directories_in,
    directory_of_now,
    is_hex,
    names_in,
    open_directory,
    open_element,
    pieces_of,
    read_all,
    role_of,
    status_of,
    take_lock,
    touch_lock,
    unlink_lock,
    write_all,
    write_elements,
)
from sam_pipeline.schema.spool.disk import (
    GROUP_MODE,
    OWNER_MODE,
    flock_at_once,
    is_shared,
    make_directory,
    refuse_link,
    refuse_unsafe,
    spool_error,
)
from sam_pipeline.schema.spool.element import parse, serialise

if TYPE_CHECKING:
    import threading

POLL_S = 0.2
BATCH = 50
"""Files that `store_all` opens at a time: their fsyncs share a commit of the journal."""
MAX_REASON_BYTES = 10_000
_REASON = ".reason"
_TRIES = 10
_DENIED_TRIES = 3

ChangeTimes = Mapping[str, int]
"""The time of the last change by directory (ns); that of the queue itself has no name."""
Skipped = Callable[[str, OSError], object]
"""Called with the name and the error of each directory of a queue that can't be listed."""

logger = lazy_logger(__name__)


class DirectoryQueue:
    """One queue, made by the first `add`. An element's name is `DDDDDDDD/EEEEEEEEEEEEEE`.

    Every method raises SpoolError if the file system refuses, or if QUEUE is unsafe.
    """

    def __init__(
        self,
        path: os.PathLike[str] | str,
        shared: bool = False,
        skipped: Optional[Skipped] = None,
    ) -> None:
        """`shared`: the accounts of a group share it; `skipped` (default: a warning)."""
        self.path = Path(path)
        self._root = os.fspath(self.path)
        self._quarantine = f"{self._root}.bad"
        self._shared = shared
        self._skipped = skipped or self._log_skipped

    def add(self, message: Message) -> str:
        """Store the message durably and return its name."""
        return self.store(serialise(message))

    def store(self, content: bytes) -> str:
        """Store a serialised message durably and return its name."""
        with self._translated(f"write {len(content)} bytes to"):
            return self._store([content])[0]

    def store_all(self, contents: Sequence[bytes]) -> Iterator[str]:
        """Yield each name once it is durable; faster than storing one by one."""
        for start in range(0, len(contents), BATCH):
            batch = contents[start : start + BATCH]
            try:
                yield from self._store(batch)
            except OSError:  # none of the batch is stored: perhaps some can be
                yield from map(self.store, batch)

    def names(self) -> Iterator[str]:
        """The names of all elements, locked or not, oldest first."""
        with self._translated("read"):
            for directory in self._directories():
                for name in self._names_in(directory, (ELEMENT,)):
                    yield f"{directory}/{name}"

    def change_times(self) -> ChangeTimes:
        """When names were last added to the directories of the queue, or removed."""
        times = {}
        with suppress(OSError):
            times[""] = os.stat(self._root).st_mtime_ns
            with os.scandir(self._root) as entries:
                for entry in entries:
                    times[entry.name] = entry.stat(follow_symlinks=False).st_mtime_ns
        return times

    def wait_for_change(self, before: ChangeTimes, stop: threading.Event, timeout_s: float) -> None:
        """Wait until something was added or removed since `before`, or for `stop`."""
        ends_at = time.monotonic() + timeout_s
        while not stop.wait(POLL_S) and time.monotonic() < ends_at:
            if self.change_times() != before:
                break

    def count(self) -> int:
        """The number of elements, locked or not."""
        return sum(1 for _ in self.names())

    def has_elements(self) -> bool:
        """Whether there is any element, locked or not; does not list them all."""
        swept_or_foreign = suppress(FileNotFoundError, NotADirectoryError)
        with self._translated("read"):
            for directory in self._directories():
                try:
                    with swept_or_foreign, self._opened(directory) as (at, _), os.scandir(at) as it:
                        if any(role_of(entry.name) == ELEMENT for entry in it):
                            return True
                except PermissionError as error:
                    self._skipped(directory, error)
        return False

    def walk(self, roles: Collection[str] = ROLES) -> Iterator[Entry]:
        """The entries with these roles, oldest first; links are not followed."""
        with self._translated("read"):
            if DIRECTORY in roles or FOREIGN in roles:
                with suppress(FileNotFoundError):
                    refuse_link(self._root)
                    for name in sorted(os.listdir(self._root)):
                        status = os.lstat(f"{self._root}/{name}")
                        ours = is_hex(name, 8) and stat.S_ISDIR(status.st_mode)
                        role = DIRECTORY if ours else FOREIGN
                        if role in roles:
                            yield Entry(name, role, status)
            for directory in self._directories():
                yield from self._walk(directory, roles)

    def lock(self, name: str) -> bool:
        """Lock the element for LOCK_AGE_S seconds; False if another process has locked it."""
        with self._translated("lock in"), suppress(FileNotFoundError), self._opened(name) as at:
            return take_lock(*at)
        return False

    def refresh(self, name: str) -> None:
        """Keep our lock from expiring."""
        with self._translated("lock in"), suppress(FileNotFoundError), self._opened(name) as at:
            touch_lock(*at)

    def unlock(self, name: str) -> None:
        with self._translated("unlock in"), suppress(FileNotFoundError), self._opened(name) as at:
            unlink_lock(*at)

    def read(self, name: str) -> Message:
        """The message of an element; raises DamagedElement if its content is not one."""
        with self.opened_for_reading(name) as at:
            return parse(content_of(*at))

    @contextmanager
    def opened_for_reading(self, name: str) -> Iterator[tuple[int, str]]:
        """The descriptor of the element's directory, and the element's file name in it.

        A ValueError about the content becomes a DamagedElement.
        """
        with self._translated("read"), self._opened(name) as at:
            try:
                yield at
            except ValueError as error:
                raise DamagedElement(f"element {name} is not a message: {error}") from error

    def size(self, name: str) -> int:
        """The size of the element in bytes; 0 if it no longer exists."""
        with self._translated("read"), suppress(FileNotFoundError), self._opened(name) as at:
            return status_of(*at).st_size
        return 0

    def remove(self, name: str) -> None:
        """Remove a locked element, then its lock: a crash in between leaves only a stale lock."""
        with self._translated("remove from"), suppress(FileNotFoundError), self._opened(name) as at:
            directory, element = at
            with suppress(FileNotFoundError):
                os.unlink(element, dir_fd=directory)
            unlink_lock(directory, element)

    def quarantine(self, name: str, reason: str) -> Path:
        """Move a locked element aside, with the reason in a file beside it.

        If a group shares the queue, it shares the quarantine too.
        """
        target = Path(self._quarantine, name.replace("/", "."))
        with _translated(f"cannot move a damaged element to {self._quarantine}"):
            shared = self._shared or is_shared(os.lstat(self._root))
            make_directory(self._quarantine, GROUP_MODE if shared else OWNER_MODE)
            refuse_unsafe(self._quarantine, shared)
            _write_new(f"{target}{_REASON}", [f"{reason}\n".encode()], shared)
            # Another process may have moved it already.
            with suppress(FileNotFoundError), self._opened(name) as (directory, element):
                try:
                    os.rename(element, target, src_dir_fd=directory)
                except OSError as error:
                    crosses_devices = error.errno == errno.EXDEV
                    if not (
                        crosses_devices and stat.S_ISREG(status_of(directory, element).st_mode)
                    ):
                        raise
                    descriptor, _ = open_element(directory, element)
                    try:
                        _write_new(str(target), pieces_of(descriptor), shared)
                    finally:
                        os.close(descriptor)
                    os.unlink(element, dir_fd=directory)
                unlink_lock(directory, element)
        return target

    def aside(self) -> Iterator[Entry]:
        """The elements in the quarantine, `DDDDDDDD.EEEEEEEEEEEEEE`, oldest first."""
        with suppress(FileNotFoundError), self._opened_quarantine("read") as quarantine:
            for name in sorted(os.listdir(quarantine)):
                if is_hex(name[:8], 8) and name[8] == "." and is_hex(name[9:], 14):
                    with suppress(FileNotFoundError):
                        yield Entry(name, ASIDE, status_of(quarantine, name))

    def reason_aside(self, name: str) -> str:
        """The reason why an element is in the quarantine; empty if it is not known."""
        with suppress(SpoolError, ValueError), self._opened_quarantine("read") as quarantine:
            descriptor, status = open_element(quarantine, f"{name}{_REASON}")
            try:
                return read_all(descriptor, min(status.st_size, MAX_REASON_BYTES)).decode().strip()
            finally:
                os.close(descriptor)
        return ""

    def remove_aside(self, name: str) -> None:
        """Remove an element from the quarantine, with its reason."""
        with self._opened_quarantine("remove from") as quarantine:
            for file in (name, f"{name}{_REASON}"):
                with suppress(FileNotFoundError):
                    os.unlink(file, dir_fd=quarantine)

    def purge(self) -> None:
        """Remove leftovers of killed processes: old .tmp and .lck files, and empty directories."""
        leftovers = (LOCK, TEMPORARY)
        with self._translated("purge"):
            directories = self._directories()
            for directory in directories:
                if not self._names_in(directory, leftovers):
                    continue
                with suppress(FileNotFoundError), self._opened(directory) as (descriptor, _):
                    # One process at a time: nobody may renew a lock between check and removal.
                    if not flock_at_once(descriptor):
                        continue
                    for entry in self._walk(directory, leftovers):
                        if entry.expired:
                            with suppress(FileNotFoundError, IsADirectoryError):
                                os.unlink(entry.name.partition("/")[2], dir_fd=descriptor)
            for directory in directories[:-1]:
                with suppress(OSError):  # not empty, or removed by another process
                    os.rmdir(f"{self._root}/{directory}")

    def _store(self, contents: Sequence[bytes]) -> list[str]:
        """Store all of them durably, or none; return their names."""
        denied = 0
        for _ in range(_TRIES):
            directory = directory_of_now(denied)
            # No such directory yet, or it was purged; or another host made the same element name.
            with suppress(FileNotFoundError, FileExistsError):
                refuse_unsafe(self._root, self._shared)
                try:
                    with self._opened(directory) as (descriptor, _):
                        names = write_elements(descriptor, contents, self._shared)
                except PermissionError:  # perhaps root made it: use that of the next minute
                    denied += 1
                    if denied == _DENIED_TRIES:
                        raise
                    continue
                return [f"{directory}/{name}" for name in names]
            mode = GROUP_MODE if self._shared else OWNER_MODE
            make_directory(self._root, mode)
            make_directory(f"{self._root}/{directory}", mode)
        raise FileNotFoundError(errno.ENOENT, "other processes keep removing its directories")

    @contextmanager
    def _opened(self, name: str) -> Iterator[tuple[int, str]]:
        """The descriptor of the element's directory, and the element's file name in it."""
        directory, _, element = name.partition("/")
        descriptor = open_directory(f"{self._root}/{directory}")
        try:
            yield descriptor, element
        finally:
            os.close(descriptor)

    @contextmanager
    def _opened_quarantine(self, action: str) -> Iterator[int]:
        """The descriptor of the quarantine; raises FileNotFoundError if there is none."""
        if not os.path.lexists(self._quarantine):
            raise FileNotFoundError(errno.ENOENT, "no quarantine", self._quarantine)
        with _translated(f"cannot {action} {self._quarantine}"):
            descriptor = open_directory(self._quarantine)
            try:
                yield descriptor
            finally:
                os.close(descriptor)

    def _directories(self) -> list[str]:
        try:
            return directories_in(self._root)
        except FileNotFoundError:
            return []

    def _names_in(self, directory: str, roles: Collection[str]) -> list[str]:
        try:
            return names_in(f"{self._root}/{directory}", roles)
        except (FileNotFoundError, NotADirectoryError):  # purged, or a link
            return []
        except PermissionError as error:  # it belongs to another user
            self._skipped(directory, error)
            return []

    def _walk(self, directory: str, roles: Collection[str]) -> Iterator[Entry]:
        names = self._names_in(directory, roles)
        if not names:
            return
        with suppress(FileNotFoundError), self._opened(directory) as (descriptor, _):
            for name in names:
                try:
                    status = status_of(descriptor, name)
                except FileNotFoundError:
                    continue
                except PermissionError as error:  # names can be listed, but nothing more
                    self._skipped(directory, error)
                    return
                yield Entry(f"{directory}/{name}", role_of(name), status)

    def _log_skipped(self, directory: str, error: OSError) -> None:
        logger.warning("%s/%s is skipped: %s", self._root, directory, error.strerror)

    def _translated(self, action: str) -> AbstractContextManager[None]:
        return _translated(f"cannot {action} the spool {self._root}")


def written_at(name: str) -> datetime:
    """The time (UTC) at which an element was written, from its name."""
    return datetime.fromtimestamp(int(name[9:17], 16), timezone.utc)


@contextmanager
def _translated(failure: str) -> Iterator[None]:
    """Turn an OSError of the block into a SpoolError."""
    try:
        yield
    except OSError as error:
        raise spool_error(failure, error) from error


def _write_new(path: str, pieces: Iterable[bytes], shared: bool) -> None:
    with suppress(FileNotFoundError):  # of an earlier attempt, perhaps by another account
        os.unlink(path)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        if shared:
            os.fchmod(file, GROUP_FILE_MODE)
        for piece in pieces:
            write_all(file, piece)
    finally:
        os.close(file)
