"""One directory of a queue, open by its descriptor: names, writing, locking, reading.

Every function raises OSError if the file system refuses.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from sam_pipeline.schema.spool.disk import refuse_link
from sam_pipeline.schema.spool.element import MAX_BODY_BYTES, PIECE_BYTES

GRANULARITY_S = 60
TEMPORARY_AGE_S = 300
LOCK_AGE_S = 600
"""A lock that is older was abandoned: a process that needs longer refreshes its lock."""
MAX_ELEMENT_BYTES = 2 * MAX_BODY_BYTES
GROUP_FILE_MODE = 0o640
"""The mode of the files in a queue that a group shares; otherwise it is 0600.

The other accounts of the group can remove such a file, but not change its content.
"""

ELEMENT, LOCK, TEMPORARY, FOREIGN = "element", "lock", "temporary", "foreign"
DIRECTORY = "directory"
ASIDE = "aside"
"""An element in the quarantine beside the queue, which is not one of its ROLES."""
ROLES = (DIRECTORY, ELEMENT, LOCK, TEMPORARY, FOREIGN)

_HEX = frozenset("0123456789abcdef")
_LOCK, _TEMPORARY = ".lck", ".tmp"
_ROLES = {"": ELEMENT, _LOCK: LOCK, _TEMPORARY: TEMPORARY}
_last_us = 0


class Entry(NamedTuple):
    """A name in the queue, with its role and its status in the file system."""

    name: str
    role: str
    status: os.stat_result

    @property
    def expired(self) -> bool:
        """Whether it is a lock or temporary file that a killed process left.

        So is one from far in the future: the clock was set back, and a live process refreshes.
        """
        limit_s = {LOCK: LOCK_AGE_S, TEMPORARY: TEMPORARY_AGE_S}.get(self.role)
        return limit_s is not None and abs(time.time() - self.status.st_mtime) > limit_s


def open_directory(path: str) -> int:
    """The descriptor of a directory; raises NotADirectoryError for a file or a symbolic link."""
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        reason = f"{path} is a symbolic link or a file, remove it"
        raise NotADirectoryError(errno.ENOTDIR, reason) from error


def _now_us() -> int:
    """Microseconds that always increase in this process, even if the system clock is set back.

    Elements are named after them, so their names sort in the order of the messages.
    """
    global _last_us
    _last_us = max(time.time_ns() // 1000, _last_us + 1)
    return _last_us


def directory_of_now(minutes_ahead: int = 0) -> str:
    return f"{(_now_us() // 1_000_000 // GRANULARITY_S + minutes_ahead) * GRANULARITY_S:08x}"


def _fresh_name() -> str:
    seconds, microseconds = divmod(_now_us(), 1_000_000)
    return f"{seconds:08x}{microseconds:05x}{os.getpid() & 15:x}"


def is_hex(name: str, length: int) -> bool:
    return len(name) == length and _HEX.issuperset(name)


def role_of(name: str) -> str:
    """The role of a file by its name; other writers use longer names for temporary files."""
    if name.endswith(_TEMPORARY):
        return TEMPORARY
    return _ROLES.get(name[14:], FOREIGN) if is_hex(name[:14], 14) else FOREIGN


def directories_in(root: str) -> list[str]:
    """The names of the directories of a queue, oldest first; raises SpoolError if it is a link."""
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        refuse_link(root)
        raise
    try:
        return sorted(name for name in os.listdir(descriptor) if is_hex(name, 8))
    finally:
        os.close(descriptor)


def names_in(path: str, roles: Collection[str]) -> list[str]:
    """The names with these roles in one directory, oldest first."""
    descriptor = open_directory(path)
    try:
        return sorted(name for name in os.listdir(descriptor) if role_of(name) in roles)
    finally:
        os.close(descriptor)


def write_elements(directory: int, contents: Sequence[bytes], shared: bool = False) -> list[str]:
    """Store all elements durably, or none: write, fsync, link the names, fsync the directory."""
    files: list[int] = []
    temporary: list[str] = []
    names: list[str] = []
    try:
        for content in contents:
            name = f"{_fresh_name()}{os.getpid():x}{_TEMPORARY}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            files.append(os.open(name, flags, 0o600, dir_fd=directory))
            temporary.append(name)
            if shared:
                os.fchmod(files[-1], GROUP_FILE_MODE)  # whatever the umask
            write_all(files[-1], content)
        while files:
            os.fsync(files[0])
            os.close(files.pop(0))
        for name in temporary:
            names.append(_link(directory, name))
            os.unlink(name, dir_fd=directory)
        os.fsync(directory)
    except BaseException:  # after a failed fsync a second one proves nothing
        for file in files:
            with suppress(OSError):
                os.close(file)
        for name in (*temporary, *names):
            with suppress(OSError):
                os.unlink(name, dir_fd=directory)
        raise
    return names


def write_all(file: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file, rest) :]


def _link(directory: int, temporary: str) -> str:
    """Give the file a name made from the current time, and return the name.

    If the request was repeated on the network, a file server may report that the name exists, or
    an error, although it made the link: the link count shows that.
    """
    while True:
        name = _fresh_name()
        try:
            _hard_link(directory, temporary, name)
            return name
        except OSError as error:
            if status_of(directory, temporary).st_nlink == 2:
                return name
            if not isinstance(error, FileExistsError):
                raise


def take_lock(directory: int, element: str) -> bool:
    """Lock an element; False if it is locked or no longer exists.

    A lock is a hard link and has the time of its element, which is touched first, so that the lock
    is not expired from the start. A locked element is not touched: that would renew the lock. An
    element of another account can't be linked (fs.protected_hardlinks): the lock is a new file.
    """
    with suppress(FileNotFoundError):
        status_of(directory, element + _LOCK)
        return False
    try:
        touch(directory, element)
        _hard_link(directory, element, element + _LOCK)
    except (FileExistsError, FileNotFoundError):
        return False
    except PermissionError:
        # A directory can't be linked, nor locked: `read` reports it as damaged.
        return stat.S_ISDIR(status_of(directory, element).st_mode) or _new_lock(directory, element)
    return True


def _new_lock(directory: int, element: str) -> bool:
    """Lock an element by a file of our own; False if it is locked or no longer exists."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with suppress(FileExistsError):
        os.close(os.open(element + _LOCK, flags, 0o600, dir_fd=directory))
        with suppress(FileNotFoundError):
            status_of(directory, element)
            return True
        unlink_lock(directory, element)
    return False


def unlink_lock(directory: int, element: str) -> None:
    os.unlink(element + _LOCK, dir_fd=directory)


def _hard_link(directory: int, old: str, new: str) -> None:
    os.link(old, new, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)


def touch(directory: int, name: str) -> None:
    os.utime(name, dir_fd=directory, follow_symlinks=False)


def touch_lock(directory: int, element: str) -> None:
    touch(directory, element + _LOCK)


def status_of(directory: int, name: str) -> os.stat_result:
    return os.stat(name, dir_fd=directory, follow_symlinks=False)


def author_of(status: os.stat_result) -> int | None:
    """The account that has written a file; None if others may have, by its mode."""
    return None if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else status.st_uid


def content_of(directory: int, element: str) -> bytes:
    """The bytes of an element; raises ValueError if it is not a regular file, or too large."""
    descriptor, status = open_element(directory, element)
    size = status.st_size
    try:
        if size > MAX_ELEMENT_BYTES:
            raise ValueError(f"its {size} bytes exceed the limit of {MAX_ELEMENT_BYTES}")
        return read_all(descriptor, size)
    finally:
        os.close(descriptor)


def open_element(directory: int, element: str) -> tuple[int, os.stat_result]:
    """A descriptor for reading, and the status of the file; raises ValueError if it is not one."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe must not block us
    try:
        descriptor = os.open(element, flags, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise ValueError("it is a symbolic link or a socket") from error
        raise
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise ValueError("it is not a regular file")
    return descriptor, status


def read_all(descriptor: int, size: int) -> bytes:
    """The first `size` bytes of a file."""
    content = chunk = os.read(descriptor, size + 1)
    while chunk and len(content) < size:
        chunk = os.read(descriptor, size - len(content))
        content += chunk
    return content


def pieces_of(descriptor: int) -> Iterator[bytes]:
    """The bytes of a file from its beginning."""
    offset = 0
    while piece := os.pread(descriptor, PIECE_BYTES, offset):
        yield piece
        offset += len(piece)
