"""The directory queue on disk (DQS layout): one element, one file, safe among many processes.

    QUEUE/DDDDDDDD/EEEEEEEEEEEEEE       an element
    QUEUE/DDDDDDDD/EEEEEEEEEEEEEE.tmp   being written
    QUEUE/DDDDDDDD/EEEEEEEEEEEEEE.lck   hard link to an element: somebody works on it
    QUEUE.bad/                          quarantine: what could not be read, each with its reason

Other implementations read and feed the same directory. Unlike them we fsync the file before it
gets its name, and the directory after: when `add` returns, the message survives a power cut.
"""

from __future__ import annotations

import base64
import binascii
import errno
import json
import os
import random
import re
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from schema.errors import CANNOT_CREATE, DamagedElement, SpoolError
from schema.message import Message

GRANULARITY_S = 60
TEMPORARY_AGE_S = 300
LOCK_AGE_S = 600
MAX_ELEMENT_BYTES = 128 * 1024 * 1024
"""A compressed body may not grow above this."""

_DIRECTORY = re.compile(r"[0-9a-f]{8}")
_ELEMENT = re.compile(r"[0-9a-f]{14}")
_IO_ERROR, _NO_PERMISSION = 74, 77
_EXIT_CODE = {
    errno.ENOSPC: _IO_ERROR,
    errno.EDQUOT: _IO_ERROR,
    errno.EIO: _IO_ERROR,
    errno.EFBIG: _IO_ERROR,
    errno.EACCES: _NO_PERMISSION,
    errno.EPERM: _NO_PERMISSION,
}


class DirectoryQueue:
    """One queue; made at the first `add`. An element's name is `DDDDDDDD/EEEEEEEEEEEEEE`.

    Every method raises SpoolError where the file system refuses.
    """

    def __init__(self, path: os.PathLike[str] | str) -> None:
        self.path = Path(path)

    def add(self, message: Message) -> str:
        """Store the message durably and give its name."""
        with self._translated("write to"):
            now_s = time.time()
            directory = self._directory_for(now_s)
            temporary = _write(directory, _element(now_s), _serialise(message))
            try:
                name = _link_fresh(temporary)
            finally:
                temporary.unlink()
            _fsync(directory)
            return f"{directory.name}/{name}"

    def names(self) -> Iterator[str]:
        """The elements there are, oldest first, locked ones too."""
        with self._translated("read"):
            for directory in self._directories():
                for name in _listing(self.path / directory, _ELEMENT):
                    yield f"{directory}/{name}"

    def count(self) -> int:
        return sum(1 for _ in self.names())

    def lock(self, name: str) -> bool:
        """Whether the element is now ours alone."""
        with self._translated("lock in"):
            lock = self._lock(name)
            try:
                os.link(self.path / name, lock)
                os.utime(lock)  # its mtime is the age of the lock
            except (FileExistsError, FileNotFoundError):
                return False
            return True

    def unlock(self, name: str) -> None:
        with self._translated("unlock in"), suppress(FileNotFoundError):
            self._lock(name).unlink()

    def read(self, name: str) -> Message:
        """The message of an element.

        Raises:
            DamagedElement: it holds none.
        """
        with self._translated("read"):
            return _parse((self.path / name).read_bytes(), name)

    def remove(self, name: str) -> None:
        """Forget a locked element: the element first, so that a crash leaves only a stale lock."""
        with self._translated("remove from"), suppress(FileNotFoundError):
            (self.path / name).unlink()
            self._lock(name).unlink()

    def quarantine(self, name: str, reason: str) -> Path:
        """Move a locked element aside, with the reason in a file beside it."""
        with self._translated("quarantine from"):
            aside = self.path.with_name(f"{self.path.name}.bad")
            aside.mkdir(mode=0o700, exist_ok=True)
            target = aside / name.replace("/", ".")
            (self.path / name).rename(target)
            target.with_name(f"{target.name}.reason").write_text(f"{reason}\n")
            self.unlock(name)
            return target

    def purge(self) -> None:
        """Sweep what killed processes left: old .tmp and .lck files, and empty directories."""
        with self._translated("purge"):
            now_s = time.time()
            directories = self._directories()
            for directory in directories:
                _purge_directory(self.path / directory, now_s)
            for directory in directories[:-1]:
                with suppress(OSError):  # not empty, or somebody was quicker
                    (self.path / directory).rmdir()

    def _directories(self) -> list[str]:
        return _listing(self.path, _DIRECTORY)

    def _directory_for(self, now_s: float) -> Path:
        directory = self.path / f"{int(now_s) // GRANULARITY_S * GRANULARITY_S:08x}"
        if not directory.is_dir():
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory.mkdir(mode=0o700, exist_ok=True)
            _fsync(self.path)
        return directory

    def _lock(self, name: str) -> Path:
        return self.path / f"{name}.lck"

    def _translated(self, what: str) -> _Translated:
        return _Translated(f"cannot {what} the spool {self.path}")


def written_at(name: str) -> datetime:
    """When the element of that name was written, as its name says; UTC."""
    return datetime.fromtimestamp(int(name.split("/")[1][:8], 16), timezone.utc)


class _Translated:
    """Turns an OSError of the block into a SpoolError with words and an exit code."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, OSError):
            code = _EXIT_CODE.get(error.errno or 0, CANNOT_CREATE)
            raise SpoolError(f"{self._words}: {error.strerror or error}", code) from error


def _listing(directory: Path, pattern: re.Pattern[str]) -> list[str]:
    try:
        return sorted(name for name in os.listdir(directory) if pattern.fullmatch(name))
    except FileNotFoundError:
        return []


def _element(now_s: float) -> str:
    seconds, fraction = divmod(now_s, 1)
    return f"{int(seconds):08x}{int(fraction * 1e6):05x}{random.randrange(16):x}"


def _write(directory: Path, name: str, content: bytes) -> Path:
    """A temporary file with this content, on disk."""
    temporary = directory / f"{name}{os.getpid():x}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink()  # after a failed fsync its pages are not to be trusted
        raise
    return temporary


def _link_fresh(temporary: Path) -> str:
    """Give the file the first free name of now."""
    while True:
        name = _element(time.time())
        with suppress(FileExistsError):
            os.link(temporary, temporary.with_name(name))
            return name


def _fsync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _purge_directory(directory: Path, now_s: float) -> None:
    for suffix, limit_s in ((".tmp", TEMPORARY_AGE_S), (".lck", LOCK_AGE_S)):
        for leftover in directory.glob(f"*{suffix}"):
            with suppress(FileNotFoundError):
                if leftover.stat().st_mtime < now_s - limit_s:
                    leftover.unlink()


def _serialise(message: Message) -> bytes:
    element: dict[str, Any] = {"header": dict(message.headers)}
    try:
        element.update(body=message.body.decode(), text=True)
    except UnicodeDecodeError:
        body = base64.b64encode(message.body).decode()
        element.update(body=body, text=False, encoding="base64")
    return json.dumps(element, ensure_ascii=False).encode("utf-8", "surrogateescape")


def _parse(content: bytes, name: str) -> Message:
    try:
        element = json.loads(content)
        header, body = element.get("header", {}), element.get("body", "")
        if not all(isinstance(value, str) for value in (body, *header, *header.values())):
            raise ValueError("header or body is no text")
        return Message(header, _body(body, str(element.get("encoding", "")).split("+")))
    except (ValueError, AttributeError, RecursionError, zlib.error, binascii.Error) as error:
        raise DamagedElement(f"element {name} holds no message: {error}") from error


def _body(text: str, encoding: list[str]) -> bytes:
    body = base64.b64decode(text, validate=True) if "base64" in encoding else text.encode()
    if "zlib" not in encoding:
        return body
    inflater = zlib.decompressobj()
    body = inflater.decompress(body, MAX_ELEMENT_BYTES)
    if not inflater.eof:
        raise ValueError("the compressed body is cut or too long")
    return body
