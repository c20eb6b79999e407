"""`sam-db audit`: operations of the installed commands, and a log that was changed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from sam_pipeline.schema.program.command import BAD_DATA, USAGE
from tests.services.postgres import PostgresServer, fresh_database
from tests.support.commands import Workplace
from tests.support.reports.stored import execute

DOWNTIME = (
    *("sam-db", "downtime", "add", "--site", "A", "--reason", "power cut", "--id", "d1"),
    *("--start", "2026-11-20T08:00Z", "--end", "2026-11-20T12:00Z"),
)
CANCEL = ("sam-db", "downtime", "cancel", "d1")
PRUNE = ("sam-db", "prune", "--keep-results", "400d")
VERIFY = ("sam-db", "audit", "--verify")


@pytest.fixture(params=["sqlite", "postgresql"])
def workplace(request: pytest.FixtureRequest, tmp_path: Path) -> Workplace:
    database = f"sqlite:///{tmp_path / 'sam.db'}"
    if request.param == "postgresql":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        database = fresh_database(postgres)
    workplace = Workplace(tmp_path, broker=f"spool://{tmp_path / 'spool'}", database=database)
    workplace.write_configuration().succeed("sam-db", "upgrade")
    return workplace


def test_the_log_lists_operations_and_shows_that_they_were_changed(workplace: Workplace) -> None:
    for command in (DOWNTIME, CANCEL, PRUNE):
        workplace.succeed(*command)

    listed = workplace.succeed("sam-db", "audit", "--json").json
    assert [entry["command"] for entry in listed] == ["downtime add", "downtime cancel", "prune"]
    assert listed[0]["arguments"]["downtimeId"] == "d1"
    table = workplace.succeed("sam-db", "audit", "--limit", "1").out
    assert "prune" in table and "downtime" not in table
    verified = workplace.succeed(*VERIFY, "--json").json
    assert (verified["operations"], verified["problems"]) == (3, [])
    assert verified["digest"] == listed[-1]["digest"]
    workplace.succeed(*VERIFY, "--expect", verified["digest"])

    on = " ON operation" if workplace.database.startswith("postgresql") else ""
    execute(workplace.database, f"DROP TRIGGER operation_change{on}")
    execute(workplace.database, "UPDATE operation SET os_login = 'joe' WHERE operation_id = 2")

    refused = workplace.run(*VERIFY)
    assert refused.code == BAD_DATA
    assert refused.out.splitlines() == ["operation 2: was changed after it was recorded"]
    assert workplace.run("sam-db", "check").code != 0  # the trigger is missing


def test_a_removed_newest_operation_is_missed_by_its_digest(workplace: Workplace) -> None:
    workplace.succeed(*DOWNTIME)
    workplace.succeed(*CANCEL)
    digest = workplace.succeed(*VERIFY, "--json").json["digest"]

    postgresql = workplace.database.startswith("postgresql")
    name = "operation_change ON operation" if postgresql else "operation_delete"
    execute(workplace.database, f"DROP TRIGGER {name}")
    execute(workplace.database, "DELETE FROM operation WHERE operation_id = 2")

    workplace.succeed(*VERIFY)
    assert workplace.run(*VERIFY, "--expect", digest).code == BAD_DATA


def test_an_expected_digest_requires_a_verification(workplace: Workplace) -> None:
    assert workplace.run("sam-db", "audit", "--expect", "x").code == USAGE
