"""The model, in SimPy: publishers, brokers, consumer processes and a database, put together.

Publishers have deadlines, shuffled brokers and a spool; brokers deliver in bursts and stop their
publishers when their disk is full; consumers have prefetch limits, batches and one interpreter
each; commits share flushes of the log; and all wait for cores.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import simpy

from sam_pipeline.consumer.core.backoff import growing_delays
from sam_pipeline.consumer.core.inbox import BatchRule
from sam_pipeline.publisher.delivery.drain import BATCH, IDLE_WAIT_S, MAX_WAIT_S, MIN_WAIT_S
from sam_pipeline.publisher.delivery.memory import MAX_REST_S, MIN_REST_S
from sam_pipeline.schema.net.channel import RECEIVE_BYTES
from tests.benchmarks.bare import STEP
from tests.simulation.measured import Costs

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


AHEAD = 10
"""Steps whose work may be unfinished when they are sent: their times include it on average."""


@dataclass(eq=False)
class Broker:
    """It stores at most `_capacity` messages before it confirms no more."""

    _env: simpy.Environment
    machine: Machine
    _costs: Costs
    _chance: random.Random
    _capacity: float = float("inf")
    up: bool = True
    session: int = 0
    """Grows whenever the broker is lost: deliveries of earlier sessions can't be acked."""
    stored: int = 0
    """Messages on its disk, delivered or not, and those that it is storing."""
    queued: int = 0
    unacked: dict[Group, None] = field(default_factory=dict)
    queue: deque[Group] = field(default_factory=deque)
    on_loss: list[Callable[[Broker], None]] = field(default_factory=list)
    _at_work: deque[simpy.Event] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.changed = Signal(self._env)  # it has messages for one of those that wait, or is back
        self.room = Signal(self._env)
        self._subscription = simpy.Resource(self._env, 1)
        # At work on one subscription: it needs more processor time than it takes.
        self._threads = max(math.ceil(self._costs.deliver / self._costs.serial_s), 1)

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


@dataclass
class Database:
    """Rows cost processor time, and commits wait for the disk together."""

    _env: simpy.Environment
    machine: Machine
    _costs: Costs
    _chance: random.Random
    up: bool = True
    _next_flush: simpy.Event | None = None
    _flushing: bool = False

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


@dataclass
class Consumer:
    """One process: its threads share one interpreter, except while they wait for the database."""

    _env: simpy.Environment
    _machine: Machine
    _costs: Costs
    _brokers: Sequence[Broker]
    _database: Database
    _ledger: Ledger
    _chance: random.Random
    _prefetch: int
    _rule: BatchRule

    def __post_init__(self) -> None:
        size = min(self._rule.size, max(self._prefetch // 2, 1))
        self._rule = self._rule._replace(size=size)
        self._interpreter = simpy.Resource(self._env, 1)
        self._switching_s = max(SWITCHING_S, self._machine.quantum_s)
        self._inbox: deque[Read] = deque()
        self._sockets: dict[Broker, deque[Read]] = {broker: deque() for broker in self._brokers}
        self._unacked = dict.fromkeys(self._brokers, 0)
        self._received, self._arrived, self._acked = (Signal(self._env) for _ in range(3))
        for broker in self._brokers:
            broker.on_loss.append(self._discard)
            self._env.process(self._receive(broker))
            self._env.process(self._read(broker))
        self._env.process(self._run())

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


@dataclass(frozen=True)
class Habits:
    """How publishers are configured."""

    timeout_s: float = 10.0
    spool_max_messages: float = 100_000
    """Of one client."""
    drain_rate: float = 1000.0
    """Messages a second that one `spool drain --loop` sends, if the broker takes them."""


@dataclass
class Clients:
    """Clients that drew the same order of the brokers, and behave alike.

    They make messages at an even pace; those of one tick travel as one group. Each group is sent by
    itself, as if by commands that do not wait for one another.
    """

    _env: simpy.Environment
    _brokers: Sequence[Broker]
    """In the order in which they try them."""
    _ledger: Ledger
    _chance: random.Random
    _clients: float
    """How many they are: they share the limits of `_habits`."""
    _rate: float
    """Messages a second that they make in all."""
    _tick_s: float
    _habits: Habits
    reachable: bool = True
    """Whether the network leads to the brokers."""
    spool: deque[Group] = field(default_factory=deque)
    spooled: int = 0
    """Messages in the spool, those that are being sent among them."""
    _last: Broker | None = None
    _failures: dict[Broker, int] = field(default_factory=dict)
    _rests_until: dict[Broker, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._env.process(self._make())
        self._env.process(self._drain())

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
        for number in range(groups):
            world = (self.env, self._order(number), self.ledger, self.chance)
            new = Clients(*world, clients / groups, rate / groups, tick_s, habits)
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
