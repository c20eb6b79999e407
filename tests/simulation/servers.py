"""The servers: a broker that stores, confirms, delivers and forgets messages, and a database."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import simpy

from tests.benchmarks.bare import STEP
from tests.simulation.engine import Group, Machine, Signal, Steps, total
from tests.simulation.measured import Costs

AHEAD = 10
"""Steps whose work may be unfinished when they are sent: their times include it on average."""


class Broker:
    def __init__(
        self,
        env: simpy.Environment,
        machine: Machine,
        costs: Costs,
        chance: random.Random,
        capacity: float = float("inf"),
    ) -> None:
        """`capacity`: the number of messages that it stores before it confirms no more."""
        self.machine = machine
        self.up = True
        self.session = 0
        """Grows whenever the broker is lost: deliveries of earlier sessions can't be acked."""
        self.stored = 0
        """Messages on its disk, delivered or not, and those that it is storing."""
        self.queued = 0
        self.confirmed = 0
        """Messages that publishers have a receipt for."""
        self.unacked: dict[Group, None] = {}
        self.queue: deque[Group] = deque()
        self.changed = Signal(env)
        """It has messages for one of those that wait, or is back."""
        self.room = Signal(env)
        self.on_loss: list[Callable[[Broker], None]] = []
        self._env = env
        self._costs = costs
        self._chance = chance
        self._capacity = capacity
        self._at_work: deque[simpy.Event] = deque()
        self._subscription = simpy.Resource(env, 1)
        self._threads = max(math.ceil(costs.deliver / costs.serial_s), 1)
        """At work on one subscription: it needs more processor time than it takes."""

    def send(self, group: Group, timeout_s: float) -> Steps:
        """Store messages; returns whether they were confirmed within `timeout_s`.

        A full broker lets its publishers wait (flow control).
        """
        deadline = self._env.now + timeout_s
        session = self.session
        while self.up and self.stored + group.count > self._capacity:
            left_s = deadline - self._env.now
            if left_s <= 0:
                return False
            yield self.room.wait() | self._env.timeout(left_s)
        if not self.up or self.session != session:
            return False
        self.stored += group.count
        yield from self.machine.work(group.count * self._costs.publish + self._costs.publish_burst)
        yield self._env.timeout(self._costs.receipt_s)
        if self.session != session:  # it got lost, and the publisher has no receipt
            self.stored -= group.count
            return False
        self.queue.append(group)
        self.queued += group.count
        self.confirmed += group.count
        self.changed.wake_one()
        return True

    def preload(self, groups: Iterable[Group]) -> None:
        """Messages that are there from the beginning."""
        for group in groups:
            self.queue.append(group)
            self.queued += group.count
            self.stored += group.count

    def deliver(self, limit: int) -> Steps:
        """Up to `limit` messages, at most a step, when it is this consumer's turn; perhaps none."""
        with self._subscription.request() as turn:
            yield turn
            groups = self._taken(limit)
            if self.queued:
                self.changed.wake_one()
            if not groups:
                return groups
            count = total(groups)
            seconds = count * self._costs.deliver / self._threads
            threads = [self._env.process(self.machine.work(seconds)) for _ in range(self._threads)]
            self._at_work.append(self._env.all_of(threads))
            yield self._env.timeout(self._chance.choice(self._costs.delivery_s) * count / STEP)
            if len(self._at_work) > AHEAD:  # waits only while the cores are too busy
                yield self._at_work.popleft()
        return groups

    def ack(self, session: int, groups: Iterable[Group]) -> None:
        """Forget messages, unless the session is over: then they are delivered again."""
        if session != self.session:
            return
        for group in groups:
            del self.unacked[group]
            self.stored -= group.count
        self.room.send()

    def lose(self) -> None:
        """It stops at once; what it has stored is there when it is back."""
        self.up = False
        self.session += 1
        self.queue.extendleft(reversed(list(self.unacked)))
        self.queued = total(self.queue)
        self.unacked.clear()
        for listener in self.on_loss:
            listener(self)
        self.room.send()

    def back(self) -> None:
        self.up = True
        self.changed.send()

    @property
    def backlog(self) -> int:
        """Messages whose rows are not committed."""
        waiting = sum(group.count for group in self.queue if not group.stored)
        return waiting + sum(group.count for group in self.unacked if not group.stored)

    def _taken(self, limit: int) -> Sequence[Group]:
        groups: list[Group] = []
        if not self.up:
            return groups
        while self.queue and limit > 0:
            first = self.queue[0]
            group = self.queue.popleft() if first.count <= limit else first.split(limit)
            groups.append(group)
            limit -= group.count
            self.queued -= group.count
            self.unacked[group] = None
        return groups


class Database:
    """Rows cost processor time, and commits wait for the disk together."""

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
