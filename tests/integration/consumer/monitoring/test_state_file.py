"""A state file whose daemon has ended: the kernel is asked whether the process exists."""

from __future__ import annotations

import os
import signal
import subprocess

from sam_pipeline.consumer.monitoring.state_file import is_alive, process_start
from tests.support.consumer.snapshot import snapshot


def test_a_zombie_and_a_reaped_process_are_not_alive() -> None:
    child = subprocess.Popen(["sleep", "60"])
    start = process_start(child.pid)
    state = snapshot(pid=child.pid, process_start=start)
    assert is_alive(state)

    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, but not reaped yet
    assert not is_alive(state)

    child.wait()
    assert not is_alive(state)
