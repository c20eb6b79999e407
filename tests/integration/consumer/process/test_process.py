"""What the kernel says of a process: memory that goes back to it, and whether one is alive."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from sam_pipeline.consumer.monitoring.state_file import is_alive, process_start
from tests.support.consumer.snapshot import snapshot

KEPT_MB = 10
FREED_MB = 90

# Every tenth block stays in use, as those that outlive an outage: the heap can't shrink at its end.
PROGRAM = f"""
import os, time
from sam_pipeline.consumer.process.allocator import return_large_blocks, returning_free_pages

def resident_mb():
    pages = open("/proc/self/statm").read().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6

return_large_blocks()
blocks = [bytes(5000) for _ in range({(KEPT_MB + FREED_MB) * 200})]
kept = blocks[::{(KEPT_MB + FREED_MB) // KEPT_MB}]
del blocks
before = lowest = resident_mb()
with returning_free_pages(every_s=0.05):
    deadline = time.monotonic() + 10
    while before - lowest < {FREED_MB} / 2 and time.monotonic() < deadline:
        time.sleep(0.05)
        lowest = min(lowest, resident_mb())
print(before, lowest)
"""


def test_free_pages_in_the_middle_of_the_heap_go_back_to_the_system() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )

    before, after = map(float, done.stdout.split())
    assert before > KEPT_MB + FREED_MB / 2
    assert before - after >= FREED_MB / 2


def test_a_zombie_and_a_reaped_process_are_not_alive() -> None:
    child = subprocess.Popen(["sleep", "60"])
    state = snapshot(pid=child.pid, process_start=process_start(child.pid))
    assert is_alive(state)

    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, but not reaped yet
    assert not is_alive(state)

    child.wait()
    assert not is_alive(state)
