"""Publishers that read a pipe for a while: `sam-publish send`, more and fewer of them over time.

Each sends records of one class, one or many in a message, through brokers or through a door. The
rate is that of all of them together, however many there are.
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import count, islice
from pathlib import Path
from typing import IO

from tests.kills.senders import END_S, PROGRAM, Kinds, Ledger
from tests.soak.records import CLASSES, METRIC_OUTPUT, RecordClass, text_of

STEP_S = 0.2
PUBLISHERS = 6
"""Of results, at most at a time; each other class has one."""
LIFE_S = (5.0, 90.0)
IDLE_S = (0.0, 40.0)
PACKED_SHARE = 0.1
"""Of the lives in which many records share a message."""
STEADY_SHARE = 0.05
"""Of the records that the long-lived `send` gets."""
MAX_BURST_S = 2.0
"""After a wait, a publisher does not make up for more than this."""


@dataclass
class Crowd:
    """`directory` has the sam.toml of the publishers; `steady` is the input of the long-lived one.

    The methods of `kinds` write to a publisher at each step.
    """

    directory: Path
    environment: Mapping[str, str]
    urls: Sequence[str]
    rate: float
    """Records per second, of all together."""
    ledger: Ledger
    prefix: str
    midnight: datetime
    group: int
    steady: IO[bytes]
    _alive: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def kinds(self) -> Kinds:
        results = [self._slot(METRIC_OUTPUT, number) for number in range(PUBLISHERS)]
        others = [self._slot(item, 0) for item in CLASSES.values() if item is not METRIC_OUTPUT]
        return dict.fromkeys([*results, *others, self.feed_steady], STEP_S)

    def feed_steady(self, chance: random.Random) -> Iterator[None]:
        """Write to the publisher that lives as long as the run.

        It has not exited, so nothing is promised yet; but it must have sent all by the next pause.
        """
        clock, numbers, prefix = _Clock(), count(), f"{self.prefix}steady"
        new = [next(numbers)]  # at once: it is an error to send nothing
        while True:
            self._write(self.steady, self._texts(METRIC_OUTPUT, prefix, new, chance))
            self.ledger.accepted.update(f"{prefix}-{number}" for number in new)
            yield
            new = list(islice(numbers, clock.due(STEADY_SHARE * self.rate)))

    def _slot(
        self, record_class: RecordClass, number: int
    ) -> Callable[[random.Random], Iterator[None]]:
        """One publisher at a time: it lives, and after a while the next one does."""
        name = f"{record_class.name.lower()}{number}"

        def lives(chance: random.Random) -> Iterator[None]:
            numbers = count()
            # Most begin at once, so that the load is there from the beginning.
            idle_until = time.monotonic() + chance.choice((0.0, 0.0, chance.uniform(*IDLE_S)))
            while True:
                while time.monotonic() < idle_until:
                    yield
                yield from self._life(record_class, name, numbers, chance)
                idle_until = time.monotonic() + chance.uniform(*IDLE_S)

        lives.__name__ = name
        return lives

    def _life(
        self, record_class: RecordClass, name: str, numbers: Iterator[int], chance: random.Random
    ) -> Iterator[None]:
        packed = [] if chance.random() < PACKED_SHARE else ["--one-per-message"]
        urls = chance.sample(self.urls, len(self.urls))
        log = self.directory / f"{name}.log"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [PROGRAM, "send", "--class", record_class.name, *packed]
                + [part for url in urls for part in ("--broker", url)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                cwd=self.directory,
                env={
                    **self.environment,
                    "STATE_DIRECTORY": str(self.directory / "state" / f"{name}-{urls[0][-5:]}"),
                },
                process_group=self.group,
            )
        assert process.stdin
        results = record_class is METRIC_OUTPUT
        keys, prefix, clock = list[str](), f"{self.prefix}{name}", _Clock()
        ends_at = time.monotonic() + chance.uniform(*LIFE_S)
        with self._lock:
            self._alive += results
        try:
            while time.monotonic() < ends_at:
                rate = self.rate * record_class.share / (max(1, self._alive) if results else 1)
                new = list(islice(numbers, clock.due(rate) or int(not keys)))  # at least one
                keys += [f"{prefix}-{number}" for number in new]
                self._write(process.stdin, self._texts(record_class, prefix, new, chance))
                yield
        finally:
            with self._lock:
                self._alive -= results
            with suppress(BrokenPipeError):
                process.stdin.close()
            try:
                code = process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            self.ledger.commands[f"send, {record_class.name}, from a pipe"] += 1
            (self.ledger.uncertain if code else self.ledger.accepted).update(keys)
            if code:
                self.ledger.failures.append(f"send of {name} -> {code}\n{log.read_text()[-2000:]}")

    def _texts(
        self, item: RecordClass, prefix: str, numbers: Sequence[int], chance: random.Random
    ) -> str:
        texts = (text_of(item, prefix, number, self.midnight, chance) for number in numbers)
        return "".join(texts)

    def _write(self, file: IO[bytes], text: str) -> None:
        file.write(text.encode())
        file.flush()


class _Clock:
    """How many records are due since the last call."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._rest = 0.0

    def due(self, rate: float) -> int:
        now = time.monotonic()
        self._rest += rate * min(now - self._last, MAX_BURST_S)
        self._last = now
        whole = int(self._rest)
        self._rest -= whole
        return whole
