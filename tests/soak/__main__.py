"""The long soak: `make soak HOURS=10`.

    python -m tests.soak run --hours 10              adds to build/soak/log.jsonl
    python -m tests.soak run --minutes 20 --brokers artemis rabbitmq --seed 7
    python -m tests.soak totals                      of all runs in the log
    python -m tests.soak growth                      of memory and open files in the last run

A run exits with 1 if a record was lost or stored twice, a program failed, or memory or descriptors
of a process grew; then its logs are kept. SIGINT ends it early, after it has accounted for what was
sent. A killed run counts up to its last finished window.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import combinations, cycle
from pathlib import Path

from tests.services import ServiceMissing
from tests.services.brokers import BROKERS
from tests.services.process import ServerDied
from tests.soak.events import events
from tests.soak.growth import TOOL, growth_lines, leaks
from tests.soak.log import END, RUN, SAMPLE, WINDOW, SoakLog, total_lines
from tests.soak.stage import Stage, standing
from tests.soak.window import Soak, entry_of, missing_answers

LOG = Path("build/soak/log.jsonl")
RATE = 700.0
"""Leaves half of one processor to others on a machine with two."""
SAMPLE_S = 10.0
WINDOW_MINUTES = 1.5
"""All three pairs of brokers have their turn in the first tenth of an hour."""


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments(argv)
    log = SoakLog(args.log)
    if args.command == "totals":
        print("\n".join(total_lines(list(log.entries(WINDOW, END)))))
    elif args.command == "growth":
        print("\n".join(growth_lines(log, log.last_run())))
    else:
        try:
            return _run(args, log)
        except ServiceMissing as reason:
            print(reason, file=sys.stderr)
            return 1
    return 0


def _run(args: argparse.Namespace, log: SoakLog) -> int:
    run = 1 + log.last_run()
    seed = random.randrange(10**6) if args.seed is None else args.seed
    duration_s = 60 * args.minutes if args.minutes else 3600 * args.hours
    # Servers run as other accounts and must be able to enter it.
    directory = Path(tempfile.mkdtemp(prefix="sam-soak-"))
    directory.chmod(0o711)
    tempfile.tempdir = str(directory)
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    log.append(RUN, run, began=began, seed=seed, hours=duration_s / 3600, rate=args.rate)
    print(f"run {run}, seed {seed}, {duration_s / 3600:g} hours, {args.rate:g} records/s")
    problems = _windows(args, log, run, seed, duration_s, directory)
    problems += leaks(log, run)
    log.append(END, run, problems=problems)
    print("\n".join(growth_lines(log, run)))
    for title, of_run in (("this run", run), ("all runs", None)):
        print("\n".join([title, *total_lines(list(log.entries(WINDOW, END, run=of_run)))]))
    if problems:
        print(f"FAILED, logs in {directory}")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0


def _windows(
    args: argparse.Namespace, log: SoakLog, run: int, seed: int, duration_s: float, directory: Path
) -> list[str]:
    """Run windows until the time is over, and log each; the problems, after which it stops."""
    problems: list[str] = []
    turns = cycle([tuple(args.brokers)] if args.brokers else combinations(BROKERS, 2))
    try:
        with standing(directory) as stage:
            soak = Soak(stage, args.rate, seed)
            for stopping in (signal.SIGINT, signal.SIGTERM):
                signal.signal(stopping, lambda *_: soak.ending.set())
            ends_at = time.monotonic() + duration_s
            with _sampling(stage, log, run):
                for number, brokers in enumerate(turns):
                    began = time.monotonic()
                    window_s = min(args.window_minutes * 60, max(0.0, ends_at - began))
                    chosen = events(f"{seed}-{number}")
                    window, reading = soak.window(number, brokers, chosen, window_s)
                    entry = entry_of(window, reading, time.monotonic() - began)
                    log.append(WINDOW, run, **entry)
                    problems += [f"window {number}: {text}" for text in reading.problems]
                    problems += soak.forget(window)
                    shown = ("brokers", "seconds", "messages", "records", "lost", "twice")
                    print(f"  window {number}:", {name: entry[name] for name in shown}, flush=True)
                    if problems or soak.ending.is_set() or time.monotonic() >= ends_at:
                        break
                if not problems:
                    problems += soak.last(window).problems
                    problems += stage.stop_publishers()
                    if not soak.ending.is_set():
                        problems += missing_answers(window.ledger)
    except (AssertionError, ServerDied, TimeoutError) as failure:
        problems.append(f"{type(failure).__name__}: {failure}")
    return problems


@contextmanager
def _sampling(stage: Stage, log: SoakLog, run: int) -> Iterator[None]:
    """Log memory and open files of the steady processes and of this one, inside the block."""
    ending, began = threading.Event(), time.monotonic()

    def sample() -> None:
        while not ending.wait(SAMPLE_S - (time.monotonic() - began) % SAMPLE_S):
            pids = {name: process.pid for name, process in stage.steady.items()}
            rss: dict[str, int] = {}
            descriptors: dict[str, int] = {}
            for name, pid in {**pids, TOOL: os.getpid()}.items():
                with suppress(OSError, IndexError):
                    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                    rss[name] = pages * os.sysconf("SC_PAGE_SIZE")
                    descriptors[name] = len(os.listdir(f"/proc/{pid}/fd"))
            at_s = round(time.monotonic() - began, 1)
            log.append(SAMPLE, run, at_s=at_s, rss=rss, descriptors=descriptors)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join(60)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run for some hours, and add to the log")
    length = run.add_mutually_exclusive_group()
    length.add_argument("--hours", type=float, default=1, help="(default %(default)g)")
    length.add_argument("--minutes", type=float, help="instead of --hours")
    run.add_argument("--rate", type=float, default=RATE, help="records/s (default %(default)g)")
    run.add_argument("--seed", type=int, help="the events to repeat (default: random)")
    run.add_argument("--brokers", nargs=2, choices=BROKERS, help="two brokers (default: all)")
    run.add_argument("--window-minutes", type=float, default=WINDOW_MINUTES, help="of load")
    last_run = commands.add_parser("growth", help="of the processes of the last run")
    all_runs = commands.add_parser("totals", help="print the sums of all runs")
    for command in (run, last_run, all_runs):
        command.add_argument("--log", type=Path, default=LOG, help="(default %(default)s)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
