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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg2
from sqlalchemy import make_url

from tests.services import ServiceMissing
from tests.services.process import HOST, Server, ServerProcess, as_account, free_ports, running

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


@dataclass(frozen=True, kw_only=True)
class PostgresServer(Server):
    port: int
    host: str = HOST
    user: str = USER
    password: str = PASSWORD

    def url(self, database: str = "postgres") -> str:
        return f"postgresql+psycopg2://{USER}:{PASSWORD}@{HOST}:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Run one statement outside any transaction (CREATE DATABASE needs that)."""
        with contextlib.closing(_connect(self.port, database)) as connection:
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
    chosen = {**SETTINGS, **(settings or {})}
    with running("postgres", lambda directory: _server(directory, chosen)) as server:
        for role in ROLES:
            login = f"CREATE ROLE {role}_login LOGIN PASSWORD '{PASSWORD}' IN ROLE sam_{role}"
            server.execute(f"CREATE ROLE sam_{role} NOLOGIN")
            server.execute(login)
        yield server


@contextlib.contextmanager
def running_standby(primary: PostgresServer) -> Iterator[PostgresServer]:
    """A standby of a primary whose wal_level is `replica`; it also lives on without it."""
    with running("standby", lambda directory: _standby(primary, directory)) as server:
        yield server


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


def _server(directory: Path, settings: Mapping[str, str]) -> PostgresServer:
    programs, account, data = find_programs(), server_account(), directory / "data"
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "LC_ALL": "C.UTF-8"}
    password_file = directory / "password"
    password_file.write_text(PASSWORD)
    if account:
        for path in (directory, password_file):
            shutil.chown(path, account, pwd.getpwnam(account).pw_gid)
    subprocess.run(
        [
            *(str(programs / "initdb"), f"--pgdata={data}", f"--username={USER}", "--no-sync"),
            *(f"--pwfile={password_file}", "--auth=scram-sha-256", "--encoding=UTF8"),
            "--locale=C.UTF-8",
        ],
        cwd=directory,
        env=environment,
        check=True,
        capture_output=True,
        **as_account(account),
    )
    return _on_data(directory, settings)


def _standby(primary: PostgresServer, directory: Path) -> PostgresServer:
    """A streaming copy of the primary."""
    account = server_account()
    if account:
        shutil.chown(directory, account)
    with (primary.directory / "data" / "pg_hba.conf").open("a") as rules:
        rules.write(f"host replication {USER} {HOST}/32 scram-sha-256\n")
    primary.execute("SELECT pg_reload_conf()")
    login = ("-h", HOST, "-p", str(primary.port), "-U", USER)
    options = ("-D", str(directory / "data"), "-R", "-X", "stream", "-c", "fast")
    subprocess.run(
        [str(find_programs() / "pg_basebackup"), *login, *options],
        env={"PATH": os.environ["PATH"], "PGPASSWORD": PASSWORD, "LC_ALL": "C.UTF-8"},
        check=True,
        capture_output=True,
        **as_account(account),
    )
    return _on_data(directory, SETTINGS)


def _on_data(directory: Path, settings: Mapping[str, str]) -> PostgresServer:
    """The server of the cluster in `data`, on a free port."""
    (port,) = free_ports(1)
    options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
    program = find_programs() / "postgres"
    process = ServerProcess(
        [str(program), "-D", str(directory / "data"), "-p", str(port), *options],
        log=directory / "log",
        ready=lambda: answers(port),
        env={"PATH": os.environ["PATH"], "HOME": str(directory), "LC_ALL": "C.UTF-8"},
        cwd=directory,
        account=server_account(),
    )
    return PostgresServer(port=port, directory=directory, process=process)


def _connect(port: int, database: str) -> Any:
    return psycopg2.connect(host=HOST, port=port, user=USER, password=PASSWORD, dbname=database)


def answers(port: int) -> bool:
    """Whether a server, or a pooler before it, accepts a login."""
    try:
        _connect(port, "postgres").close()
    except psycopg2.OperationalError:
        return False
    return True


def run_psql(database: str, script: str) -> str:
    """The output of psql on a script as a DBA would run it, in which every statement succeeds."""
    url = make_url(database).set(drivername="postgresql")
    options = ("--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--file=-")
    done = subprocess.run(
        [str(find_programs() / "psql"), *options, url.render_as_string(hide_password=False)],
        input=script,
        env={"PATH": os.environ["PATH"], "PGCLIENTENCODING": "UTF8"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
