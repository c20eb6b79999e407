"""50,000 clients and 100,000 messages a second: on a good day, and on bad ones.

Events are grouped, or a run would take hours. A group of clients drew the same order of brokers and
behaves alike; its messages of one tick travel together. One message of the model stands for `grain`
real ones, and a batch for as many batches, so that a day takes seconds. What is shorter than a tick
or than `grain` batches can't be seen in such a run: the lag of an undisturbed system comes from the
first scenario, which has a grain of 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.simulation.costs import MeasuredKind
from tests.simulation.plan import BROKER_CORES, DATABASE_CORES, planned
from tests.simulation.publishers import Clients, Habits
from tests.simulation.world import Moment, World

CLIENTS = 50_000
RATE = 100_000
GROUPS = 60
SEED = 25
MESSAGE_BYTES = 1000
"""Of a message at a broker, with its headers."""
DISK_GB = 100
"""Of each broker, for messages."""

MINUTE, HOUR = 60.0, 3600.0
BASE_S = 40.0
LOST_S = (2 * MINUTE, 7 * MINUTE)
AWAY_S = (2 * MINUTE, 12 * MINUTE)
CUT_OFF_S = (1 * HOUR, 25 * HOUR)
SITE_SHARE = 0.02
"""Of all clients: a site of 1000."""
ENOUGH_SPOOL = 200_000


class Outcome(NamedTuple):
    """A run: its figures, and what the plots draw (s, messages)."""

    name: str
    figures: dict[str, float]
    moments: Sequence[Moment]


def planned_world(kind: MeasuredKind, grain: int, disk_gb: float = DISK_GB) -> World:
    """The planned system, without clients."""
    plan = planned(kind, RATE)
    return World(
        kind.costs(plan.consumers),
        plan.brokers,
        plan.consumers,
        broker_cores=BROKER_CORES,
        database_cores=max(plan.database_cores, DATABASE_CORES),
        capacity=disk_gb * 1e9 / MESSAGE_BYTES / grain,
        quantum_s=0.01 * grain,
        grain=grain,
        seed=SEED,
    )


def add_clients(
    world: World,
    kind: MeasuredKind,
    tick_s: float,
    groups: int = GROUPS,
    share: float = 1.0,
    spool_max_messages: float = Habits.spool_max_messages,
) -> Sequence[Clients]:
    """A share of all clients in about `groups` groups, the same number for each first broker."""
    habits = Habits(
        spool_max_messages=spool_max_messages / world.grain,
        drain_rate=kind.document["storm"]["drain"]["rate"] / world.grain,
    )
    rate = share * RATE / world.grain
    equal = max(groups // world.brokers_count, 1) * world.brokers_count
    return world.add_clients(equal, share * CLIENTS, rate, tick_s, habits)


def base(kind: MeasuredKind) -> Outcome:
    """Forty seconds without any event."""
    world = planned_world(kind, grain=1)
    add_clients(world, kind, tick_s=0.5)
    world.watch(1.0)
    world.run(BASE_S)
    figures = {
        "brokers": world.brokers_count,
        "consumers": world.consumers_count,
        "rate": world.ledger.rows / BASE_S,
        "median_lag_s": world.ledger.lag_s(0.5, since=10.0, until=BASE_S - 5),
        "p99_lag_s": world.ledger.lag_s(0.99, since=10.0, until=BASE_S - 5),
        **busy(world, BASE_S),
    }
    return outcome("base", world, figures)


def broker_lost(kind: MeasuredKind) -> Outcome:
    """One broker is lost for five minutes."""
    world = planned_world(kind, grain=10)
    add_clients(world, kind, tick_s=2.0)
    lost = world.brokers[0]
    before: list[int] = []
    world.at(LOST_S[0], lost.lose)
    world.at(LOST_S[1], lost.back)
    world.at(LOST_S[1], lambda: before.append(lost.confirmed))
    world.watch(5.0)
    world.run(12 * MINUTE)
    figures = {
        "waited_at_lost": world.grain * max(moment.backlogs[0] for moment in world.moments),
        "repeated": world.grain * world.ledger.repeated,
        "sent_to_lost_after": world.grain * (lost.confirmed - before[0]),
        **recovery(world, *LOST_S),
    }
    return outcome("broker-lost", world, figures)


def database_away(kind: MeasuredKind) -> Outcome:
    """The database is away for ten minutes, and the disks of the brokers have room for that."""
    return away("database-away", kind, DISK_GB)


def small_disks(kind: MeasuredKind) -> Outcome:
    """The same with room for two and a half minutes: publishers wait, then they spool."""
    away_s = AWAY_S[1] - AWAY_S[0]
    need_gb = RATE * away_s * MESSAGE_BYTES / 1e9 / planned(kind, RATE).brokers
    return away("small-disks", kind, need_gb / 4)


def away(name: str, kind: MeasuredKind, disk_gb: float) -> Outcome:
    world = planned_world(kind, grain=100, disk_gb=disk_gb)
    add_clients(world, kind, tick_s=5.0)
    world.at(AWAY_S[0], lambda: setattr(world.database, "up", False))
    world.at(AWAY_S[1], lambda: setattr(world.database, "up", True))
    world.watch(10.0)
    world.run(1.25 * HOUR)
    figures = {"disk_gb": disk_gb, **recovery(world, *AWAY_S)}
    return outcome(name, world, figures)


def cut_off(kind: MeasuredKind) -> Outcome:
    """A site of 1000 clients reaches no broker for a day; their spools have room for that."""
    return cut_off_site("cut-off", kind, ENOUGH_SPOOL)


def cut_off_with_the_default_spool(kind: MeasuredKind) -> Outcome:
    return cut_off_site("cut-off-default-spool", kind, Habits.spool_max_messages)


def cut_off_site(name: str, kind: MeasuredKind, spool_max_messages: float) -> Outcome:
    world = planned_world(kind, grain=1000, disk_gb=10 * DISK_GB)
    add_clients(world, kind, tick_s=60.0, groups=GROUPS // 3, share=1 - SITE_SHARE)
    site = add_clients(world, kind, 60.0, 1, SITE_SHARE, spool_max_messages)

    def reach(reachable: bool) -> None:
        for group in site:
            group.reachable = reachable

    world.at(CUT_OFF_S[0], lambda: reach(False))
    world.at(CUT_OFF_S[1], lambda: reach(True))
    world.watch(5 * MINUTE)
    world.run(30 * HOUR)
    return outcome(name, world, recovery(world, *CUT_OFF_S))


SCENARIOS: dict[str, Callable[[MeasuredKind], Outcome]] = {
    "base": base,
    "broker-lost": broker_lost,
    "database-away": database_away,
    "small-disks": small_disks,
    "cut-off": cut_off,
    "cut-off-default-spool": cut_off_with_the_default_spool,
}


def busy(world: World, duration_s: float) -> dict[str, float]:
    """The share of their processor time that the components used."""
    machines = {
        "brokers_busy": [broker.machine for broker in world.brokers],
        "consumers_busy": [world.consumer_machine],
        "database_busy": [world.database.machine],
    }
    return {
        name: sum(machine.used_s for machine in own)
        / sum(machine.cores for machine in own)
        / duration_s
        for name, own in machines.items()
    }


def recovery(world: World, began_s: float, since_s: float) -> dict[str, float]:
    """The worst state, and how long it took from `since_s` until nothing more waited than before.

    What waited before `began_s` differs from moment to moment, by a half at most.
    """
    moments, grain = world.moments, world.grain
    usual = 1.5 * max(m.backlog for m in moments if m.at < began_s)
    spooled = max(m.spooled for m in moments)
    waiting = [m.at for m in moments if m.backlog > usual or m.spooled > 0.01 * spooled]
    until = max([*waiting, since_s])
    catching_up = [m for m in moments if since_s <= m.at <= until]
    rates = [(b.rows - a.rows) / (b.at - a.at) for a, b in pairwise(catching_up)]
    return {
        "backlog": grain * max(m.backlog for m in moments),
        "spooled": grain * spooled,
        "refused": grain * moments[-1].refused,
        "caught_up": until < moments[-1].at,
        "caught_up_s": until - since_s,
        "catch_up_rate": grain * max(rates, default=0.0),
        "longest_lag_s": world.ledger.lag_s(1.0),
    }


def outcome(name: str, world: World, figures: dict[str, float]) -> Outcome:
    """With counts of real messages."""
    grain = world.grain
    moments = [
        moment._replace(
            made=grain * moment.made,
            rows=grain * moment.rows,
            refused=grain * moment.refused,
            spooled=grain * moment.spooled,
            backlogs=tuple(grain * backlog for backlog in moment.backlogs),
        )
        for moment in world.moments
    ]
    return Outcome(name, figures, moments)
