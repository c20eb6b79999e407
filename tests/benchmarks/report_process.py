"""Runs a process and measures its seconds by stage and its memory."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.consume_watch import peak_memory_mb
from tests.services.process import descendants

EVERY_S = 0.2
BEFORE, AFTER = "before the first stage", "after the last output"
# `sam-report run` prints a stage when it begins.
_STAGE = re.compile(r"^  (\S.*?) … ", re.MULTILINE)


class Run(NamedTuple):
    """Memory in MB: the peak of all processes together, and of the largest one of each program."""

    seconds: float
    stages: Mapping[str, float]
    together_mb: float
    largest_mb: Mapping[str, float]


def run(command: Sequence[str], environment: Mapping[str, str], directory: Path) -> Run:
    """Run the command to its end, on a terminal of its own."""
    terminal, terminal_of_process = pty.openpty()
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=directory,
        stdin=terminal_of_process,
        stdout=terminal_of_process,
        stderr=terminal_of_process,
    )
    os.close(terminal_of_process)
    with Memory(process.pid) as memory:
        output, stage_starts = _listen(terminal)
        code = process.wait()
    ended = time.perf_counter()
    if code:
        raise SystemExit(f"{' '.join(command)} ended with {code}:\n{output}")
    stages = _stages(stage_starts, began, ended)
    return Run(ended - began, stages, memory.together_mb, memory.largest_mb)


class Memory:
    """Samples the memory of a process and its descendants while the block runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_over, name="memory")
        self.together_mb = 0.0
        self.largest_mb: dict[str, float] = {}

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample_until_over(self) -> None:
        while not self._over.wait(EVERY_S):
            family = [self._pid, *descendants(self._pid)]
            self.together_mb = max(self.together_mb, sum(map(resident_mb, family)))
            for pid in family:
                if program := _program(pid):
                    peak = max(self.largest_mb.get(program, 0.0), peak_memory_mb(pid))
                    self.largest_mb[program] = peak


def _listen(terminal: int) -> tuple[str, list[tuple[float, str]]]:
    """The whole output, and each stage with the time at which it was first printed."""
    output, starts, last_at = b"", [], time.perf_counter()
    while part := _part(terminal):
        output, last_at = output + part, time.perf_counter()
        text = output.decode(errors="replace")
        for stage in _STAGE.findall(text.replace("\r\n", "\n"))[len(starts) :]:
            starts.append((last_at, stage))
    starts.append((last_at, AFTER))
    os.close(terminal)
    return output.decode(errors="replace"), starts


def _part(terminal: int) -> bytes:
    try:
        return os.read(terminal, 10_000)
    except OSError:  # the other end is closed
        return b""


def _stages(starts: Sequence[tuple[float, str]], began: float, ended: float) -> dict[str, float]:
    """Seconds of each stage, from its start to that of the next one."""
    moments = [(began, BEFORE), *starts, (ended, "")]
    stages: dict[str, float] = {}
    for (start, name), (end, _) in pairwise(moments):
        stages[name] = stages.get(name, 0.0) + end - start
    return stages


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def resident_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
