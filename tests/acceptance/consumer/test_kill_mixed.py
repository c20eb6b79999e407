"""Consumer, broker and database killed in turns and together: a sample of what `make soak` does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kills.loop import few_kills, kill_again_and_again
from tests.services.postgres import PostgresServer


@pytest.mark.parametrize(("server", "seed"), [("artemis", 6), ("rabbitmq", 7)])
def test_whoever_is_killed_nothing_is_lost_and_nothing_stored_twice(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    postgres: PostgresServer,
    server: str,
    seed: int,
) -> None:
    broker = request.getfixturevalue(server)

    figures = kill_again_and_again(tmp_path, broker, postgres, few_kills(seed))

    assert figures.kills.total() == 3
    assert figures.rows > 10 * figures.dead_letters > 0
