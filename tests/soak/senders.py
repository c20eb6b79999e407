"""`sam-publish` processes that send numbered records, in threads, until the block ends.

with sending(senders.kinds, senders.ledger, seed):
    ...
assert not senders.ledger.failures
"""

from __future__ import annotations

import os
import random
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import IO, NamedTuple

from tests.support.commands import PROGRAMS
from tests.support.conservation import keys_of, numbered

PACKED, SINGLE, RAW = 150, 20, 10
"""Records of a command: packed into few messages, one per message, one unchanged message."""
BAD_EVERY = 3 * RAW
"""Every n-th record of the unchanged messages has a status that does not exist."""
KILLED_EVERY = 6
UNSPOOLED_EVERY = 10
DRAINED_EVERY_S = 60.0
PAUSE_S = 1.2
END_S = 120.0

OK, NO_BROKER, LOCKED = 0, 69, 75
KINDS = ("result", "send", "spool", "drain", "--one-per-message", "--raw", "--no-spool")
"""The parts of a command by which the commands are counted."""


class Kind(NamedTuple):
    """An iterator that sends something at each step, and the pause between two steps."""

    name: str
    steps: Callable[[random.Random], Iterator[None]]
    pause_s: float


@dataclass
class Ledger:
    """The keys of all records, by what exit codes of `sam-publish` and HTTP statuses promise."""

    accepted: set[str] = field(default_factory=set)
    """Exit code 0: a broker or the spool has them. HTTP status 2xx: the door has stored them."""
    uncertain: set[str] = field(default_factory=set)
    """Killed, or exit code 69 with --no-spool, or posted without an answer so far."""
    bad: set[str] = field(default_factory=set)
    """Those that can never become rows."""
    commands: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    """To HTTP clients, by door and status."""
    failures: list[str] = field(default_factory=list)
    """Commands with any other exit code, with their log, and wrong answers of a door."""


@dataclass(frozen=True)
class Home:
    """A directory whose sam.toml configures destination and spool, and a group of processes."""

    directory: Path
    group: int

    def publisher(
        self, state: str, command: Sequence[str], urls: Sequence[str], log: int | IO[bytes]
    ) -> subprocess.Popen[bytes]:
        """Start `sam-publish` with the state directory of this name."""
        program = str(PROGRAMS / "sam-publish")
        return subprocess.Popen(
            [program, *command, *(part for url in urls for part in ("--broker", url))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd=self.directory,
            env={**clean_environment(), "STATE_DIRECTORY": str(self.directory / "state" / state)},
            process_group=self.group,
        )


@dataclass(frozen=True)
class Senders:
    """Commands that end by themselves; the methods that are iterators run one at each step."""

    home: Home
    urls: Sequence[str]
    ledger: Ledger
    prefix: str
    first_timestamp: int

    @property
    def kinds(self) -> list[Kind]:
        one_per_message = ["send", "--one-per-message"]
        return [
            Kind("one-shots", self.one_shots, PAUSE_S),
            Kind("packed", partial(self.many, "packed", PACKED, ["send"]), 2 * PAUSE_S),
            Kind("single", partial(self.many, "single", SINGLE, one_per_message), PAUSE_S),
            Kind("raw", partial(self.many, "raw", RAW, ["send", "--raw"]), PAUSE_S),
            Kind("drains", self.drains, DRAINED_EVERY_S),
        ]

    def one_shots(self, chance: random.Random) -> Iterator[None]:
        """One record per command; some commands are killed, some may not spool."""
        for number in count():
            record = self._records("one", [number])
            fields = dict(line.split(": ", 1) for line in record.splitlines() if ": " in line)
            command = ["result", "--metric", fields["metricName"], "--host", fields["hostName"]]
            command += ["--flavour", "CE", "--status", "OK", "--summary", fields["summaryData"]]
            command += ["--timestamp", fields["timestamp"]]
            command += ["--no-spool"] if number % UNSPOOLED_EVERY == UNSPOOLED_EVERY - 1 else []
            killed = number % KILLED_EVERY == KILLED_EVERY - 1
            kill_after_s = chance.uniform(0, 0.2) if killed else None
            self.run(chance, command, "", keys_of(record.encode()), kill_after_s)
            yield

    def many(
        self, kind: str, size: int, command: Sequence[str], chance: random.Random
    ) -> Iterator[None]:
        """Many records on standard input: packed ones are killed now and then, raw ones are bad."""
        for start in count(step=size):
            numbers = range(start, start + size)
            bad = [n for n in numbers if kind == "raw" and n % BAD_EVERY == BAD_EVERY - 1]
            text = self._records(kind, [number for number in numbers if number not in bad])
            wrong = self._records(kind, bad, metricStatus="SPLENDID")
            self.ledger.bad.update(keys_of(wrong.encode()))
            killed = kind == "packed" and start // size % KILLED_EVERY == KILLED_EVERY - 1
            kill_after_s = chance.uniform(0.05, 0.3) if killed else None
            self.run(chance, command, text + wrong, keys_of((text + wrong).encode()), kill_after_s)
            yield

    def drains(self, chance: random.Random) -> Iterator[None]:
        """Send what is in the spool.

        The exit code is 69 if no broker took it, 75 if other publishers, which may have been
        killed, were sending some of it, too.
        """
        while True:
            self.run(chance, ["spool", "drain"])
            yield

    def run(
        self,
        chance: random.Random,
        command: Sequence[str],
        text: str = "",
        keys: Sequence[str] = (),
        kill_after_s: float | None = None,
    ) -> None:
        """Run the command for records with these keys, and enter its promise in the ledger.

        The brokers come in random order. Each order has a state directory of its own, as publishers
        prefer the broker that worked last: otherwise one of them would get everything.
        """
        kind = " ".join(part for part in command if part in KINDS)
        urls = chance.sample(self.urls, len(self.urls))
        state = f"{kind.replace(' ', '')}-{self.urls.index(urls[0])}"
        process = self.home.publisher(state, command, urls, subprocess.PIPE)
        timer = threading.Timer(END_S if kill_after_s is None else kill_after_s, process.kill)
        timer.start()
        _, log = process.communicate(text.encode())
        timer.cancel()
        code = process.returncode
        self.ledger.commands[kind if code >= 0 else f"{kind}, killed"] += 1
        allowed = {"drain": (OK, NO_BROKER, LOCKED), "--no-spool": (OK, NO_BROKER)}
        if code not in allowed.get(command[-1], (OK,)) and (code >= 0 or kill_after_s is None):
            shown = " ".join(command)
            self.ledger.failures.append(f"sam-publish {shown} -> {code}\n{log.decode()}")
        (self.ledger.accepted if code == OK else self.ledger.uncertain).update(keys)

    def _records(self, kind: str, numbers: Sequence[int], **changes: str) -> str:
        messages = numbered(f"{self.prefix}{kind}", numbers, self.first_timestamp, **changes)
        return "".join(message.body.decode() for message in messages)


@contextmanager
def sending(
    kinds: Sequence[Kind], ledger: Ledger, seed: int, pausing: threading.Event | None = None
) -> Iterator[None]:
    """Run all kinds inside the block, none of which sends while `pausing` is set.

    On leaving it they have all ended.
    """
    ending = threading.Event()

    def run(kind: Kind, chance: random.Random) -> None:
        try:
            for _ in kind.steps(chance):
                while not ending.wait(kind.pause_s) and pausing is not None and pausing.is_set():
                    pass
                if ending.is_set():
                    return
        except BaseException as error:
            ledger.failures.append(f"{kind.name}: {error!r}")
            raise

    threads = [
        threading.Thread(target=run, args=(kind, random.Random(seed + number)))
        for number, kind in enumerate(kinds)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        for thread in threads:
            thread.join(2 * END_S)


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("SAM_")}
