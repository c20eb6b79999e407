"""A state file whose daemon is gone: status asks the kernel about the process."""

from __future__ import annotations

import os
import signal
import subprocess

from sam_pipeline.consumer.monitoring.state_file import is_alive, process_start
from tests.support.consumer.snapshot import snapshot


def test_a_zombie_and_a_reaped_process_are_not_alive() -> None:
    child = subprocess.Popen(["sleep", "60"])
    start = process_start(child.pid)
    said = snapshot(pid=child.pid, process_start=start)
    assert is_alive(said)

    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet buried
    assert not is_alive(said)

    child.wait()
    assert not is_alive(said)
