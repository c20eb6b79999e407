"""A consumer process: threads that read from brokers, one that takes batches, loads and acks."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import simpy

from sam_pipeline.consumer.core.backoff import growing_delays
from sam_pipeline.consumer.core.inbox import BatchRule
from sam_pipeline.schema.net.channel import RECEIVE_BYTES
from tests.benchmarks.bare import STEP
from tests.simulation.engine import Group, Ledger, Machine, Signal, Steps, total
from tests.simulation.measured import Costs
from tests.simulation.servers import Broker, Database

FRAME_BYTES = 700
"""Of a message that a broker sends, with its headers."""

SWITCHING_S = 0.005
"""How long a thread of Python has the interpreter while others wait for it."""
READ_LIMIT = RECEIVE_BYTES // FRAME_BYTES
"""Messages that one system call receives at most."""


class Read(NamedTuple):
    """Messages that were received, with the session that may ack them."""

    groups: Sequence[Group]
    broker: Broker
    session: int


class Consumer:
    """One process: its threads share one interpreter, except while they wait for the database."""

    def __init__(
        self,
        env: simpy.Environment,
        machine: Machine,
        costs: Costs,
        brokers: Sequence[Broker],
        database: Database,
        ledger: Ledger,
        chance: random.Random,
        prefetch: int,
        rule: BatchRule,
    ) -> None:
        self._env = env
        self._machine = machine
        self._costs = costs
        self._database = database
        self._ledger = ledger
        self._chance = chance
        self._prefetch = prefetch
        self._rule = rule._replace(size=min(rule.size, max(prefetch // 2, 1)))
        self._interpreter = simpy.Resource(env, 1)
        self._switching_s = max(SWITCHING_S, machine.quantum_s)
        self._inbox: deque[Read] = deque()
        self._sockets: dict[Broker, deque[Read]] = {broker: deque() for broker in brokers}
        self._unacked = dict.fromkeys(brokers, 0)
        self._received = Signal(env)
        self._arrived = Signal(env)
        self._acked = Signal(env)
        for broker in brokers:
            broker.on_loss.append(self._discard)
            env.process(self._receive(broker))
            env.process(self._read(broker))
        env.process(self._run())

    def _receive(self, broker: Broker) -> Steps:
        """Let the broker fill the socket, up to the prefetch limit."""
        while True:
            limit = min(self._prefetch - self._unacked[broker], STEP)
            if not broker.up or not broker.queued:
                yield broker.changed.wait()
            elif limit <= 0:
                yield self._acked.wait()
            else:
                session = broker.session
                groups = yield from broker.deliver(limit)
                if groups and broker.session == session:
                    self._unacked[broker] += total(groups)
                    self._sockets[broker].append(Read(groups, broker, session))
                    self._received.send()

    def _read(self, broker: Broker) -> Steps:
        """Read what has arrived, as much as one call returns.

        Both system calls, to poll and to receive, let other threads have the interpreter.
        """
        socket = self._sockets[broker]
        while True:
            while not socket:
                yield self._received.wait()
            with self._interpreter.request() as turn:
                yield turn
            portions: list[Read] = []
            count = 0
            while socket and count < READ_LIMIT:
                portions.append(socket.popleft())
                count += total(portions[-1].groups)
            yield from self._compute(count * self._costs.read)
            self._inbox.extend(read for read in portions if read.session == broker.session)
            self._arrived.send()

    def _run(self) -> Steps:
        while True:
            batch = yield from self._take()
            count = sum(total(read.groups) for read in batch)
            yield from self._compute(count * self._costs.load)
            yield from self._store(count)
            for read in batch:
                self._ledger.store(read.groups, self._env.now)
                read.broker.ack(read.session, read.groups)
                if read.session == read.broker.session:
                    self._unacked[read.broker] -= total(read.groups)
            self._acked.send()

    def _take(self) -> Steps:
        """A batch, by the rule of the real consumer."""
        rule = self._rule
        while not self._inbox:
            yield self._arrived.wait()
        batch: list[Read] = []
        count = 0
        ready_at = self._env.now + rule.age_s
        while True:
            moved = len(batch)
            while self._inbox and count < rule.size:
                batch.append(self._inbox.popleft())
                count += total(batch[-1].groups)
            left_s = ready_at - self._env.now
            if count >= rule.size or left_s <= 0 or len(batch) == moved:
                return batch
            yield self._arrived.wait() | self._env.timeout(min(rule.silence_s, left_s))

    def _store(self, count: int) -> Steps:
        """Try until the batch is committed."""

        def work() -> Steps:
            yield from self._compute(self._costs.load_batch / self._costs.round_trips)

        for delay_s in growing_delays(uniform=self._chance.uniform):
            if (yield from self._database.store(count, work)):
                return
            yield self._env.timeout(delay_s)

    def _compute(self, seconds: float) -> Steps:
        """Work on a core, and let other threads in after each switching interval."""
        left_s = seconds
        while left_s > 0:
            with self._interpreter.request() as turn:
                yield turn
                now_s = min(left_s, self._switching_s)
                yield from self._machine.work(now_s)
            left_s -= now_s

    def _discard(self, broker: Broker) -> None:
        """The broker got lost: it delivers its unacked messages again."""
        self._sockets[broker].clear()
        self._inbox = deque(read for read in self._inbox if read.broker is not broker)
        self._unacked[broker] = 0
        self._acked.send()
