"""Random worlds with forgers: after `sam-db revoke` all is as if the forgers had never been."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.cli import main
from tests.oracle.databases import DIALECTS, Databases
from tests.services.postgres import PostgresServer, fresh_database
from tests.support.database.sam_db import url_of
from tests.support.database.statement_worlds import (
    Act,
    arriving,
    assert_same,
    facts_after,
    without,
)
from tests.worlds.statements import (
    FORGER,
    HONEST,
    OTHER_FORGER,
    PROBES,
    random_worlds,
)

WORLDS = 200


@pytest.fixture(scope="module")
def databases(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Databases:
    return Databases(tmp_path_factory.mktemp("worlds"), fresh_database(postgres))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_revoked_forger_leaves_no_trace(databases: Databases, dialect: str) -> None:
    worlds = random_worlds(1, WORLDS, (*HONEST, FORGER))

    revoked = facts_after(databases, dialect, arriving(worlds), revoking(FORGER))

    expected = facts_after(databases, dialect, arriving(without(worlds, FORGER)))
    assert_same(revoked, expected, worlds)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_arrives_after_a_revocation_meets_a_world_without_the_forger(
    databases: Databases, dialect: str
) -> None:
    """And another forger can be revoked from there."""
    before = random_worlds(2, WORLDS, (*HONEST, FORGER, OTHER_FORGER))
    after = random_worlds(3, WORLDS, (PROBES, OTHER_FORGER))

    revoked = facts_after(
        databases,
        dialect,
        arriving(before),
        revoking(FORGER),
        arriving(after),
        revoking(OTHER_FORGER),
    )

    honest = [without(worlds, FORGER, OTHER_FORGER) for worlds in (before, after)]
    expected = facts_after(databases, dialect, *map(arriving, honest))
    together = [[*first, *then] for first, then in zip(before, after, strict=True)]
    assert_same(revoked, expected, together)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_a_publisher_said_before_its_key_leaked_and_after_it_was_replaced_stays(
    databases: Databases, dialect: str
) -> None:
    publishers = (PROBES, FORGER)
    before, leaked = (random_worlds(seed, WORLDS, publishers) for seed in (4, 5))
    after = random_worlds(6, WORLDS, publishers, numbers=(2,))  # no redelivery of what leaked
    leak: list[str] = []

    revoked = facts_after(
        databases,
        dialect,
        arriving(before),
        noting_the_time(leak),
        arriving(leaked),
        noting_the_time(leak),
        arriving(after),
        lambda engine: revoking(FORGER, *leak)(engine),
    )

    honest = (before, without(leaked, FORGER), after)
    expected = facts_after(databases, dialect, *map(arriving, honest))
    together = [[*a, *b, *c] for a, b, c in zip(before, leaked, after, strict=True)]
    assert_same(revoked, expected, together)


def noting_the_time(times: list[str]) -> Act:
    """What arrived before belongs to an earlier second than what arrives later."""

    def note(engine: Engine) -> None:
        time.sleep(1)
        times.append(format_time(datetime.now(UTC)))

    return note


def revoking(publisher: str, since: str = "2000-01-01T00:00:00Z", until: str = "") -> Act:
    command = ["revoke", "--publisher", publisher, "--since", since]
    command += ["--until", until] if until else []

    def revoke(engine: Engine) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SAM_DATABASE_URL", url_of(engine))
            assert main(command) == 0

    return revoke
