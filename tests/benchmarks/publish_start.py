"""The cost of a call of `sam-publish result`, compared with a Python that only starts.

    python -m tests.benchmarks.publish_start [--rounds N]

The bare distribution (no editable install, no other package) is installed into an environment of
its own. There `python -c pass` and the command take turns, so that other load affects both. The
medians of the ratios of each pair count, in wall-clock time and in processor time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from deploy.pyz.build import build
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.benchmarks.common import ROOT, arguments, check, print_figure
from tests.services.activemq import running_activemq

SPOOL_BOUND = 5.0
BROKER_BOUND = 9.0
RESULT = "result --metric org.example.Ping --status OK --host ce01.example.org --flavour CE"
SOURCES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
ROOMS = ("schema", "publisher", "sql", "consumer", "spark_jobs")


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(__doc__, argv, rounds=40)
    print(f"{RESULT}; {args.rounds} pairs with `python -c pass`")
    with TemporaryDirectory() as name, running_activemq() as broker:
        directory = Path(name)
        python = installed(directory / "venv")
        program = (str(Path(python).with_name("sam-publish")), *RESULT.split())
        pyz = directory / "sam-publish.pyz"
        build(pyz)
        state = directory / "state"
        home = {"PATH": os.environ["PATH"], "HOME": name, "STATE_DIRECTORY": str(state)}
        os.chdir(directory)

        def contest(title: str, bound: float | None, *command: str) -> bool:
            bare = [python, "-c", "pass"]
            pairs = [(cost(bare, home), cost(command, home)) for _ in range(args.rounds + 1)]
            good = True
            for kind, number in (("wall clock", 0), ("processor", 1)):
                own_s = [(own[number], base[number]) for base, own in pairs[1:]]  # 1: warm disk
                milliseconds = 1000 * median(own for own, _ in own_s)
                ratio = median(own / base for own, base in own_s)
                line = f"{title}, {kind} ({milliseconds:.0f} ms)"
                good = print_figure(line, ratio, 2, most=bound) and good
            return good

        good = [contest("to the spool, fsynced", SPOOL_BOUND, *program)]
        check("messages", DirectoryQueue(state / "spool").count(), args.rounds + 1)
        contest("the same as one file", None, python, str(pyz), *RESULT.split())
        shutil.rmtree(state)
        to_broker = (*program, "--no-spool", "--broker", broker.url)
        good.append(contest("to a receipt of ActiveMQ", BROKER_BOUND, *to_broker))
    return 0 if all(good) else 1


def installed(venv: Path) -> str:
    """The Python of a new environment in which only the bare distribution is installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = str(venv / "bin" / "python")
    with TemporaryDirectory() as name:
        copy = Path(name)  # building must not leave files in the checkout
        for source in SOURCES:
            shutil.copy(ROOT / source, copy)
        for room in ROOMS:
            shutil.copytree(ROOT / room, copy / room)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
        subprocess.run([*pip, "install", "--quiet", "--no-deps", str(copy)], check=True)
    return python


def cost(command: Sequence[str], environment: Mapping[str, str]) -> tuple[float, float]:
    """Wall-clock and processor seconds of one process."""
    silence = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2)]
    started = time.perf_counter()
    process = os.posix_spawn(command[0], command, environment, file_actions=silence)
    _, status, usage = os.wait4(process, 0)
    wall_s = time.perf_counter() - started
    check(f"exit code of {' '.join(command)}", os.waitstatus_to_exitcode(status), 0)
    return wall_s, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
