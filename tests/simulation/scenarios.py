"""50,000 clients and 100,000 messages a second: on a good day, and on bad ones.

Events are grouped, or a run would take hours. A group of clients drew the same order of brokers and
behaves alike; its messages of one tick travel together. One message of the model stands for `grain`
real ones, and a batch for as many batches, so that a day takes seconds. What is shorter than a tick
or than `grain` batches can't be seen in such a run: the lag of an undisturbed system comes from the
first scenario, which has a grain of 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from tests.simulation.measured import MeasuredKind
from tests.simulation.model import Clients, Habits, World
from tests.simulation.plan import BROKER_CORES, DATABASE_CORES, planned

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


Figures = Mapping[str, float]


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


def base(kind: MeasuredKind) -> Figures:
    """Forty seconds without any event."""
    world = planned_world(kind, grain=1)
    add_clients(world, kind, tick_s=0.5)
    world.run(BASE_S)
    machines = {
        "brokers_busy": [broker.machine for broker in world.brokers],
        "consumers_busy": [world.consumer_machine],
        "database_busy": [world.database.machine],
    }
    busy = {
        name: sum(m.used_s for m in own) / sum(m.cores for m in own) / BASE_S
        for name, own in machines.items()
    }
    figures = {
        "brokers": world.brokers_count,
        "consumers": world.consumers_count,
        "rate": world.ledger.rows / BASE_S,
        "median_lag_s": world.ledger.lag_s(0.5, since=10.0, until=BASE_S - 5),
        "p99_lag_s": world.ledger.lag_s(0.99, since=10.0, until=BASE_S - 5),
    }
    return figures | busy


def broker_lost(kind: MeasuredKind) -> Figures:
    """One broker is lost for five minutes."""
    world = planned_world(kind, grain=10)
    add_clients(world, kind, tick_s=2.0)
    world.at(LOST_S[0], world.brokers[0].lose)
    world.at(LOST_S[1], world.brokers[0].back)
    return watched(world, 5.0, 12 * MINUTE, LOST_S)


def database_away(kind: MeasuredKind, share_of_disk: float | None = None) -> Figures:
    """The database is away for ten minutes; the disks of the brokers have room for all, or for a
    share: then publishers wait, and spool.
    """
    need_gb = RATE * (AWAY_S[1] - AWAY_S[0]) * MESSAGE_BYTES / 1e9 / planned(kind, RATE).brokers
    world = planned_world(kind, 100, share_of_disk * need_gb if share_of_disk else DISK_GB)
    add_clients(world, kind, tick_s=5.0)
    world.at(AWAY_S[0], lambda: setattr(world.database, "up", False))
    world.at(AWAY_S[1], lambda: setattr(world.database, "up", True))
    return watched(world, 10.0, 1.25 * HOUR, AWAY_S)


def cut_off(kind: MeasuredKind, spool_max_messages: float = Habits.spool_max_messages) -> Figures:
    """A site of 1000 clients reaches no broker for a day."""
    world = planned_world(kind, grain=1000, disk_gb=10 * DISK_GB)
    add_clients(world, kind, tick_s=60.0, groups=GROUPS // 3, share=1 - SITE_SHARE)
    site = add_clients(world, kind, 60.0, 1, SITE_SHARE, spool_max_messages)

    def reach(reachable: bool) -> None:
        for group in site:
            group.reachable = reachable

    world.at(CUT_OFF_S[0], lambda: reach(False))
    world.at(CUT_OFF_S[1], lambda: reach(True))
    return watched(world, 5 * MINUTE, 30 * HOUR, CUT_OFF_S)


SCENARIOS: Mapping[str, Callable[[MeasuredKind], Figures]] = {
    "base": base,
    "broker-lost": broker_lost,
    "database-away": database_away,
    "small-disks": partial(database_away, share_of_disk=0.25),
    "cut-off": partial(cut_off, spool_max_messages=200_000),
    "cut-off-default-spool": cut_off,
}


def watched(world: World, every_s: float, until_s: float, event_s: tuple[float, float]) -> Figures:
    """The worst state, and how long it took from the end of the event until nothing more waited
    than before it.

    What waited before the event differs from moment to moment, by a half at most.
    """
    world.watch(every_s)
    world.run(until_s)
    moments, (began_s, since_s) = world.moments, event_s
    usual = 1.5 * max(m.backlog for m in moments if m.at < began_s)
    spooled = max(m.spooled for m in moments)
    waiting = [m.at for m in moments if m.backlog > usual or m.spooled > 0.01 * spooled]
    caught_up_at = max([*waiting, since_s])
    return {
        "backlog": max(m.backlog for m in moments),
        "spooled": spooled,
        "refused": moments[-1].refused,
        "caught_up": caught_up_at < moments[-1].at,
        "caught_up_s": caught_up_at - since_s,
    }
