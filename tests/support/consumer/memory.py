"""A hard limit on the memory of a process, and the peak of what it used."""

from __future__ import annotations

import resource
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.services import missing

MIB = 1024 * 1024


@cache
def _limit_works() -> bool:
    """Whether a process that exceeds its limit gets no more memory."""
    program = f"import sys; sys.stdin.read(); bytearray({100 * MIB})"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    limit_memory(process.pid, 50 * MIB)
    _, error = process.communicate()
    return b"MemoryError" in error


def limit_memory(pid: int, limit_bytes: int) -> None:
    """Let all private memory of the process be at most `limit_bytes`, like MemoryMax of systemd.

    Unlike a cgroup this needs no privilege, and reserved memory counts, whether used or not.
    """
    resource.prlimit(pid, resource.RLIMIT_DATA, (limit_bytes, limit_bytes))


def need_memory_limit() -> None:
    """Skip the test, or fail in CI, if memory can't be limited here."""
    if not _limit_works():
        missing("a limit on the private memory of a process", "Linux 4.7 or newer")


def peak_mb(pid: int) -> float:
    """The largest resident memory that the running process has had so far, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ProcessLookupError(pid)
