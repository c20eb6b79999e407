"""Kills of consumer, broker and database, separately and together: a sample of `make soak`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kills.loop import few_kills, kill_again_and_again
from tests.services.broker import StompServer
from tests.services.postgres import PostgresServer


@pytest.mark.parametrize(("broker", "seed"), [("artemis", 6), ("rabbitmq", 7)], indirect=["broker"])
def test_kills_of_consumer_broker_and_database_lose_and_duplicate_nothing(
    tmp_path: Path, broker: StompServer, postgres: PostgresServer, seed: int
) -> None:
    figures = kill_again_and_again(tmp_path, broker, postgres, few_kills(seed))

    assert figures.kills.total() == 3
    assert figures.rows > 10 * figures.dead_letters > 0
