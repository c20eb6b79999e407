"""`sam-publish` processes that send numbered records, in threads, until the block ends.

senders = Senders(directory, os.environ, urls)
with sending(senders.kinds, senders.ledger, seed):
    ...
assert not senders.ledger.failures
"""

from __future__ import annotations

import random
import subprocess
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tests.support.commands import PROGRAMS
from tests.support.conservation import FIRST_TIMESTAMP, keys_of, numbered

PROGRAM = str(PROGRAMS / "sam-publish")
PACKED, SINGLE, RAW = 150, 20, 10
"""Records of a command: packed into few messages, one per message, one unchanged message."""
BAD_EVERY = 3 * RAW
"""Every n-th record of the unchanged messages has a status that does not exist."""
KILLED_EVERY = 6
UNSPOOLED_EVERY = 10
DRAINED_EVERY_S = 20.0
PAUSE_S = 0.4
END_S = 120.0

OK, NO_BROKER, LOCKED = 0, 69, 75
KINDS = ("result", "send", "spool", "drain", "--one-per-message", "--raw", "--no-spool")
"""The parts of a command by which the commands are counted."""

Kinds = Mapping[Callable[[random.Random], Iterator[None]], float]
"""Iterators that send something at each step, and the pause between two steps in seconds."""


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
class Senders:
    """Commands that run in `directory`, whose sam.toml configures destination and spool.

    The methods that are iterators run a command at each step.
    """

    directory: Path
    environment: Mapping[str, str]
    urls: Sequence[str]
    ledger: Ledger = field(default_factory=Ledger)
    prefix: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    first_timestamp: int = FIRST_TIMESTAMP
    group: int | None = None
    """The process group of the commands, if not ours."""

    @property
    def kinds(self) -> Kinds:
        return {
            self.one_shots: PAUSE_S,
            self.packed: 2 * PAUSE_S,
            self.singles: PAUSE_S,
            self.raw: PAUSE_S,
            self.drains: DRAINED_EVERY_S,
        }

    def one_shots(self, chance: random.Random) -> Iterator[None]:
        """One record per command; some commands are killed, some may not spool."""
        for number in count():
            [record] = self._records("one", [number])
            fields = dict(line.split(": ", 1) for line in record.splitlines() if ": " in line)
            command = ["result", "--metric", fields["metricName"], "--host", fields["hostName"]]
            command += ["--flavour", "CE", "--status", "OK", "--summary", fields["summaryData"]]
            command += ["--timestamp", fields["timestamp"]]
            unspooled = number % UNSPOOLED_EVERY == UNSPOOLED_EVERY - 1
            command += ["--no-spool"] if unspooled else []
            killed = number % KILLED_EVERY == KILLED_EVERY - 1
            kill_after_s = chance.uniform(0, 0.2) if killed else None
            self.send(chance, command, keys_of(record.encode()), kill_after_s=kill_after_s)
            yield

    def packed(self, chance: random.Random) -> Iterator[None]:
        """Many records on standard input, packed; some commands are killed on their way."""
        for start in count(step=PACKED):
            text = "".join(self._records("packed", range(start, start + PACKED)))
            killed = start // PACKED % KILLED_EVERY == KILLED_EVERY - 1
            kill_after_s = chance.uniform(0.05, 0.3) if killed else None
            self.send(chance, ["send"], keys_of(text.encode()), text, kill_after_s)
            yield

    def singles(self, chance: random.Random) -> Iterator[None]:
        for start in count(step=SINGLE):
            text = "".join(self._records("single", range(start, start + SINGLE)))
            self.send(chance, ["send", "--one-per-message"], keys_of(text.encode()), text)
            yield

    def raw(self, chance: random.Random) -> Iterator[None]:
        """Messages of good and bad records, which the publisher does not look at."""
        for start in count(step=RAW):
            numbers = range(start, start + RAW)
            bad = [number for number in numbers if number % BAD_EVERY == BAD_EVERY - 1]
            good = [number for number in numbers if number not in bad]
            text = "".join(self._records("raw", good))
            wrong = "".join(self._records("raw", bad, metricStatus="SPLENDID"))
            self.ledger.bad.update(keys_of(wrong.encode()))
            self.send(chance, ["send", "--raw"], keys_of((text + wrong).encode()), text + wrong)
            yield

    def drains(self, chance: random.Random) -> Iterator[None]:
        while True:
            self.drain(chance)
            yield

    def drain(self, chance: random.Random) -> int:
        """Send what is in the spool; the exit code is 69 if no broker took it.

        It is 75 if other publishers, which may have been killed, were sending some of it, too.
        """
        return self._run(chance, ["spool", "drain"], (OK, NO_BROKER, LOCKED))

    def send(
        self,
        chance: random.Random,
        command: Sequence[str],
        keys: Sequence[str],
        text: str = "",
        kill_after_s: float | None = None,
    ) -> None:
        """Run the command for records with these keys, and enter its promise in the ledger."""
        allowed = (OK, NO_BROKER) if "--no-spool" in command else (OK,)
        code = self._run(chance, command, allowed, text, kill_after_s)
        (self.ledger.accepted if code == OK else self.ledger.uncertain).update(keys)

    def _run(
        self,
        chance: random.Random,
        command: Sequence[str],
        allowed: Sequence[int],
        text: str = "",
        kill_after_s: float | None = None,
    ) -> int:
        """The exit code, negative after a kill.

        The brokers come in random order. Each order has a state directory of its own, as publishers
        prefer the broker that worked last: otherwise one of them would get everything.
        """
        kind = " ".join(part for part in command if part in KINDS)
        urls = chance.sample(self.urls, len(self.urls))
        memory = self.directory / "state" / f"{kind.replace(' ', '')}-{self.urls.index(urls[0])}"
        process = subprocess.Popen(
            [PROGRAM, *command, *(part for url in urls for part in ("--broker", url))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=self.directory,
            env={**self.environment, "STATE_DIRECTORY": str(memory)},
            process_group=self.group,
        )
        timer = threading.Timer(END_S if kill_after_s is None else kill_after_s, process.kill)
        timer.start()
        _, log = process.communicate(text.encode())
        timer.cancel()
        code = process.returncode
        self.ledger.commands[kind if code >= 0 else f"{kind}, killed"] += 1
        if code not in allowed and not (code < 0 and kill_after_s is not None):
            shown = " ".join(command)
            self.ledger.failures.append(f"sam-publish {shown} -> {code}\n{log.decode()}")
        return code

    def _records(self, kind: str, numbers: Sequence[int], **changes: str) -> list[str]:
        messages = numbered(f"{self.prefix}{kind}", numbers, self.first_timestamp, **changes)
        return [message.body.decode() for message in messages]


@contextmanager
def sending(kinds: Kinds, ledger: Ledger, seed: int) -> Iterator[None]:
    """Run all kinds inside the block; on leaving it they have all ended."""
    ending = threading.Event()

    def run(kind: Callable[[random.Random], Iterator[None]], pause_s: float, chance: int) -> None:
        try:
            for _ in kind(random.Random(chance)):
                if ending.wait(pause_s):
                    return
        except BaseException as error:
            ledger.failures.append(f"{kind.__name__}: {error!r}")
            raise

    threads = [
        threading.Thread(target=run, args=(kind, pause_s, seed + number))
        for number, (kind, pause_s) in enumerate(kinds.items())
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        for thread in threads:
            thread.join(2 * END_S)
