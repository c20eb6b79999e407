"""Measures processor time and memory of processes, from /proc."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

EVERY_S = 0.2
MACHINE = "machine"
DISK = "disk"
IDLE = "idle"
TICKS_S = 1 / os.sysconf("SC_CLK_TCK")


class Sample(NamedTuple):
    """Processor seconds used until `at` (s since 1970), by name."""

    at: float
    used_s: Mapping[str, float]


class Watch:
    """Samples processes with their children while the block runs.

    A process that ends before the block keeps its last figures.
    """

    def __init__(self, **pids: int) -> None:
        self._pids = pids
        self._samples: list[Sample] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_over, name="watch")
        self.peak_mb = dict.fromkeys(pids, 0.0)

    def __enter__(self) -> Watch:
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._sample()

    def used_s(self, name: str, began: float, ended: float) -> float:
        """Processor seconds between two times."""
        return self._until(name, ended) - self._until(name, began)

    def _sample_until_over(self) -> None:
        while not self._over.wait(EVERY_S):
            self._sample()

    def _sample(self) -> None:
        used = {name: processor_s(pid) for name, pid in self._pids.items()}
        if self._samples:
            before = self._samples[-1].used_s
            used = {name: max(seconds, before[name]) for name, seconds in used.items()}
        for name, pid in self._pids.items():
            self.peak_mb[name] = max(self.peak_mb[name], peak_memory_mb(pid))
        self._samples.append(Sample(time.time(), used | machine_s()))

    def _until(self, name: str, moment: float) -> float:
        """Processor seconds until a time, interpolated between two samples."""
        before, after = self._samples[0], self._samples[-1]
        for sample in self._samples:
            if sample.at <= moment:
                before = sample
            else:
                after = sample
                break
        span_s = after.at - before.at
        share = min(max((moment - before.at) / span_s, 0), 1) if span_s > 0 else 0
        first, last = before.used_s[name], after.used_s[name]
        return first + share * (last - first)


def processor_s(pid: int) -> float:
    """Processor seconds of a process and its descendants; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0.0
    own = sum(map(int, fields[11:15])) * TICKS_S  # with children that ended
    return own + sum(processor_s(int(child)) for child in children)


def run_s(pid: int) -> float:
    """Processor seconds of a process and its descendants, to the microsecond.

    Unlike `processor_s`, it leaves out those that have ended.
    """
    try:
        own = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0.0
    return own + sum(run_s(int(child)) for child in children)


def peak_memory_mb(pid: int) -> float:
    """The peak of the resident memory; 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def machine_s() -> dict[str, float]:
    """Seconds of all processors: working, waiting for a disk, idle."""
    with open("/proc/stat") as file:
        user, nice, system, idle, wait, irq, soft_irq, *_ = map(int, file.readline().split()[1:])
    work = user + nice + system + irq + soft_irq
    return {MACHINE: work * TICKS_S, DISK: wait * TICKS_S, IDLE: idle * TICKS_S}
