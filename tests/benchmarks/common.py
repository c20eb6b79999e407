"""Shared by the benchmarks: options, figures with their bounds, processor time and memory."""

from __future__ import annotations

import argparse
import os
import platform
import pty
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from sam_pipeline.schema.net.stomp.frame import FrameReader
from tests.services.process import descendants

ROOT = Path(__file__).parents[2]
EVERY_S = 0.2
MACHINE, DISK, IDLE = "machine", "disk", "idle"
TICKS_S = 1 / os.sysconf("SC_CLK_TCK")
BEFORE, AFTER = "before the first stage", "after the last output"
# `sam-report run` prints a stage when it begins.
_STAGE = re.compile(r"^  (\S.*?) … ", re.MULTILINE)


def arguments(
    doc: str,
    argv: Sequence[str] | None,
    *,
    parts: Collection[str] = (),
    brokers: Collection[str] = (),
    switches: Collection[str] = (),
    **numbers: Any,
) -> argparse.Namespace:
    """The options, with defaults for the numbers; prints what a run depends on."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, choices in (("part", parts), ("broker", brokers)):
        if choices:
            parser.add_argument(f"--{name}", action="append", choices=choices, help="default: all")
    for switch in switches:
        parser.add_argument(f"--{switch}", action="store_true")
    for name, default in numbers.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=int, default=default, help="default: %(default)s")
    args = parser.parse_args(argv)
    for name, choices in (("part", parts), ("broker", brokers)):
        if choices and not getattr(args, name):
            setattr(args, name, list(choices))
    print(", ".join(f"{name} {value}" for name, value in vars(args).items()))
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores")
    print_load()
    return args


def environment(**more: str) -> dict[str, str]:
    """Without the configuration of other runs."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("SAM_")}
    return {**others, **more}


def check(title: str, count: object, expected: object) -> None:
    """Stop unless the count is as expected: a contestant must not be fast by leaving work out."""
    if count != expected:
        raise SystemExit(f"{title}: {count}, not {expected}")


def rotated(names: list[str], turn: int) -> list[str]:
    """The names in an order in which each is first, and last, equally often."""
    at = turn % len(names)
    return names[at:] + names[:at]


def software(broker: Any) -> str:
    """Name and version, from the `server` header of the broker."""
    with socket.create_connection((broker.host, broker.port), timeout=10) as connection:
        connection.sendall(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        (connected,) = FrameReader().feed(connection.recv(65536))
    return connected.headers["server"]


# Figures --------------------------------------------------------------------------------------


def seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def print_load() -> None:
    print(f"load average {os.getloadavg()[0]:.1f}", flush=True)


def print_figure(
    title: str,
    figure: float,
    digits: int = 1,
    most: float | None = None,
    least: float | None = None,
) -> bool:
    """Print a line with a figure and its bound, if it has one; whether it is met."""
    bound = f"   bound <= {most:g}" if most is not None else ""
    bound += f"   bound >= {least:g}" if least is not None else ""
    print(f"  {title:44} {figure:>11.{digits}f}{bound}", flush=True)
    return (most is None or figure <= most) and (least is None or figure >= least)


def print_speed(title: str, row_s: Sequence[float]) -> None:
    """How many a second, from the seconds of one in each turn."""
    print_figure(title, 1 / median(row_s), 0)


def print_ratio(
    title: str, base_s: Sequence[float], own_s: Sequence[float], least: float | None = None
) -> bool:
    """Print the median speed relative to the base, turn by turn; whether it is within its bound."""
    ratio = median(base / own for base, own in zip(base_s, own_s, strict=True))
    return print_figure(title, ratio, 2, least=least)


def print_times(
    title: str, own_s: Sequence[float], base_s: Sequence[float], most: float | None = None
) -> bool:
    """Print how many times as long as the base it takes, turn by turn; whether it is in bounds."""
    ratio = median(own / base for own, base in zip(own_s, base_s, strict=True))
    best = min(own_s) / min(base_s)
    return print_figure(f"{title} (best: {best:.2f})", ratio, 2, most=most)


# Processor time and memory --------------------------------------------------------------------


class Watch:
    """Samples the processor seconds and memory of processes with their children in the block.

    A process that ends before the block keeps its last figures.
    """

    def __init__(self, with_families: bool = False, /, **pids: int) -> None:
        self._pids = pids
        self._with_families = with_families
        self._samples: list[tuple[float, Mapping[str, float]]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_over, name="watch")
        self.peak_mb = dict.fromkeys(pids, 0.0)
        """Of the process itself."""
        self.together_mb = dict.fromkeys(pids, 0.0)
        """Of it and its descendants, if asked for; shared memory is counted for each."""
        self.largest_mb: dict[str, float] = {}
        """Of one process, by program."""

    def __enter__(self) -> Watch:
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._sample()

    def used_s(self, name: str, began: float, ended: float) -> float:
        """Processor seconds between two times (s since 1970)."""
        return self._until(name, ended) - self._until(name, began)

    def _sample_until_over(self) -> None:
        while not self._over.wait(EVERY_S):
            self._sample()

    def _sample(self) -> None:
        used = {name: processor_s(pid) for name, pid in self._pids.items()}
        if self._samples:
            before = self._samples[-1][1]
            used = {name: max(value, before[name]) for name, value in used.items()}
        self._samples.append((time.time(), used | machine_s()))
        for name, pid in self._pids.items():
            self.peak_mb[name] = max(self.peak_mb[name], memory_mb(pid, "VmHWM"))
            if self._with_families:
                self._sample_family(name, [pid, *descendants(pid)])

    def _sample_family(self, name: str, pids: Sequence[int]) -> None:
        resident = [memory_mb(pid, "VmRSS") for pid in pids]
        self.together_mb[name] = max(self.together_mb[name], sum(resident))
        for pid, size_mb in zip(pids, resident, strict=True):
            program = _read(f"/proc/{pid}/comm").strip()
            self.largest_mb[program] = max(self.largest_mb.get(program, 0.0), size_mb)

    def _until(self, name: str, moment: float) -> float:
        """Processor seconds until a time, interpolated between two samples."""
        before, after = self._samples[0], self._samples[-1]
        for sample in self._samples:
            if sample[0] > moment:
                after = sample
                break
            before = sample
        span_s = after[0] - before[0]
        share = min(max((moment - before[0]) / span_s, 0), 1) if span_s > 0 else 0
        return before[1][name] + share * (after[1][name] - before[1][name])


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:  # the process has ended
        return ""


def _children(pid: int) -> list[int]:
    return list(map(int, _read(f"/proc/{pid}/task/{pid}/children").split()))


def processor_s(pid: int) -> float:
    """Processor seconds of a process and its descendants, with those that ended."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) * TICKS_S + sum(map(processor_s, _children(pid)))


def run_s(pid: int) -> float:
    """The same to the microsecond, without those that have ended."""
    own = int((_read(f"/proc/{pid}/schedstat").split() or ["0"])[0]) / 1e9
    return own + sum(map(run_s, _children(pid)))


def memory_mb(pid: int, key: str) -> float:
    lines = _read(f"/proc/{pid}/status").splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(key)), 0.0)


def machine_s() -> dict[str, float]:
    """Seconds of all processors: working, waiting for a disk, idle."""
    user, nice, system, idle, wait, irq, soft_irq, *_ = map(
        int, _read("/proc/stat").split("\n")[0].split()[1:]
    )
    work = user + nice + system + irq + soft_irq
    return {MACHINE: work * TICKS_S, DISK: wait * TICKS_S, IDLE: idle * TICKS_S}


class Run(NamedTuple):
    """A process from start to end; memory in MB: of all together, and of the largest by program."""

    seconds: float
    stages: Mapping[str, float]
    together_mb: float
    largest_mb: Mapping[str, float]


def run(command: Sequence[str | Path], variables: Mapping[str, str], directory: Path) -> Run:
    """Run the command to its end, on a terminal of its own, on which it shows its stages."""
    terminal, other_end = pty.openpty()
    began = time.perf_counter()
    process = subprocess.Popen(
        command, env=variables, cwd=directory, stdin=other_end, stdout=other_end, stderr=other_end
    )
    os.close(other_end)
    output, starts, last_at = b"", [(began, BEFORE)], began
    with Watch(True, process=process.pid) as watch:
        while part := _part(terminal):
            output, last_at = output + part, time.perf_counter()
            text = output.decode(errors="replace").replace("\r\n", "\n")
            starts += [(last_at, stage) for stage in _STAGE.findall(text)[len(starts) - 1 :]]
        os.close(terminal)
        code = process.wait()
    ended = time.perf_counter()
    if code:
        raise SystemExit(f"{command} ended with {code}:\n{output.decode(errors='replace')}")
    stages: dict[str, float] = {}
    for (start, name), (end, _) in pairwise([*starts, (last_at, AFTER), (ended, "")]):
        stages[name] = stages.get(name, 0.0) + end - start
    return Run(ended - began, stages, watch.together_mb["process"], watch.largest_mb)


def _part(terminal: int) -> bytes:
    try:
        return os.read(terminal, 10_000)
    except OSError:  # the other end is closed
        return b""


def print_runs(title: str, runs: Sequence[Run], most_mb: float | None = None) -> bool:
    """Print seconds, also by stage, and memory; whether the memory is in bounds."""
    print_figure(f"{title}, s (best: {min(r.seconds for r in runs):.1f})", middle_s(runs))
    if len(runs[0].stages) > 2:  # only `sam-report run` shows stages
        for stage in runs[0].stages:
            print_figure(f"  {stage}, s", median(run.stages.get(stage, 0.0) for run in runs))
    largest = max(runs, key=lambda run: run.together_mb)
    peaks = ", ".join(f"{name} {peak:.0f}" for name, peak in sorted(largest.largest_mb.items()))
    return print_figure(f"  memory, MB ({peaks})", largest.together_mb, 0, most=most_mb)


def middle_s(runs: Sequence[Run]) -> float:
    return median(run.seconds for run in runs)


def print_run_times(title: str, own: Sequence[Run], base: Sequence[Run], most: float) -> bool:
    return print_times(title, [r.seconds for r in own], [r.seconds for r in base], most)
