"""Publishers that read a pipe for a while: `sam-publish send`, more and fewer of them over time.

Each sends records of one class, one or many in a message, through brokers or through a door. The
rate is that of all of them together, however many there are.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import count, islice
from typing import IO

from tests.soak.records import CLASSES, METRIC_OUTPUT, RecordClass, text_of
from tests.soak.senders import END_S, Home, Kind, Ledger

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
    """`steady` is the input of the long-lived publisher; `rate` records a second are of all."""

    home: Home
    urls: Sequence[str]
    rate: float
    ledger: Ledger
    prefix: str
    midnight: datetime
    steady: IO[bytes]
    alive: int = 0
    """The publishers of results, which share the rate."""

    @property
    def kinds(self) -> list[Kind]:
        slots = [(METRIC_OUTPUT, number) for number in range(PUBLISHERS)]
        slots += [(item, 0) for item in CLASSES.values() if item is not METRIC_OUTPUT]
        names = [(f"{item.name.lower()}{number}", item) for item, number in slots]
        lives = [Kind(name, partial(self.lives, item, name), STEP_S) for name, item in names]
        return [*lives, Kind("steady", self.feed_steady, STEP_S)]

    def feed_steady(self, chance: random.Random) -> Iterator[None]:
        """Write to the publisher that lives as long as the run.

        It has not exited, so nothing is promised yet; but it must have sent all by the next pause.
        """
        clock, numbers, prefix = _Clock(), count(), f"{self.prefix}steady"
        new = [next(numbers)]  # at once: it is an error to send nothing
        while True:
            self._write(self.steady, METRIC_OUTPUT, prefix, new, chance)
            self.ledger.accepted.update(f"{prefix}-{number}" for number in new)
            yield
            new = list(islice(numbers, clock.due(STEADY_SHARE * self.rate)))

    def lives(self, item: RecordClass, name: str, chance: random.Random) -> Iterator[None]:
        """One publisher at a time: it lives, and after a while the next one does."""
        numbers = count()
        # Most begin at once, so that the load is there from the beginning.
        idle_until = time.monotonic() + chance.choice((0.0, 0.0, chance.uniform(*IDLE_S)))
        while True:
            while time.monotonic() < idle_until:
                yield
            yield from self._life(item, name, numbers, chance)
            idle_until = time.monotonic() + chance.uniform(*IDLE_S)

    def _life(
        self, item: RecordClass, name: str, numbers: Iterator[int], chance: random.Random
    ) -> Iterator[None]:
        packed = [] if chance.random() < PACKED_SHARE else ["--one-per-message"]
        urls = chance.sample(self.urls, len(self.urls))
        log = self.home.directory / f"{name}.log"
        with log.open("wb") as stderr:
            command = ["send", "--class", item.name, *packed]
            process = self.home.publisher(f"{name}-{urls[0][-5:]}", command, urls, stderr)
        assert process.stdin
        results = item is METRIC_OUTPUT
        keys, prefix, clock = list[str](), f"{self.prefix}{name}", _Clock()
        ends_at = time.monotonic() + chance.uniform(*LIFE_S)
        self.alive += results
        try:
            while time.monotonic() < ends_at:
                rate = self.rate * item.share / (max(1, self.alive) if results else 1)
                new = list(islice(numbers, clock.due(rate) or int(not keys)))  # at least one
                keys += [f"{prefix}-{number}" for number in new]
                self._write(process.stdin, item, prefix, new, chance)
                yield
        finally:
            self.alive -= results
            with suppress(BrokenPipeError):
                process.stdin.close()
            try:
                code = process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            self.ledger.commands[f"send, {item.name}, from a pipe"] += 1
            (self.ledger.uncertain if code else self.ledger.accepted).update(keys)
            if code:
                self.ledger.failures.append(f"send of {name} -> {code}\n{log.read_text()[-2000:]}")

    def _write(
        self,
        file: IO[bytes],
        item: RecordClass,
        prefix: str,
        numbers: Sequence[int],
        chance: random.Random,
    ) -> None:
        for number in numbers:
            file.write(text_of(item, prefix, number, self.midnight, chance).encode())
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
