"""The model against the measured runs: the same backlogs, and the same even pace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.simulation.measured import TICK_S, Measured, MeasuredKind
from tests.simulation.model import Group, Steps, World

RATE_BOUND = 0.15
LAG_BOUND = 0.30
"""How far the model may be off."""
FIRST, LAST = 0.25, 0.75
"""The part of a drain that counts, as in the measurement."""
PACED_S = 20.0
WARM_UP_S = 1.0
STEP_S = 0.25


class Comparison(NamedTuple):
    kind: str
    run: str
    figure: str
    measured: float
    simulated: float
    bound: float

    @property
    def off(self) -> float:
        return self.simulated / self.measured - 1

    @property
    def is_good(self) -> bool:
        return abs(self.off) <= self.bound


def compared(measured: Measured, kind: MeasuredKind) -> Iterator[Comparison]:
    for (brokers, consumers), cells in kind.grid.items():
        middle = sorted(cells, key=lambda cell: cell.rate)[len(cells) // 2]
        run = f"{brokers} x {consumers}"
        rate = drained(measured, kind, middle)
        yield Comparison(kind.name, run, "messages/s", middle.rate, rate, RATE_BOUND)
    for pace in kind.paces:
        lag_s = paced(measured, kind, pace)
        yield Comparison(kind.name, f"{pace.rate}/s", "p99 lag, s", pace.p99_s, lag_s, LAG_BOUND)


def drained(measured: Measured, kind: MeasuredKind, cell: Any) -> float:
    """The rate of a drain; processors are as fast, and as busy with other programs, as in it."""
    world = World(
        kind.costs(cell.consumers).slowed(kind.slowness(cell)),
        cell.brokers,
        cell.consumers,
        shared_cores=measured.cores,
        prefetch=int(measured.document["prefetch"]),
    )
    world.add_backlog(cell.messages)
    world.add_load(cell.others_us * cell.rate / 1e6)
    ledger = world.ledger
    while ledger.rows < LAST * ledger.made:
        world.run(until_s=world.env.now + STEP_S)
    reached = 0
    inside: list[tuple[float, int]] = []
    for made_at, count, lag_s in ledger.lags:
        reached += count
        if FIRST <= reached / ledger.made <= LAST:
            inside.append((made_at + lag_s, reached))
    (began, before), (ended, after) = inside[0], inside[-1]
    return (after - before) / (ended - began)


def paced(measured: Measured, kind: MeasuredKind, pace: Any) -> float:
    """The p99 lag of messages that are sent at an even pace."""
    world = World(kind.costs(), 1, 1, shared_cores=measured.cores)
    world.add_load(pace.others_us * pace.rate / 1e6)
    [broker], ledger = world.brokers, world.ledger

    def send() -> Steps:
        sent = 0
        while True:
            due = int(world.env.now * pace.rate) + 1
            if due > sent:
                half_a_group_s = (due - sent - 1) / pace.rate / 2
                group = Group(due - sent, world.env.now - half_a_group_s)
                ledger.made += group.count
                world.env.process(send_one(group))
            sent = due
            yield world.env.timeout(TICK_S)

    def send_one(group: Group) -> Steps:
        ledger.sending += group.count
        yield from broker.send(group, timeout_s=60.0)
        ledger.sending -= group.count

    world.env.process(send())
    world.run(until_s=PACED_S + WARM_UP_S)
    return ledger.lag_s(0.99, since=WARM_UP_S, until=PACED_S)
