"""The parts of the model behave as those that they stand for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.benchmarks.bare_consumer import STEP
from tests.simulation.costs import Costs
from tests.simulation.publishers import Habits
from tests.simulation.world import World

COSTS = Costs(
    publish=40e-6,
    publish_burst=0.0,
    receipt_s=0.002,
    deliver=40e-6,
    delivery_s=[STEP * 40e-6],
    read=10e-6,
    load=30e-6,
    load_batch=0.0,
    row=20e-6,
    transaction=0.0,
    round_trips=1,
    batch_waits_s=[0.005],
)
NO_SPOOL = Habits(spool_max_messages=0)


def world(
    costs: Costs = COSTS, *, brokers: int = 2, capacity: float = float("inf"), grain: int = 1
) -> World:
    return World(costs, brokers, 2, capacity=capacity, grain=grain)


def test_every_message_becomes_one_row() -> None:
    quiet = world()
    quiet.add_clients(groups=10, clients=100, rate=2000, tick_s=0.1, habits=Habits())

    quiet.run(20.0)

    waiting = sum(broker.backlog for broker in quiet.brokers) + quiet.ledger.sending
    assert quiet.ledger.made > 39_000
    assert quiet.ledger.rows == quiet.ledger.made - waiting
    assert waiting < 1000
    assert quiet.spooled == quiet.ledger.refused == quiet.ledger.repeated == 0


def test_messages_are_conserved_through_all_faults() -> None:
    unlucky = world(capacity=3000)
    clients = unlucky.add_clients(groups=10, clients=100, rate=2000, tick_s=0.1, habits=Habits())
    first, second = unlucky.brokers
    for at_s, action in (
        (2.0, first.lose),
        (4.0, lambda: setattr(unlucky.database, "up", False)),
        (9.0, first.back),
        (9.5, second.lose),
        (11.0, lambda: setattr(unlucky.database, "up", True)),
        (12.0, lambda: setattr(clients[0], "reachable", False)),
        (14.0, second.back),
    ):
        unlucky.at(at_s, action)
    for second_number in range(1, 20):
        unlucky.at(float(second_number), unlucky.check_conservation)

    unlucky.run(20.0)

    assert unlucky.ledger.repeated > 0
    assert unlucky.ledger.rows > 0


def test_one_consumer_is_as_fast_as_its_main_thread() -> None:
    """Its main thread loads, then waits for rows and a flush, a batch of 1000 at a time."""
    costs = replace(COSTS, deliver=1e-6, delivery_s=[STEP * 1e-6], read=1e-9, batch_waits_s=[0.004])
    alone = World(costs, 1, 1)
    alone.add_backlog(200_000)

    alone.run(10.0)

    a_batch_s = 1000 * (costs.load + costs.row) + 0.004
    assert alone.ledger.rows / 10.0 == pytest.approx(1000 / a_batch_s, rel=0.02)


def test_bursts_slow_down_one_broker_but_not_three() -> None:
    """What waits at the consumer does not last until the next burst, unless others send as well."""
    evenly = [STEP * 40e-6]
    in_bursts = [0.0] * 49 + [50 * STEP * 40e-6]
    rows = {}
    for brokers, delivery_s in ((1, evenly), (1, in_bursts), (3, in_bursts)):
        drained = World(replace(COSTS, delivery_s=delivery_s), brokers, 1)
        drained.add_backlog(300_000)
        drained.run(10.0)
        rows[brokers, len(delivery_s)] = drained.ledger.rows

    assert rows[1, 50] < 0.8 * rows[1, 1]
    assert rows[3, 50] > 0.9 * rows[1, 1]


def test_cores_that_all_share_are_the_limit_if_there_are_few() -> None:
    shared = World(COSTS, 2, 4, shared_cores=2)
    shared.add_backlog(200_000)
    shared.run(2.0)  # until the windows of all consumers are full
    before = shared.ledger.rows

    shared.run(6.0)

    in_all_s = COSTS.deliver + COSTS.read + COSTS.load + COSTS.row
    assert (shared.ledger.rows - before) / 4.0 == pytest.approx(2 / in_all_s, rel=0.02)


def test_a_grain_changes_neither_rates_nor_backlogs() -> None:
    rates = []
    for grain in (1, 10):
        away = World(COSTS, 1, 1, grain=grain)
        away.add_clients(10, 100, 4000 / grain, 0.5, Habits())
        away.at(20.0, lambda it=away: setattr(it.database, "up", False))  # type: ignore[misc]
        away.run(60.0)
        rates.append((grain * away.ledger.rows, grain * away.brokers[0].backlog))

    assert rates[0] == pytest.approx(rates[1], rel=0.05)


def test_the_same_seed_gives_the_same_run() -> None:
    runs = []
    for seed in (1, 1, 2):
        chance = World(replace(COSTS, batch_waits_s=[0.001, 0.009]), 2, 2, seed=seed)
        chance.add_clients(groups=10, clients=100, rate=2000, tick_s=0.1, habits=Habits())
        chance.run(5.0)
        runs.append(chance.ledger.lags)

    assert runs[0] == runs[1] != runs[2]


def test_a_full_broker_stops_its_publishers() -> None:
    full = world(brokers=1, capacity=5000)
    full.database.up = False
    full.add_clients(groups=10, clients=100, rate=2000, tick_s=0.1, habits=NO_SPOOL)

    full.run(30.0)

    assert full.brokers[0].stored == full.brokers[0].backlog <= 5000
    assert full.brokers[0].backlog > 4900
    assert full.ledger.refused > 20_000


def test_flow_control_ends_when_messages_are_acknowledged() -> None:
    full = world(brokers=1, capacity=5000)
    full.database.up = False
    full.add_clients(groups=10, clients=100, rate=2000, tick_s=0.1, habits=Habits())
    full.at(5.0, lambda: setattr(full.database, "up", True))

    full.run(60.0)

    assert full.ledger.refused == 0
    assert full.ledger.rows > 0.95 * full.ledger.made


def test_the_publishers_of_a_lost_broker_use_the_next_one() -> None:
    unlucky = world()
    unlucky.add_clients(groups=10, clients=100, rate=2000, tick_s=0.1, habits=NO_SPOOL)
    first, second = unlucky.brokers
    unlucky.at(2.0, first.lose)
    unlucky.at(2.0, lambda: confirmed.append(second.confirmed))
    confirmed: list[int] = []

    unlucky.run(12.0)

    assert unlucky.ledger.refused == 0
    assert second.confirmed - confirmed[0] == pytest.approx(20_000, rel=0.03)
    assert first.confirmed < 3000


def test_messages_of_a_lost_broker_wait_there_and_are_delivered_again() -> None:
    unlucky = world()
    unlucky.add_backlog(50_000)
    unlucky.at(0.5, unlucky.brokers[0].lose)
    unlucky.at(20.0, unlucky.brokers[0].back)
    at_loss: list[int] = []
    unlucky.at(15.0, lambda: at_loss.append(unlucky.ledger.rows))

    unlucky.run(40.0)

    assert at_loss[0] < 45_000
    assert unlucky.ledger.rows == 50_000
    assert unlucky.ledger.lag_s(1.0) > 20.0


def test_what_was_spooled_arrives_after_the_outage() -> None:
    cut_off = world()
    groups = cut_off.add_clients(groups=4, clients=40, rate=400, tick_s=0.5, habits=Habits())

    def reach(reachable: bool) -> None:
        for group in groups:
            group.reachable = reachable

    spooled: list[int] = []
    cut_off.at(5.0, lambda: reach(False))
    cut_off.at(65.0, lambda: spooled.append(cut_off.spooled))
    cut_off.at(65.0, lambda: reach(True))

    cut_off.run(180.0)

    assert spooled[0] == pytest.approx(60 * 400, rel=0.05)
    assert cut_off.spooled == 0
    assert cut_off.ledger.rows > 0.98 * cut_off.ledger.made
    assert 55.0 < cut_off.ledger.lag_s(1.0) < 120.0


def test_a_full_spool_refuses_messages() -> None:
    cut_off = world()
    habits = Habits(spool_max_messages=100)
    (group,) = cut_off.add_clients(groups=1, clients=10, rate=400, tick_s=0.5, habits=habits)
    group.reachable = False

    cut_off.run(10.0)

    assert cut_off.spooled == 1000
    assert cut_off.ledger.refused == cut_off.ledger.made - 1000


def test_messages_wait_at_the_brokers_while_the_database_is_away() -> None:
    away = world()
    away.add_clients(groups=10, clients=100, rate=2000, tick_s=0.1, habits=NO_SPOOL)
    away.at(5.0, lambda: setattr(away.database, "up", False))
    away.at(25.0, lambda: setattr(away.database, "up", True))
    backlog: list[int] = []
    away.at(25.0, lambda: backlog.append(sum(broker.backlog for broker in away.brokers)))

    away.run(60.0)

    assert backlog[0] == pytest.approx(40_000, rel=0.03)
    assert sum(broker.backlog for broker in away.brokers) < 1000
    assert away.ledger.repeated == 0
