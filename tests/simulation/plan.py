"""How many brokers, consumers, cores and disks a rate takes, from the measured costs."""

from __future__ import annotations

import math
from statistics import mean
from typing import NamedTuple

from tests.simulation.costs import MeasuredKind

BUSY = 0.7
"""The share of its capacity that a component is planned for; the rest catches up backlogs."""
BROKER_CORES = 8
DATABASE_CORES = 16
BATCH = 1000
DAY_S = 86_400


class Plan(NamedTuple):
    rate: float
    brokers: int
    """Machines of BROKER_CORES cores."""
    consumers: int
    """Processes, with a core each."""
    database_cores: int
    """In all, on machines of at most DATABASE_CORES."""
    databases: int
    log_mb_s: float
    disk_gb_day: float
    first: str
    """What gets to its limit first if the rate grows and nothing is added."""


def planned(kind: MeasuredKind, rate: float) -> Plan:
    per_broker = broker_rate(kind)
    per_database = kind.law.database.rate(DATABASE_CORES)
    brokers = math.ceil(rate / (BUSY * per_broker))
    databases = math.ceil(rate / (BUSY * per_database))
    consumers = math.ceil(rate / (BUSY * consumer_rate(kind)))
    cores = databases * math.ceil(kind.law.database.cores(rate / databases) / BUSY)
    reserves = {
        "brokers": brokers * per_broker,
        "consumers": consumers * consumer_rate(kind),
        "PostgreSQL": databases * kind.law.database.rate(cores / databases),
    }
    return Plan(
        rate,
        brokers,
        consumers,
        cores,
        databases,
        rate * kind.document["log_bytes_per_row"] / 1e6,
        rate * kind.document["disk_bytes_per_row"] * DAY_S / 1e9,
        min(reserves, key=lambda name: reserves[name]),
    )


def broker_rate(kind: MeasuredKind, cores: int = BROKER_CORES) -> float:
    """What one broker gets to: all its cores, or one subscription as fast as it delivers it."""
    return min(kind.law.broker.rate(cores), 1 / kind.costs().serial_s)


def consumer_rate(kind: MeasuredKind) -> float:
    """What one process with a core of its own gets to: it reads, loads and waits in turn.

    As many as were measured share a machine.
    """
    costs = kind.costs(kind.most_consumers)
    a_batch_s = costs.load_batch + costs.transaction + mean(costs.batch_waits_s)
    return 1 / (costs.read + costs.load + costs.row + a_batch_s / BATCH)
