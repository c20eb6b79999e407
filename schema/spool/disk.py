"""The file system under a spool: durable directories, no planted links, and what to do about
errors of the operating system.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sam_pipeline.schema.errors import CANNOT_CREATE, IO_ERROR, NO_PERMISSION, SpoolError

OWNER_MODE, GROUP_MODE = 0o700, 0o2770
"""The modes of the directories of a queue: of one account, or shared by a group.

With the set-group-ID bit all directories and files in it get its group, whoever writes them.
"""

_OWNER = "check owner and mode of the directory, or share it by a group (mode 2770, umask=007)"
_MEANING = {
    errno.ENOSPC: (IO_ERROR, "no space or no inodes are left: free some, then run it again"),
    errno.EDQUOT: (IO_ERROR, "your quota is used up: free some of it, or ask for more"),
    errno.ESTALE: (IO_ERROR, "the file server lost this export: mount it again"),
    errno.EIO: (IO_ERROR, "the disk or file server failed: see the system's log"),
    errno.EROFS: (IO_ERROR, "mount it writable, or name another directory"),
    errno.EFBIG: (IO_ERROR, "raise the limit of file sizes (ulimit -f)"),
    errno.EACCES: (NO_PERMISSION, _OWNER),
    errno.EPERM: (NO_PERMISSION, _OWNER),
}
"""Exit code and advice, by error number."""


def spool_error(failure: str, error: OSError) -> SpoolError:
    """The error to raise for one of the operating system: `FAILURE: REASON; ADVICE`."""
    code, _ = _MEANING.get(error.errno or 0, (CANNOT_CREATE, ""))
    return SpoolError(f"{failure}: {with_advice(error)}", code)


def with_advice(error: OSError) -> str:
    """The reason of an error, and what to do about it if that is known."""
    _, advice = _MEANING.get(error.errno or 0, (0, ""))
    return f"{error.strerror or error}{advice and '; '}{advice}"


def reason_of(error: Exception) -> str:
    """Why a directory or an element can't be used, and what to do about it."""
    return with_advice(error) if isinstance(error, OSError) else str(error)


def inaccessible(path: Path, errors: Mapping[str, Exception]) -> str:
    """The number of elements and directories that can't be used, and the first with its reason.

    Args:
        errors: by the names of directories and elements; those of elements have a slash.
    """
    name, error = next(iter(errors.items()))
    elements = sum("/" in name for name in errors)
    directories = len(errors) - elements
    counts = [f"{elements} element{'s' * (elements != 1)}"] if elements else []
    if directories:
        counts.append(f"{directories} director{'y' if directories == 1 else 'ies'}")
    unusable = f"{' and '.join(counts)} in {path} cannot be used"
    return f"{unusable}, first {name}: {reason_of(error)}"


def refuse_link(path: str) -> os.stat_result:
    """The status of a directory; a symbolic link to one is refused, since it may lead anywhere.

    Raises:
        SpoolError: it is not a directory.
        OSError: it does not exist, or is not accessible.
    """
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        raise SpoolError(f"{path} is a symbolic link: name the directory itself", NO_PERMISSION)
    if not stat.S_ISDIR(status.st_mode):
        raise SpoolError(f"{path} is not a directory: remove it, or name another", CANNOT_CREATE)
    return status


def refuse_unsafe(path: str, shared: bool = False) -> None:
    """Refuse a directory in which another user could read or remove files.

    Its owner can, and so can everybody if it is world-writable without the sticky bit. Root may
    work in any user's directory, and a group may share one: its owner chose that. In a directory
    of another user we share only if we were configured to (`shared`) and are in its group.

    Raises:
        SpoolError: it is unsafe, or not a directory.
        OSError: it does not exist, or is not accessible.
    """
    status = refuse_link(path)
    if status.st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
        problem = f"{path} is world-writable, so that any user could remove the messages"
        raise SpoolError(f"{problem}: chmod o-w, or name a directory below it", NO_PERMISSION)
    if os.geteuid() not in (0, status.st_uid) and status.st_uid != 0:
        problem = f"{path} belongs to another user ({status.st_uid})"
        if not shared:
            problem += ", who could read or remove the messages"
            advice = "name another directory, or share it by a group (mode 2770, umask=007)"
        elif not is_shared(status):
            problem += f" and is not shared by its group (mode {stat.S_IMODE(status.st_mode):04o})"
            advice = "chgrp GROUP and chmod 2770, or name another directory"
        elif status.st_gid not in (os.getegid(), *os.getgroups()):
            problem += f", and this account is not in its group ({status.st_gid})"
            advice = "add it (usermod -aG), and start a new session"
        else:
            return
        raise SpoolError(f"{problem}: {advice}", NO_PERMISSION)


def unusable(path: Path) -> str | None:
    """Why a directory can't be used; None if it can, or can be made.

    Unlike the functions above it does not raise: the `check` commands report all problems.
    """
    # `Path.exists` raises an error below a directory that we may not enter.
    existing = next(above for above in (path, *path.absolute().parents) if os.path.exists(above))
    if not existing.is_dir():
        return f"{path}: {existing} is not a directory"
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        return f"{path}: no permission to read and write {existing}"
    return None


def is_shared(status: os.stat_result) -> bool:
    """Whether the group of a directory may write in it and in all directories made there."""
    return status.st_mode & (GROUP_MODE | stat.S_IWOTH) == GROUP_MODE


def make_directory(path: str, mode: int = OWNER_MODE) -> None:
    """Make a directory and its missing parents durably: they survive a power cut."""
    above = os.path.dirname(path) or "."
    make = _make_for_group if mode == GROUP_MODE else os.mkdir
    try:
        make(path, mode)
    except FileExistsError:
        return
    except FileNotFoundError:
        if above == path:  # the working directory was removed
            raise
        make_directory(above, 0o777)  # the umask decides
        with suppress(FileExistsError):
            make(path, mode)
    sync_directory(above)


def _make_for_group(path: str, mode: int) -> None:
    """Make a directory with exactly this mode, whatever the umask.

    It gets its name last: another account may write there as soon as it sees it.

    Raises:
        FileExistsError
    """
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    unnamed = f"{path}.{time.time_ns():x}{os.getpid():x}.new"
    os.mkdir(unnamed, 0o770)
    try:
        descriptor = os.open(unnamed, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            # systemd's RestrictSUIDSGID= forbids to set this bit, but not to inherit it.
            if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
                os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)
        os.rename(unnamed, path)  # replaces an empty one, whose writers then try again
    except OSError as error:
        with suppress(OSError):
            os.rmdir(unnamed)
        if error.errno == errno.ENOTEMPTY:
            raise FileExistsError(*error.args) from error
        raise


def sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flock_at_once(descriptor: int) -> bool:
    """Lock a file until it is closed; False if another process holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the file system has no flock: the locks of elements are enough
        return True
    return True
