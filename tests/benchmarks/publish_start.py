"""The cost of a call of `sam-publish result`, compared with a Python that only starts.

    python -m tests.benchmarks.publish_start [--rounds N] [--no-broker]

The bare distribution (no editable install, no other package) is installed into an environment of
its own. There `python -c pass` and the command take turns, so that other load affects both. The
medians of the ratios of each pair count, in wall-clock time and in processor time.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from deploy.pyz.build import build
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services import ServiceMissing
from tests.services.activemq import VERSION, running_activemq

ROOT = Path(__file__).parents[2]
SPOOL_BOUND = 5.0
BROKER_BOUND = 9.0
RESULT = "result --metric org.example.Ping --status OK --host ce01.example.org --flavour CE"
SOURCES = ("pyproject.toml", "README.md", "LICENSE")
ROOMS = ("schema", "publisher", "sql", "consumer", "spark_jobs")


class Cost(NamedTuple):
    """Seconds of one process."""

    wall: float
    processor: float


class Contest(NamedTuple):
    """The costs of `python -c pass` and of a command, in pairs."""

    title: str
    pairs: Sequence[tuple[Cost, Cost]]
    bound: float | None

    @property
    def ratios(self) -> Cost:
        return Cost(
            median(own.wall / bare.wall for bare, own in self.pairs),
            median(own.processor / bare.processor for bare, own in self.pairs),
        )

    @property
    def holds(self) -> bool:
        return self.bound is None or max(self.ratios) <= self.bound

    def __str__(self) -> str:
        wall_ms = median(own.wall for _, own in self.pairs) * 1000
        processor_ms = median(own.processor for _, own in self.pairs) * 1000
        bound = "" if self.bound is None else f"  bound <= {self.bound:g}"
        return (
            f"  {self.title:42} {wall_ms:7.1f} ms {self.ratios.wall:5.2f}"
            f"   processor {processor_ms:7.1f} ms {self.ratios.processor:5.2f}{bound}"
        )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40, help="pairs (default: 40)")
    parser.add_argument("--no-broker", action="store_true", help="do not start an ActiveMQ")
    args = parser.parse_args(argv)
    with TemporaryDirectory() as name:
        contests = list(_contests(Path(name), args.rounds, args.no_broker))
    return 0 if all(contest.holds for contest in contests) else 1


def _contests(directory: Path, rounds: int, no_broker: bool) -> Iterator[Contest]:
    python = _installed(directory / "venv")
    program = str(Path(python).with_name("sam-publish"))
    pyz = directory / "sam-publish.pyz"
    build(pyz)
    load = os.getloadavg()[0]
    print(f"{RESULT}; {rounds} pairs with `python -c pass`")
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f} before")
    state = directory / "state"
    home = {"PATH": os.environ["PATH"], "HOME": str(directory), "STATE_DIRECTORY": str(state)}
    os.chdir(directory)

    def contest(title: str, bound: float | None, *command: str) -> Contest:
        result = Contest(title, _pairs(rounds, [python, "-c", "pass"], command, home), bound)
        print(result, flush=True)
        return result

    yield contest("to the spool, fsynced", SPOOL_BOUND, program, *RESULT.split())
    assert DirectoryQueue(state / "spool").count() == rounds + 1, "each call left a message"
    yield contest("the same as one file", None, python, str(pyz), *RESULT.split())
    shutil.rmtree(state)
    if no_broker:
        return
    with _activemq() as url:
        to_broker = (program, *RESULT.split(), "--no-spool", "--broker", url)
        yield contest(f"to a receipt of ActiveMQ {VERSION}", BROKER_BOUND, *to_broker)


def _installed(venv: Path) -> str:
    """The Python of a new environment in which only the bare distribution is installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = str(venv / "bin" / "python")
    with TemporaryDirectory() as name:
        copy = Path(name)  # building must not leave files in the checkout
        for source in SOURCES:
            shutil.copy(ROOT / source, copy)
        for room in ROOMS:
            shutil.copytree(ROOT / room, copy / room)
        shutil.copytree(ROOT / ".names", copy / ".names", symlinks=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
        subprocess.run([*pip, "install", "--quiet", "--no-deps", str(copy)], check=True)
    return python


def _pairs(
    rounds: int, bare: Sequence[str], command: Sequence[str], home: Mapping[str, str]
) -> list[tuple[Cost, Cost]]:
    pairs = [(_cost(bare, home), _cost(command, home)) for _ in range(rounds + 1)]
    return pairs[1:]  # the first one warms the disk cache up


def _cost(command: Sequence[str], environment: Mapping[str, str]) -> Cost:
    silence = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
    started = time.perf_counter()
    process = os.posix_spawn(command[0], command, environment, file_actions=silence)
    _, status, usage = os.wait4(process, 0)
    wall_s = time.perf_counter() - started
    if status:
        raise SystemExit(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return Cost(wall_s, usage.ru_utime + usage.ru_stime)


@contextmanager
def _activemq() -> Iterator[str]:
    try:
        with running_activemq() as broker:
            yield broker.url
    except ServiceMissing as reason:
        raise SystemExit(str(reason)) from None


if __name__ == "__main__":
    sys.exit(main())
