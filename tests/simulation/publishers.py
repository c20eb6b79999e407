"""Publishers: a shuffled list of brokers, the one that worked last first, else the spool."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import simpy

from sam_pipeline.publisher.delivery.drain import BATCH, IDLE_WAIT_S, MAX_WAIT_S, MIN_WAIT_S
from sam_pipeline.publisher.delivery.memory import MAX_REST_S, MIN_REST_S
from tests.simulation.engine import Group, Ledger, Steps
from tests.simulation.servers import Broker


@dataclass(frozen=True)
class Habits:
    """How publishers are configured."""

    timeout_s: float = 10.0
    spool_max_messages: float = 100_000
    """Of one client."""
    drain_rate: float = 1000.0
    """Messages a second that one `spool drain --loop` sends, if the broker takes them."""


class Clients:
    """Clients that drew the same order of the brokers, and behave alike.

    They make messages at an even pace; those of one tick travel as one group. Each group is sent by
    itself, as if by commands that do not wait for one another.
    """

    def __init__(
        self,
        env: simpy.Environment,
        order: Sequence[Broker],
        ledger: Ledger,
        chance: random.Random,
        *,
        clients: float,
        rate: float,
        tick_s: float,
        habits: Habits,
    ) -> None:
        """`clients` share the limits of `habits`, and make `rate` messages a second in all.

        They try the brokers in this order.
        """
        self.reachable = True
        """Whether the network leads to the brokers."""
        self.spool: deque[Group] = deque()
        self._env = env
        self._brokers = order
        self._ledger = ledger
        self._chance = chance
        self._clients = clients
        self._rate = rate
        self._tick_s = tick_s
        self._habits = habits
        self._last: Broker | None = None
        self._failures: dict[Broker, int] = {}
        self._rests_until: dict[Broker, float] = {}
        self.spooled = 0
        """Messages in the spool, those that are being sent among them."""
        env.process(self._make())
        env.process(self._drain())

    def _make(self) -> Steps:
        yield self._env.timeout(self._chance.uniform(0, self._tick_s))
        due = 0.0
        while True:
            due += self._rate * self._tick_s
            count = int(due)
            due -= count
            if count:
                self._ledger.made += count
                self._ledger.sending += count
                self._env.process(self._publish(Group(count, self._env.now)))
            yield self._env.timeout(self._tick_s)

    def _publish(self, group: Group) -> Steps:
        confirmed = yield from self._send(group, ask_all=False)
        self._ledger.sending -= group.count
        if confirmed:
            return
        room = int(self._habits.spool_max_messages * self._clients) - self.spooled
        if group.count > room:
            self._ledger.refused += group.split(min(group.count - room, group.count)).count
        if group.count:
            self.spool.append(group)
            self.spooled += group.count

    def _send(self, group: Group, *, ask_all: bool) -> Steps:
        """Try the brokers in order, with `ask_all` also those that rest; one deadline for all."""
        deadline = self._env.now + self._habits.timeout_s
        candidates = list(self._candidates(ask_all))
        for position, broker in enumerate(candidates):
            share_s = (deadline - self._env.now) / (len(candidates) - position)
            tried = self.reachable and share_s > 0
            if tried and (yield from broker.send(group, share_s)):
                self._last = broker
                self._failures.pop(broker, None)
                return True
            self._failed(broker)
        return False

    def _candidates(self, ask_all: bool) -> Iterator[Broker]:
        awake = [b for b in self._brokers if self._rests_until.get(b, 0) <= self._env.now]
        order = self._brokers if ask_all else awake
        if self._last is not None and self._last in order:
            yield self._last
        yield from (broker for broker in order if broker is not self._last)

    def _failed(self, broker: Broker) -> None:
        """It rests: 5 s after the first failure, then twice as long, up to 5 min."""
        if self._rests_until.get(broker, 0) > self._env.now:
            return
        failures = self._failures[broker] = self._failures.get(broker, 0) + 1
        rest_s = min(MAX_REST_S, MIN_REST_S * 2 ** min(failures - 1, 20))
        self._rests_until[broker] = self._env.now + rest_s * self._chance.uniform(0.5, 1.5)

    def _drain(self) -> Steps:
        """`sam-publish spool drain --loop` of each client, as one."""
        wait_s = MIN_WAIT_S
        while True:
            sent = yield from self._drain_once()
            longest_s = MAX_WAIT_S if self.spool else IDLE_WAIT_S
            wait_s = MIN_WAIT_S if sent else min(2 * wait_s, longest_s)
            yield self._env.timeout(wait_s * self._chance.uniform(0.5, 1.0))

    def _drain_once(self) -> Steps:
        """Send the spool until no broker takes a group; returns whether one was sent."""
        sent = False
        while self.spool and self.reachable:
            group = self.spool.popleft()
            limit = max(int(BATCH * self._clients), 1)
            if group.count > limit:
                self.spool.appendleft(group)
                group = group.split(limit)
            yield self._env.timeout(group.count / (self._clients * self._habits.drain_rate))
            if not (yield from self._send(group, ask_all=True)):
                self.spool.appendleft(group)
                break
            self.spooled -= group.count
            sent = True
        return sent
