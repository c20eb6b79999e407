"""How many brokers, consumers, cores and disks a rate takes, and when a spool is the better way.

    python -m tests.benchmarks.plan [RATE]

From measured.json, which `make bench-scale` writes; RATE is in messages/s (default: 100000).
"""

from __future__ import annotations

import math
import sys
from typing import NamedTuple

from tests.benchmarks.law import NAMES, MeasuredKind, read_measured

BUSY = 0.7
"""The share of its capacity that a component is planned for; the rest catches up backlogs."""
BROKER_CORES = 8
DATABASE_CORES = 16
BATCH = 1000
DAY_S = 86_400
SMALL_SHARE = 0.1
"""Up to this share of a broker's capacity, a session for each result needs no thought."""


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
    per_broker, per_consumer = broker_rate(kind), consumer_rate(kind)
    law = kind.law.database
    brokers = math.ceil(rate / (BUSY * per_broker))
    databases = math.ceil(rate / (BUSY * law.rate(DATABASE_CORES)))
    consumers = math.ceil(rate / (BUSY * per_consumer))
    cores = databases * math.ceil(law.cores(rate / databases) / BUSY)
    reserves = {
        "brokers": brokers * per_broker,
        "consumers": consumers * per_consumer,
        "PostgreSQL": databases * law.rate(cores / databases),
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


def broker_rate(kind: MeasuredKind) -> float:
    """What one broker gets to: all its cores, or one subscription as fast as it delivers it."""
    return min(kind.law.broker.rate(BROKER_CORES), 1 / kind.document["delivery_s"])


def consumer_rate(kind: MeasuredKind) -> float:
    """What one process with a core of its own gets to: it reads, loads and waits in turn.

    As many as were measured share a machine.
    """
    used_us = kind.law.consumer.us(kind.most_consumers) + kind.law.database.us(kind.most_consumers)
    return 1 / (used_us / 1e6 + kind.batch_wait_s / BATCH)


class OneShot(NamedTuple):
    """One session for each result, or a spool that one process drains."""

    session_us: float
    """Processor time of the broker for one result."""
    drained_us: float
    limit: float
    """Sessions a second that the broker accepted, sharing the machine with its clients."""

    def most(self, cores: int) -> float:
        """Sessions a second that a broker with these cores is planned for."""
        return BUSY * cores * 1e6 / self.session_us

    def spool_from(self, cores: int) -> float:
        """Results a second from which on sessions take more than their share of a broker."""
        return SMALL_SHARE * cores * 1e6 / self.session_us


def one_shot_costs(kind: MeasuredKind) -> OneShot:
    storm = kind.document["storm"]
    fastest = max(storm["sessions"], key=lambda run: run["rate"])
    return OneShot(fastest["broker_us"], storm["drain"]["broker_us"], fastest["rate"])


def main(rate: float) -> None:
    for kind in read_measured().kinds():
        plan = planned(kind, rate)
        print(
            f"{NAMES[kind.name]}: {rate:g} messages/s at {BUSY:.0%}: {plan.brokers} brokers of"
            f" {BROKER_CORES} cores, {plan.consumers} consumer processes, {plan.database_cores}"
            f" cores of PostgreSQL on {plan.databases} machines, {plan.log_mb_s:.1f} MB/s of log,"
            f" {plan.disk_gb_day:.0f} GB of disk a day; first at its limit: {plan.first}"
        )


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
