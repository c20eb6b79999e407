"""How many results were lost on this host: neither published nor spooled.

A disk that takes no result is full or read-only, and most likely also that of the state directory.
So the count is written where anything can be written: there, in memory, or in /tmp.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple, Optional

from sam_pipeline.schema.settings.files import state_dir
from sam_pipeline.schema.spool.disk import flock_at_once

FILE = "losses"
ELSEWHERE = ("/dev/shm", "/tmp")
LONGEST = 64
"""The bytes of the file: once it exists, a full disk still takes the next count."""
RECENT = timedelta(days=1)


class Losses(NamedTuple):
    """All results that were ever lost, and when the last one was."""

    results: int = 0
    last: Optional[datetime] = None

    @property
    def recent(self) -> int:
        """The number, if the last one was lost less than a day ago."""
        now = datetime.now(timezone.utc)
        return self.results if self.last and now - self.last < RECENT else 0


def count_losses(state: Optional[Path], results: int) -> None:
    """Add to the count, wherever that is possible."""
    for place in _places(state):
        with suppress(OSError, ValueError):
            descriptor = _opened(place, os.O_RDWR | os.O_CREAT)
            try:
                flock_at_once(descriptor)
                before = _parsed(os.pread(descriptor, LONGEST, 0))
                now = datetime.now(timezone.utc).timestamp()
                text = f"{before.results + results} {now:.0f}".ljust(LONGEST - 1) + "\n"
                os.pwrite(descriptor, text.encode(), 0)
            finally:
                os.close(descriptor)
            return


def losses(state: Optional[Path]) -> Losses:
    """What this account has lost on this host, as far as that could be written."""
    found = []
    for place in _places(state):
        with suppress(OSError, ValueError):
            descriptor = _opened(place, os.O_RDONLY)
            try:
                found.append(_parsed(os.pread(descriptor, LONGEST, 0)))
            finally:
                os.close(descriptor)
    last = max((one.last for one in found if one.last), default=None)
    return Losses(sum(one.results for one in found), last)


def _places(state: Optional[Path]) -> Iterator[str]:
    """Where the count may be: without a configuration, `state` is not known."""
    for own in dict.fromkeys(filter(None, (state, state_dir(os.environ)))):
        yield os.path.join(own, FILE)
    for directory in ELSEWHERE:
        yield f"{directory}/sam-publish-{FILE}-{os.geteuid()}"


def _opened(path: str, flags: int) -> int:
    """A descriptor; raises OSError for what another user may have planted there."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    status = os.fstat(descriptor)
    if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise PermissionError(path)
    return descriptor


def _parsed(content: bytes) -> Losses:
    """The content of a file; an empty one has none. Raises ValueError."""
    if not content.strip():
        return Losses()
    results, last = content.split()
    return Losses(int(results), datetime.fromtimestamp(int(last), timezone.utc))
