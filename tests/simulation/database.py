"""The database: rows cost processor time, and commits wait for the disk together."""

from __future__ import annotations

import random
from collections.abc import Callable

import simpy

from tests.simulation.costs import Costs
from tests.simulation.engine import Machine, Steps


class Database:
    def __init__(
        self, env: simpy.Environment, machine: Machine, costs: Costs, chance: random.Random
    ) -> None:
        self.machine = machine
        self.up = True
        self._env = env
        self._costs = costs
        self._chance = chance
        self._next_flush: simpy.Event | None = None
        self._flushing = False

    def store(self, count: int, on_answer: Callable[[], Steps]) -> Steps:
        """Insert rows and commit; returns False if the database was away, then nothing is stored.

        `on_answer` is what the consumer does after each round trip. Commits that arrive during a
        flush of the log share the next one.
        """
        if not self.up:
            return False
        work_s = count * self._costs.row + self._costs.transaction
        for _ in range(self._costs.round_trips):
            yield from self.machine.work(work_s / self._costs.round_trips)
            yield from on_answer()
        if self._next_flush is None:
            self._next_flush = self._env.event()
        flushed = self._next_flush
        if not self._flushing:
            self._env.process(self._flush())
        yield flushed
        return self.up

    def _flush(self) -> Steps:
        self._flushing = True
        while self._next_flush is not None:
            flushed, self._next_flush = self._next_flush, None
            yield self._env.timeout(self._chance.choice(self._costs.batch_waits_s))
            flushed.succeed()
        self._flushing = False
