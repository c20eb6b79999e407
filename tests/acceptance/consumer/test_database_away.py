"""While the database is unavailable, messages stay in the spool; they are loaded afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.postgres import PostgresServer, fresh_database
from tests.services.process import wait_until
from tests.support.commands import Workplace
from tests.support.reports.stored import execute, query

UNAVAILABLE, CONFIG = 69, 78
RESULT = ["--metric", "org.example.Ping", "--status", "OK", "--flavour", "CE"]


@pytest.fixture
def workplace(tmp_path: Path, postgres: PostgresServer) -> Iterator[Workplace]:
    workplace = Workplace(
        tmp_path, broker=f"spool://{tmp_path / 'spool'}", database=fresh_database(postgres)
    ).write_configuration()
    workplace.succeed("sam-db", "upgrade")
    yield workplace
    if not postgres.process.running:
        postgres.restart()


def test_a_drain_gives_up_after_its_timeout_and_leaves_the_messages(
    workplace: Workplace, postgres: PostgresServer
) -> None:
    workplace.succeed("sam-publish", "result", *RESULT, "--host", "ce01.example.org")
    postgres.kill()

    answer = workplace.run("sam-consume", "run", "--drain", "--timeout", "1")

    assert answer.code == UNAVAILABLE, str(answer)
    assert "Traceback" not in answer.err
    assert workplace.spooled("spool") == 1


def test_the_daemon_waits_for_the_database_and_goes_on_by_itself(
    workplace: Workplace, postgres: PostgresServer
) -> None:
    with workplace.running("sam-consume", "run") as daemon:
        workplace.succeed("sam-publish", "result", *RESULT, "--host", "ce01.example.org")
        wait_until(lambda: hosts(workplace) == ["ce01.example.org"], timeout_s=20)
        postgres.kill()
        workplace.succeed("sam-publish", "result", *RESULT, "--host", "ce02.example.org")
        postgres.restart()

        wait_until(lambda: len(hosts(workplace)) == 2, timeout_s=60)

        assert daemon.poll() is None
        assert hosts(workplace) == ["ce01.example.org", "ce02.example.org"]


def test_a_daemon_that_reconnects_to_an_upgraded_database_loads_nothing_more(
    workplace: Workplace,
) -> None:
    with workplace.running("sam-consume", "run") as daemon:
        workplace.succeed("sam-publish", "result", *RESULT, "--host", "ce01.example.org")
        wait_until(lambda: hosts(workplace) == ["ce01.example.org"], timeout_s=20)
        execute(
            workplace.database,
            "UPDATE alembic_version SET version_num = '9999'; SELECT pg_terminate_backend(pid)"
            " FROM pg_stat_activity WHERE usename = 'loader_login'",
        )
        workplace.succeed("sam-publish", "result", *RESULT, "--host", "ce02.example.org")

        wait_until(lambda: daemon.poll() is not None, timeout_s=20)

    assert daemon.returncode == CONFIG
    assert hosts(workplace) == ["ce01.example.org"]
    assert workplace.spooled("spool") == 1
    assert "9999 is newer than this program" in (workplace.directory / "running.log").read_text()


def hosts(workplace: Workplace) -> list[str]:
    rows = query(workplace.database, "SELECT hostName AS host FROM metricOutput ORDER BY hostName")
    return [row["host"] for row in rows]
