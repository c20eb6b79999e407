"""Kills and freezes under a load of `sam-publish` and HTTP clients: a sample of `make soak`."""

from __future__ import annotations

from pathlib import Path

from tests.kills.faults import FREEZE_BROKER, KILL_ALL, KILL_IN_OUTAGE, KILL_SERVLET, RELOAD, Fault
from tests.kills.soak import soak
from tests.services.artemis import ArtemisServer
from tests.services.postgres import PostgresServer
from tests.services.rabbitmq import RabbitMQServer

SEED = 6
FAULTS = [
    Fault(KILL_IN_OUTAGE, 0.1),
    Fault(FREEZE_BROKER, 0.3, freeze_s=2.0),
    Fault(KILL_SERVLET, 0.1),
    Fault(RELOAD, 0.0),
    Fault(KILL_ALL, 0.2),
]


def test_kills_of_consumer_servlet_brokers_and_database_lose_and_duplicate_nothing(
    tmp_path: Path, artemis: ArtemisServer, rabbitmq: RabbitMQServer, postgres: PostgresServer
) -> None:
    figures = soak(tmp_path, [artemis, rabbitmq], postgres, FAULTS, SEED)

    print(figures)
    assert figures.problems == []
    assert figures.rows > 10 * figures.dead_letters > 0
