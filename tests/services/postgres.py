"""A private PostgreSQL: new cluster, free port, superuser `sam`, a login for each of our roles.

with running_postgres() as server:
    url = fresh_database(server)
    as_role(url, "loader")
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg2
from sqlalchemy import make_url

from tests.services import ServiceMissing
from tests.services.process import HOST, ServerProcess, as_account, free_ports

HOW_TO_GET_IT = "apt-get install postgresql"
USER = "sam"
PASSWORD = "sam-secret"
ROLES = ("owner", "loader", "topology", "reporter", "archiver", "reader")
DEBIAN = Path("/usr/lib/postgresql")
# Commits are as durable as in production; only the sizes suit a laptop.
SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "shared_buffers": "64MB",
    "max_connections": "60",
    "log_min_messages": "warning",
}


@dataclass(frozen=True)
class PostgresServer:
    port: int
    directory: Path
    process: ServerProcess
    host: str = HOST
    user: str = USER
    password: str = PASSWORD

    def url(self, database: str = "postgres") -> str:
        return (
            f"postgresql+psycopg2://{self.user}:{self.password}@{self.host}:{self.port}/{database}"
        )

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Run one statement outside any transaction (CREATE DATABASE needs that)."""
        connection = psycopg2.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            dbname=database,
        )
        with contextlib.closing(connection):
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)

    def kill(self) -> None:
        """Send SIGKILL to the server and every backend, like a crash of the machine."""
        self.process.kill()

    def restart(self) -> None:
        """Kill it, if it runs, and start it again on the same data and port."""
        self.process.kill()
        (self.directory / "data" / "postmaster.pid").unlink(missing_ok=True)
        self.process.start()


@contextlib.contextmanager
def running_postgres(settings: Mapping[str, str] | None = None) -> Iterator[PostgresServer]:
    """A running server in a new directory, which is removed on leaving the block."""
    programs = find_programs()
    account = server_account()
    # Not pytest's directory, which the account of PostgreSQL cannot enter.
    with tempfile.TemporaryDirectory(prefix="sam-postgres-") as name:
        directory = Path(name)
        if account:
            shutil.chown(directory, account, pwd.getpwnam(account).pw_gid)
        _make_cluster(programs, directory, account)
        server = _server(programs, directory, account, {**SETTINGS, **(settings or {})})
        try:
            server.process.start()
            _make_logins(server)
            yield server
        finally:
            server.process.kill()


def fresh_database(server: PostgresServer) -> str:
    """The URL of a new, empty database."""
    url = new_url(server)
    server.execute(f"CREATE DATABASE {url.rpartition('/')[2]}")
    return url


def new_url(server: PostgresServer) -> str:
    """The URL of a database that does not exist."""
    return server.url(f"sam_{uuid4().hex}")


def drop_database(server: PostgresServer, url: str) -> None:
    """Drop a database if it exists, whoever is connected to it."""
    server.execute(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} WITH (FORCE)")


def as_role(database: str, role: str) -> str:
    """The same database for a member of `sam_<role>`; SQLite knows no users."""
    url = make_url(database)
    if url.get_backend_name() == "sqlite":
        return database
    login = url.set(username=f"{role}_login", password=PASSWORD)
    return login.render_as_string(hide_password=False)


def find_programs() -> Path:
    """The directory of the programs of the newest installed server."""
    newest = sorted(DEBIAN.glob("*/bin/postgres"), key=lambda path: int(path.parent.parent.name))
    if newest:
        return newest[-1].parent
    on_path = shutil.which("postgres")
    if on_path and shutil.which("initdb"):
        return Path(on_path).parent
    raise ServiceMissing("PostgreSQL", HOW_TO_GET_IT)


def server_account() -> str | None:
    """The account to run as, because PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _make_cluster(programs: Path, directory: Path, account: str | None) -> None:
    password_file = directory / "password"
    password_file.write_text(PASSWORD)
    if account:
        shutil.chown(password_file, account)
    subprocess.run(
        [
            str(programs / "initdb"),
            f"--pgdata={directory / 'data'}",
            f"--username={USER}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
        ],
        cwd=directory,
        env=_environment(directory),
        check=True,
        capture_output=True,
        **as_account(account),
    )


def _make_logins(server: PostgresServer) -> None:
    for role in ROLES:
        server.execute(f"CREATE ROLE sam_{role} NOLOGIN")
        server.execute(f"CREATE ROLE {role}_login LOGIN PASSWORD '{PASSWORD}' IN ROLE sam_{role}")


def _server(
    programs: Path, directory: Path, account: str | None, settings: Mapping[str, str]
) -> PostgresServer:
    (port,) = free_ports(1)
    options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
    process = ServerProcess(
        command=[
            str(programs / "postgres"),
            "-D",
            str(directory / "data"),
            "-p",
            str(port),
            *options,
        ],
        log=directory / "log",
        ready=lambda: _answers(port),
        env=_environment(directory),
        cwd=directory,
        account=account,
    )
    return PostgresServer(port=port, directory=directory, process=process)


def _answers(port: int) -> bool:
    try:
        psycopg2.connect(
            host=HOST, port=port, user=USER, password=PASSWORD, dbname="postgres"
        ).close()
    except psycopg2.OperationalError:
        return False
    return True


def _environment(directory: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(directory), "LC_ALL": "C.UTF-8"}
