"""The commands of docs/roles.md work on a fresh server, in the order of the page."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.services import needed
from tests.services import postgres as services
from tests.services.postgres import PostgresServer, find_programs, running_postgres
from tests.services.psql import run_psql
from tests.support.commands import PROGRAMS
from tests.support.page import Page
from tests.support.reports.stored import query

BLOCKS = [block for block in Page("docs/roles.md").blocks if block.language in ("sh", "sql")]
LOGIN = re.compile(r"CREATE ROLE (\w+) LOGIN PASSWORD '([^']+)'")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A private server without roles: those belong to the server."""
    with needed(running_postgres()) as server:
        for role in services.ROLES:
            server.execute(f"DROP ROLE {role}_login")
            server.execute(f"DROP ROLE sam_{role}")
        yield server


@pytest.fixture(scope="module")
def outputs(server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The output of every block, run by a superuser."""
    here = tmp_path_factory.mktemp("page")
    logins = LOGIN.findall("".join(block.text for block in BLOCKS))
    passwords = {**dict(logins), server.user: server.password}
    (here / "pgpass").write_text(
        "".join(f"*:*:*:{name}:{password}\n" for name, password in passwords.items())
    )
    (here / "pgpass").chmod(0o600)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SAM_")}
    environment = {
        **kept,
        "PATH": f"{PROGRAMS}{os.pathsep}{find_programs()}{os.pathsep}{os.environ['PATH']}",
        "PGHOST": server.host,
        "PGPORT": str(server.port),
        "PGUSER": server.user,
        "PGPASSFILE": str(here / "pgpass"),
    }
    return {
        block.text: _run(block.language, block.text, server, here, environment) for block in BLOCKS
    }


def test_every_block_of_the_page_works(outputs: Mapping[str, str]) -> None:
    last = list(outputs.values())[-1]

    assert len(outputs) >= 9
    assert "trigger downtime_insert on downtime is missing\n    sam-db repair\n" in last
    assert "created trigger downtime_insert on downtime\n" in last
    assert "revoked SELECT ON dead_letter TO PUBLIC\n" in last
    assert last.endswith("no problem found\n")


@pytest.mark.parametrize("database", ["sam", "sam_site", "sam_dba"])
def test_all_three_installations_have_the_same_owner(
    outputs: Mapping[str, str], server: PostgresServer, database: str
) -> None:
    owners = query(
        server.url(database),
        "SELECT DISTINCT CAST(pg_get_userbyid(relowner) AS text) AS name FROM pg_class"
        " WHERE relnamespace = CAST('public' AS regnamespace)",
    )

    assert owners == [{"name": "sam_owner"}]


def _run(
    language: str, text: str, server: PostgresServer, here: Path, environment: Mapping[str, str]
) -> str:
    if language == "sql":
        return run_psql(server.url("sam"), text)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=here,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout
