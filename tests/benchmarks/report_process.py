"""A process from its start to its end: seconds by stage, and how much memory it takes."""

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
# `sam-report run` tells a stage when it begins.
_STAGE = re.compile(r"^  (\S.*?) … ", re.MULTILINE)


class Run(NamedTuple):
    """Memory in MB: what all its processes had together, and the largest one of each program."""

    seconds: float
    stages: Mapping[str, float]
    together_mb: float
    largest_mb: Mapping[str, float]


def run(command: Sequence[str], environment: Mapping[str, str], directory: Path) -> Run:
    """Run it on a terminal of its own, to its end."""
    ours, theirs = pty.openpty()
    began = time.perf_counter()
    process = subprocess.Popen(
        command, env=environment, cwd=directory, stdout=theirs, stderr=theirs, stdin=theirs
    )
    os.close(theirs)
    with Memory(process.pid) as memory:
        told, heard = _listen(ours)
        code = process.wait()
    ended = time.perf_counter()
    if code:
        raise SystemExit(f"{' '.join(command)} ended with {code}:\n{told}")
    stages = _stages(heard, began, ended)
    return Run(ended - began, stages, memory.together_mb, memory.largest_mb)


class Memory:
    """Looks at a process and all it starts while the block runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, name="memory")
        self.together_mb = 0.0
        self.largest_mb: dict[str, float] = {}

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look_on(self) -> None:
        while not self._over.wait(EVERY_S):
            family = [self._pid, *descendants(self._pid)]
            self.together_mb = max(self.together_mb, sum(map(_resident_mb, family)))
            for pid in family:
                if program := _program(pid):
                    peak = max(self.largest_mb.get(program, 0.0), peak_memory_mb(pid))
                    self.largest_mb[program] = peak


def _listen(terminal: int) -> tuple[str, list[tuple[float, str]]]:
    """All that is said, and each stage when it is first heard of."""
    said, heard, last_heard = b"", [], time.perf_counter()
    while part := _part(terminal):
        said, last_heard = said + part, time.perf_counter()
        told = said.decode(errors="replace")
        for stage in _STAGE.findall(told.replace("\r\n", "\n"))[len(heard) :]:
            heard.append((last_heard, stage))
    heard.append((last_heard, AFTER))
    os.close(terminal)
    return said.decode(errors="replace"), heard


def _part(terminal: int) -> bytes:
    try:
        return os.read(terminal, 10_000)
    except OSError:  # nobody has the other end any more
        return b""


def _stages(heard: Sequence[tuple[float, str]], began: float, ended: float) -> dict[str, float]:
    """Seconds of each stage, from its beginning to that of the next one."""
    moments = [(began, BEFORE), *heard, (ended, "")]
    stages: dict[str, float] = {}
    for (start, name), (end, _) in pairwise(moments):
        stages[name] = stages.get(name, 0.0) + end - start
    return stages


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _resident_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
