"""Memory and open files of the steady processes, every some seconds, in a thread."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.soak.growth import TOOL
from tests.soak.stage import Stage

EVERY_S = 10.0


@contextmanager
def sampling(stage: Stage, write: Callable[[dict[str, object]], None]) -> Iterator[None]:
    """Take samples inside the block."""
    ending, began = threading.Event(), time.monotonic()

    def run() -> None:
        while not ending.wait(EVERY_S - (time.monotonic() - began) % EVERY_S):
            write({"at_s": round(time.monotonic() - began, 1), **sample(stage)})

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(60)


def sample(stage: Stage) -> dict[str, object]:
    """Resident memory in bytes, and open descriptors, of the steady processes and of this one."""
    pids = {name: process.pid for name, process in stage.steady.items()} | {TOOL: os.getpid()}
    rss: dict[str, int] = {}
    descriptors: dict[str, int] = {}
    for name, pid in pids.items():
        with suppress(OSError, IndexError):
            pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            rss[name] = pages * os.sysconf("SC_PAGE_SIZE")
            descriptors[name] = len(os.listdir(f"/proc/{pid}/fd"))
    return {"rss": rss, "descriptors": descriptors}
