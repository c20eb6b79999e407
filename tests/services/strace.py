"""Injects faults at a chosen system call of a process with strace."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which

from tests.services import ServiceMissing

TIMEOUT_S = 60.0


def strace(
    command: Sequence[str | Path],
    call: str,
    fault: str,
    when: int | str,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the command with a fault at the `when`-th such system call ("1+": at every one).

    `fault` is in strace's syntax: `signal=SIGKILL` on entry, `error=EIO` instead of the call.

    Raises:
        ServiceMissing: strace is not installed, or tracing is not permitted here.
    """
    if which("strace") is None:
        raise ServiceMissing("strace", "apt-get install strace")
    inject = ["-e", f"trace={call}", "-e", f"inject={call}:{fault}:when={when}"]
    done = subprocess.run(
        ["strace", "-f", "-qq", "-o", os.devnull, *inject, *map(str, command)],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if "PTRACE" in done.stderr and "Operation not permitted" in done.stderr:
        raise ServiceMissing("ptrace", "let the container trace processes (CAP_SYS_PTRACE)")
    return done
