"""Brokers, consumers, a database and publishers, put together and run."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import simpy

from sam_pipeline.consumer.core.inbox import BatchRule
from tests.simulation.consumer import Consumer
from tests.simulation.engine import QUANTUM_S, Group, Ledger, Machine, Steps
from tests.simulation.measured import Costs
from tests.simulation.publishers import Clients, Habits
from tests.simulation.servers import Broker, Database

RULE = BatchRule(size=2000, age_s=0.1)
"""The default of the consumer."""
BACKLOG_GROUP = 100


class Moment(NamedTuple):
    """The state of a world at a time (s), in real messages; counts are since the beginning."""

    at: float
    rows: int
    refused: int
    spooled: int
    backlogs: tuple[int, ...]
    """Of each broker."""

    @property
    def backlog(self) -> int:
        return sum(self.backlogs)


@dataclass
class World:
    """Everything that takes part; `seed` decides all that is left to chance.

    With `shared_cores` all brokers, consumers and the database share one machine of that many
    cores. Otherwise each broker has a machine of its own, the consumers have one with a core each,
    and the database has one. With a `grain`, one message stands for that many real ones, and one
    batch for that many batches; rates, capacities and counts are those of the model's messages.
    """

    costs: Costs
    brokers_count: int
    consumers_count: int
    shared_cores: int | None = None
    broker_cores: int = 8
    database_cores: int = 16
    prefetch: int = 2000
    capacity: float = float("inf")
    """Messages that a broker stores before it lets publishers wait."""
    quantum_s: float = QUANTUM_S
    grain: int = 1
    seed: int = 1
    ledger: Ledger = field(default_factory=Ledger, init=False)
    moments: list[Moment] = field(default_factory=list, init=False)
    clients: list[Clients] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.env = env = simpy.Environment()
        self.chance = chance = random.Random(self.seed)
        costs = self.costs.times(self.grain)
        rule = RULE._replace(age_s=RULE.age_s * self.grain, silence_s=RULE.silence_s * self.grain)
        shared = self._machine(self.shared_cores) if self.shared_cores else None
        self.database = Database(env, shared or self._machine(self.database_cores), costs, chance)
        self.brokers = [
            Broker(env, shared or self._machine(self.broker_cores), costs, chance, self.capacity)
            for _ in range(self.brokers_count)
        ]
        self.consumer_machine = machine = shared or self._machine(self.consumers_count)
        world = (self.brokers, self.database, self.ledger, chance, self.prefetch, rule)
        for _ in range(self.consumers_count):
            Consumer(env, machine, costs, *world)

    def add_backlog(self, messages: int) -> None:
        """Messages that wait at the brokers from the beginning."""
        share = messages // len(self.brokers)
        for broker in self.brokers:
            groups = [Group(BACKLOG_GROUP, self.env.now) for _ in range(share // BACKLOG_GROUP)]
            broker.preload(groups)
            self.ledger.made += BACKLOG_GROUP * len(groups)

    def add_clients(
        self, groups: int, clients: float, rate: float, tick_s: float, habits: Habits
    ) -> Sequence[Clients]:
        """`groups` of clients, which are `clients` in all, with `rate` messages a second in all.

        As with thousands of shuffled lists, each broker is the first one of equally many, and the
        clients of one broker have different second ones.
        """
        own = {"clients": clients / groups, "rate": rate / groups, "tick_s": tick_s}
        for number in range(groups):
            order = self._order(number)
            new = Clients(self.env, order, self.ledger, self.chance, habits=habits, **own)
            self.clients.append(new)
        return self.clients[-groups:]

    def add_load(self, cores: float) -> None:
        """Other programs on the shared machine, which get this many cores whoever else waits."""
        assert self.shared_cores

        def load(share: float) -> Steps:
            next_at = self.env.now
            while True:
                yield from self.consumer_machine.work(QUANTUM_S * share, priority=0)
                next_at += QUANTUM_S
                yield self.env.timeout(max(next_at - self.env.now, 0.0))

        programs = 4 * self.shared_cores  # one of them waits whenever a core gets free
        for _ in range(programs):
            self.env.process(load(cores / programs))

    def at(self, moment_s: float, action: Callable[[], object]) -> None:
        """Do something at a time."""

        def wait() -> Steps:
            yield self.env.timeout(moment_s)
            action()

        self.env.process(wait())

    def watch(self, every_s: float) -> None:
        """Note the state again and again."""

        def note() -> Steps:
            while True:
                counts = (self.ledger.rows, self.ledger.refused, self.spooled)
                rows, refused, spooled = (self.grain * count for count in counts)
                backlogs = tuple(self.grain * broker.backlog for broker in self.brokers)
                self.moments.append(Moment(self.env.now, rows, refused, spooled, backlogs))
                yield self.env.timeout(every_s)

        self.env.process(note())

    def run(self, until_s: float) -> None:
        self.env.run(until=until_s)
        self.check_conservation()

    @property
    def spooled(self) -> int:
        return sum(group.spooled for group in self.clients)

    def check_conservation(self) -> None:
        """Every message is a row, in a spool, at a broker, being sent, or refused."""
        ledger = self.ledger
        backlog = sum(broker.backlog for broker in self.brokers)
        found = ledger.rows + ledger.refused + ledger.sending + self.spooled + backlog
        # A broker has stored messages for which the publisher has no receipt yet: never twice.
        if found != ledger.made:
            raise AssertionError(f"{ledger.made} messages were made, but {found} found")

    def _order(self, number: int) -> Sequence[Broker]:
        """The order of the brokers for a group: first and second in turn, then by chance."""
        count = len(self.brokers)
        first = self.brokers[number % count]
        others = [broker for broker in self.brokers if broker is not first]
        if others:
            second = others.pop((number + number // count) % len(others))
            return [first, second, *self.chance.sample(others, len(others))]
        return [first]

    def _machine(self, cores: int) -> Machine:
        return Machine(self.env, cores, self.quantum_s)
