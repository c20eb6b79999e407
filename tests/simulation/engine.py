"""What the parts of the model share: machines with cores, signals, messages, and the ledger."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

import simpy

Steps = Generator[simpy.Event, Any, Any]
"""A part of a SimPy process."""

QUANTUM_S = 0.002
"""How long a task has a core before it is another one's turn."""


class Machine:
    """Cores that tasks share, a quantum at a time."""

    def __init__(self, env: simpy.Environment, cores: int, quantum_s: float = QUANTUM_S) -> None:
        self.cores = cores
        self.quantum_s = quantum_s
        self.used_s = 0.0
        self._env = env
        self._turns = simpy.PriorityResource(env, cores)

    def work(self, seconds: float, priority: int = 1) -> Steps:
        """Use one core for this time, in all; tasks of a lower priority number go first."""
        left_s = seconds
        while left_s > 0:
            with self._turns.request(priority) as turn:
                yield turn
                now_s = min(left_s, self.quantum_s)
                yield self._env.timeout(now_s)
            left_s -= now_s
            self.used_s += now_s


class Signal:
    """Wakes those that wait for it: the first, or all."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._waiting: deque[simpy.Event] = deque()

    def wait(self) -> simpy.Event:
        self._waiting.append(self._env.event())
        return self._waiting[-1]

    def wake_one(self) -> None:
        if self._waiting:
            self._waiting.popleft().succeed()

    def send(self) -> None:
        while self._waiting:
            self.wake_one()


@dataclass(eq=False)
class Group:
    """Messages that travel together; once `stored`, their rows are committed."""

    count: int
    made_at: float
    stored: bool = False

    def split(self, count: int) -> Group:
        """Take this number of messages out."""
        self.count -= count
        return Group(count, self.made_at, self.stored)


def total(groups: Iterable[Group]) -> int:
    return sum(group.count for group in groups)


@dataclass
class Ledger:
    """Where every message is: none is created or lost elsewhere."""

    made: int = 0
    sending: int = 0
    """A publisher has them, and waits for a broker."""
    refused: int = 0
    """Neither a broker nor the spool took them, so the publisher failed."""
    rows: int = 0
    repeated: int = 0
    """Messages that were delivered again after their rows were committed."""
    lags: list[tuple[float, int, float]] = field(default_factory=list)
    """Of each stored group: when it was made, its count, and the time until its commit (s)."""

    def store(self, groups: Iterable[Group], now: float) -> None:
        for group in groups:
            if group.stored:
                self.repeated += group.count
                continue
            group.stored = True
            self.rows += group.count
            self.lags.append((group.made_at, group.count, now - group.made_at))

    def lag_s(self, share: float, since: float = 0.0, until: float = float("inf")) -> float:
        """The lag that this share of the messages made between two times did not exceed."""
        lags = sorted((lag, count) for made, count, lag in self.lags if since <= made < until)
        limit, seen = share * sum(count for _, count in lags), 0
        for lag, count in lags:
            seen += count
            if seen >= limit:
                return lag
        return float("nan")
