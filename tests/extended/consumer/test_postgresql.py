"""PostgreSQL behind PgBouncer, and with a standby that takes over."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import make_url

from sam_pipeline.consumer.errors import SourceTaken
from sam_pipeline.consumer.sinks.database import HeldName
from sam_pipeline.sql.database.engine import make_engine
from tests.services import missing, needed
from tests.services.postgres import (
    PASSWORD,
    USER,
    PostgresServer,
    answers,
    as_role,
    fresh_database,
    running_postgres,
    running_standby,
    server_account,
)
from tests.services.process import HOST, ServerProcess, free_ports
from tests.support.accounts import open_directory
from tests.support.consumer.daemon import running
from tests.support.consumer.site import make_site, results
from tests.support.database.with_schema import with_schema
from tests.support.invoke import invoke

TRANSACTIONS = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = {host}
listen_port = {own_port}
unix_socket_dir =
auth_type = plain
auth_file = {directory}/users.txt
pool_mode = transaction
ignore_startup_parameters = options, extra_float_digits
"""


@pytest.fixture
def pooled(postgres: PostgresServer) -> Iterator[str]:
    """The URL of a database through a pooler in transaction mode."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        missing("pgbouncer", "apt-get install pgbouncer")
    [port] = free_ports(1)
    url = fresh_database(postgres)
    with_schema(url).dispose()
    with open_directory() as directory:
        settings = directory / "pgbouncer.ini"
        settings.write_text(
            TRANSACTIONS.format(host=HOST, port=postgres.port, own_port=port, directory=directory)
        )
        users = (USER, "loader_login")
        lines = [f'"{user}" "{PASSWORD}"' for user in users]
        (directory / "users.txt").write_text("\n".join([*lines, ""]))
        server = ServerProcess(
            [program, str(settings)],
            log=directory / "log",
            ready=lambda: answers(port),
            env=dict(os.environ),
            cwd=directory,
            account=server_account(),
        )
        server.start()
        try:
            yield make_url(url).set(port=port).render_as_string(hide_password=False)
        finally:
            server.kill()


def test_a_pooler_in_transaction_mode_is_reported_and_a_name_is_still_used_once(
    pooled: str, tmp_path: Path
) -> None:
    loader = as_role(pooled, "loader")
    checked = invoke("sam-db", "check", env={**os.environ, "SAM_DATABASE_URL": loader})
    engine = make_engine(loader)
    with (
        closing(HeldName(engine, "site-a", False, "one")) as first,
        closing(HeldName(engine, "site-a", False, "two")) as second,
    ):
        first.hold()
        first.hold()
        with pytest.raises(SourceTaken):
            second.hold()
    site = make_site(tmp_path, pooled, [f"spool://{tmp_path}/spool"])
    site.fill(*results(20))

    assert "transaction mode" in checked.out
    assert site.drain().code == 0
    engine.dispose()


def test_a_daemon_with_two_hosts_goes_on_at_the_standby_that_is_promoted(tmp_path: Path) -> None:
    with needed(running_postgres({"wal_level": "replica"})) as primary:
        url = fresh_database(primary)
        with_schema(url).dispose()
        with running_standby(primary) as standby:
            both = (
                f"postgresql+psycopg2://{USER}:{PASSWORD}@/{make_url(url).database}"
                f"?host={HOST}:{primary.port}&host={HOST}:{standby.port}"
                "&target_session_attrs=read-write"
            )
            site = make_site(tmp_path, url, [f"spool://{tmp_path}/spool"])
            site.edit(as_role(url, "loader"), both)
            with running(site) as daemon:
                site.fill(*results(5, "org.sam.Before"))
                site.wait_for_rows(5)
                primary.kill()
                site.fill(*results(5, "org.sam.After"))
                daemon.wait_for("nothing is acked")
                standby.execute("SELECT pg_promote()")
                moved = standby.url(make_url(url).database or "")
                replace(site, database=moved).wait_for_rows(10)
                assert daemon.stop().code == 0
