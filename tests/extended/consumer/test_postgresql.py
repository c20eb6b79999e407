"""PostgreSQL behind PgBouncer, and with a standby that takes over."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg2
import pytest
from sqlalchemy import make_url

from sam_pipeline.consumer.errors import SourceTaken
from sam_pipeline.consumer.sinks.held_name import HeldName
from sam_pipeline.sql.database.engine import make_engine
from tests.services import missing, needed
from tests.services.postgres import (
    PASSWORD,
    USER,
    PostgresServer,
    as_role,
    find_programs,
    fresh_database,
    running_postgres,
    server_account,
)
from tests.services.process import HOST, ServerProcess, as_account, free_ports
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


@contextmanager
def own_directory() -> Iterator[Path]:
    """One that the account of the server can enter."""
    account = server_account()
    with tempfile.TemporaryDirectory(prefix="sam-postgresql-") as name:
        if account:
            shutil.chown(name, account)
        yield Path(name)


@pytest.fixture
def pooled(postgres: PostgresServer) -> Iterator[str]:
    """The URL of a database through a pooler that pools transactions."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        missing("pgbouncer", "apt-get install pgbouncer")
    [port] = free_ports(1)
    url = fresh_database(postgres)
    with_schema(url).dispose()
    with own_directory() as directory:
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


def answers(port: int) -> bool:
    login = {"user": USER, "password": PASSWORD, "dbname": "postgres"}
    try:
        psycopg2.connect(host=HOST, port=port, **login).close()
    except psycopg2.OperationalError:
        return False
    return True


def test_a_pooler_of_transactions_is_reported_and_a_name_is_still_used_once(
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

    assert "pools transactions" in checked.out
    assert site.drain().code == 0
    engine.dispose()


def test_a_daemon_with_two_hosts_goes_on_at_the_standby_that_is_promoted(tmp_path: Path) -> None:
    with needed(running_postgres({"wal_level": "replica"})) as primary, own_directory() as place:
        url = fresh_database(primary)
        with_schema(url).dispose()
        standby = standby_of(primary, place)
        standby.start()
        try:
            [port] = {int(standby.command[standby.command.index("-p") + 1])}
            name = make_url(url).database
            both = (
                f"postgresql+psycopg2://{USER}:{PASSWORD}@/{name}?host={HOST}:{primary.port}"
                f"&host={HOST}:{port}&target_session_attrs=read-write"
            )
            site = make_site(tmp_path, url, [f"spool://{tmp_path}/spool"])
            site.edit(as_role(url, "loader"), both)
            with running(site) as daemon:
                site.fill(*results(5, "org.sam.Before"))
                site.wait_for_rows(5)
                primary.kill()
                site.fill(*results(5, "org.sam.After"))
                daemon.wait_for("nothing is acked")
                promote(port)
                moved = make_url(url).set(port=port).render_as_string(hide_password=False)
                replace(site, database=moved).wait_for_rows(10)
                assert daemon.stop().code == 0
        finally:
            standby.kill()


def standby_of(primary: PostgresServer, place: Path) -> ServerProcess:
    """A streaming copy of the primary, not started yet."""
    programs, account, data = find_programs(), server_account(), place / "data"
    with (primary.directory / "data" / "pg_hba.conf").open("a") as rules:
        rules.write(f"host replication {USER} {HOST}/32 scram-sha-256\n")
    primary.execute("SELECT pg_reload_conf()")
    command = [programs / "pg_basebackup", "-h", HOST, "-p", primary.port, "-U", USER]
    options = ["-D", data, "-R", "-X", "stream", "-c", "fast"]
    environment = {"PATH": os.environ["PATH"], "PGPASSWORD": PASSWORD, "LC_ALL": "C.UTF-8"}
    subprocess.run(
        [*map(str, (*command, *options))], check=True, env=environment, **as_account(account)
    )
    [port] = free_ports(1)
    settings = ("-c", f"listen_addresses={HOST}", "-c", "unix_socket_directories=")
    return ServerProcess(
        [str(programs / "postgres"), "-D", str(data), "-p", str(port), *settings],
        log=place / "log",
        ready=lambda: answers(port),
        env=environment,
        cwd=place,
        account=account,
    )


def promote(port: int) -> None:
    login = {"user": USER, "password": PASSWORD, "dbname": "postgres"}
    with closing(psycopg2.connect(host=HOST, port=port, **login)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_promote()")
