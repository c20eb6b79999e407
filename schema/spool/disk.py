"""The file system below a spool: directories made durably, never by a planted link, and what an
operating system's error means there.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from sam_pipeline.schema.errors import CANNOT_CREATE, SpoolError

_IO_ERROR, _NO_PERMISSION = 74, 77
_OWNER = "check owner and mode of the directory"
_MEANING = {
    errno.ENOSPC: (_IO_ERROR, "no space or no inodes are left: free some, then it works again"),
    errno.EDQUOT: (_IO_ERROR, "your quota is used up: free some of it, or ask for more"),
    errno.ESTALE: (_IO_ERROR, "the file server lost this export: mount it again"),
    errno.EIO: (_IO_ERROR, "the disk or file server failed: see the system's log"),
    errno.EROFS: (_IO_ERROR, "mount it writable, or name another directory"),
    errno.EFBIG: (_IO_ERROR, "raise the limit of file sizes (ulimit -f)"),
    errno.EACCES: (_NO_PERMISSION, _OWNER),
    errno.EPERM: (_NO_PERMISSION, _OWNER),
}
"""Exit code, and what to do."""


class Translated:
    """Turns an OSError of the block into a SpoolError: what failed where, why, what to do."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError):
            code, advice = _MEANING.get(error.errno or 0, (CANNOT_CREATE, ""))
            why = f"{error.strerror or error}{advice and '; '}{advice}"
            raise SpoolError(f"{self._words}: {why}", code) from error


def refuse_link(path: str) -> os.stat_result:
    """A directory is used only as itself: a link may lead anywhere.

    Raises:
        SpoolError: it is none. OSError: it is not there, or can't be looked at.
    """
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        raise SpoolError(f"{path} is a symbolic link: name the directory itself", _NO_PERMISSION)
    if not stat.S_ISDIR(found.st_mode):
        raise SpoolError(f"{path} is no directory: remove it, or name another", CANNOT_CREATE)
    return found


def refuse_unsafe(path: str) -> None:
    """Nothing is left where a stranger could read or remove it.

    The owner of a directory can, and everybody where everybody may write and no sticky bit is
    set. Root may work in any user's directory, and a group may share one: its owner chose that.

    Raises:
        SpoolError: it is unsafe, or no directory. OSError: as above.
    """
    found = refuse_link(path)
    if os.geteuid() not in (0, found.st_uid) and found.st_uid != 0:
        words = f"{path} belongs to another user ({found.st_uid}), who could read and remove"
        raise SpoolError(f"{words} what is stored there: name another", _NO_PERMISSION)
    if found.st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
        words = f"everybody may write to {path}, and remove what is stored there"
        raise SpoolError(f"{words}: chmod o-w, or name a directory below it", _NO_PERMISSION)


def open_directory(path: str) -> int:
    """Its descriptor.

    Raises:
        NotADirectoryError: a file or a link is in its place.
    """
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        words = f"{path} is a symbolic link or a file, remove it"
        raise NotADirectoryError(errno.ENOTDIR, words) from error


def make_directory(path: str, mode: int = 0o700) -> None:
    """Make it, and what is missing above, so that it survives a power cut."""
    above = os.path.dirname(path) or "."
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        return
    except FileNotFoundError:
        if above == path:  # the working directory itself is gone
            raise
        make_directory(above, 0o777)  # the umask decides
        with suppress(FileExistsError):
            os.mkdir(path, mode)
    sync_directory(above)


def sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flock_at_once(descriptor: int) -> bool:
    """Whether nobody else has this lock, which dies with its holder."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without such locks: those of the elements are enough
        return True
    return True
