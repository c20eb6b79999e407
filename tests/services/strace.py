"""Faults at a chosen system call of a chosen process: strace replaces or interrupts it."""

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
    """Run the command with this fault at call number `when` of that kind ("1+": at all).

    `fault` is strace's word for it: `signal=SIGKILL` on entry, `error=EIO` instead of the call.

    Raises:
        ServiceMissing: there is no strace, or processes may not be traced here.
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
