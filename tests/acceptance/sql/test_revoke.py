"""`sam-db revoke`: what it prints, and its exit codes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sam_pipeline.schema.program.command import NO_INPUT, USAGE
from tests.services.postgres import PostgresServer, fresh_database
from tests.support.commands import Workplace
from tests.support.reports.stored import execute, query

NOW = datetime.now(UTC)
MEASURED = f"{NOW - timedelta(days=1):%Y-%m-%dT12:00:00Z}"
SINCE = f"{NOW - timedelta(days=2):%Y-%m-%dT%H:%MZ}"
REVOKE = ("sam-db", "revoke", "--publisher", "key:forger", "--since", SINCE)


@pytest.fixture(params=["sqlite", "postgresql"])
def workplace(request: pytest.FixtureRequest, tmp_path: Path) -> Workplace:
    database = f"sqlite:///{tmp_path / 'sam.db'}"
    if request.param == "postgresql":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        database = fresh_database(postgres)
    workplace = Workplace(tmp_path, broker=f"spool://{tmp_path / 'spool'}", database=database)
    workplace.write_configuration().succeed("sam-db", "upgrade")
    for publisher, status in (("key:owner", "OK"), ("key:forger", "CRITICAL")):
        execute(
            database,
            "INSERT INTO metricOutput (hostName, serviceFlavour, metricName, metricStatus,"
            " timestamp, publisher, messageId) VALUES ('ce01.example.org', 'CE', 'm',"
            f" '{status}', '{MEASURED}', '{publisher}', '{publisher}')",
        )
    return workplace


def statuses(workplace: Workplace) -> list[str]:
    rows = query(workplace.database, "SELECT metricStatus AS status FROM metricOutput")
    return [row["status"] for row in rows]


def test_a_revocation_is_tried_first_and_says_what_it_restores(workplace: Workplace) -> None:
    assert statuses(workplace) == ["CRITICAL"]

    tried = workplace.succeed(*REVOKE, "--dry-run", "--json").json

    assert statuses(workplace) == ["CRITICAL"]
    assert tried["classes"] == {"metricOutput": {"removed": 1, "recomputed": 1}}
    assert tried["identities"] == ["key:forger"]
    days = [f"{NOW - timedelta(days=1):%Y-%m-%d}", f"{NOW:%Y-%m-%d}"]
    assert tried["due_days"] == days

    lines = workplace.succeed(*REVOKE).out.splitlines()

    assert statuses(workplace) == ["OK"]
    assert any(line.startswith("metricOutput: 1 record revoked") for line in lines)
    assert f"due: {' '.join(days)}" in lines
    [operation] = workplace.succeed("sam-db", "audit", "--json").json
    assert operation["command"] == "revoke"
    assert operation["arguments"]["publisher"] == "key:forger"
    assert "nothing to revoke" in workplace.succeed(*REVOKE).out


def test_an_unknown_publisher_and_an_empty_period_are_errors(workplace: Workplace) -> None:
    unknown = workplace.run(*REVOKE[:3], "key:forgre", *REVOKE[4:])
    empty = workplace.run(*REVOKE, "--until", SINCE)

    assert unknown.code == NO_INPUT
    assert "key:forger" in unknown.err
    assert empty.code == USAGE
    assert statuses(workplace) == ["CRITICAL"]
