"""Upgrades, who works with which version, and connections."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

import sam_pipeline.sql.database.version
from sam_pipeline.schema.program.command import CONFIG
from sam_pipeline.sql.checks.check import find_problems
from sam_pipeline.sql.database.engine import make_engine, reading
from sam_pipeline.sql.database.version import (
    current_schema,
    require_compatible,
    upgrade,
    upgrade_script,
    versions,
    wanted_version,
)
from sam_pipeline.sql.errors import DatabaseMissing, DatabaseRefused, SchemaMismatch
from tests.services.postgres import PostgresServer, run_psql
from tests.support.database.dialects import only_on
from tests.support.database.own_class import run
from tests.support.database.sam_db import upgrade_at_once, url_of
from tests.support.database.sql_rows import EXAMPLES, insert, query, stored
from tests.support.invoke import invoke
from tests.support.reports.database import profile
from tests.support.reports.published_days import publish

HEAD = 'revision, down_revision, additive = "{}", "{}", {}\ndef upgrade():'
ADDITIVE = HEAD.format("0002", "0001", True) + " pass\n"
THIRD = HEAD.format("0003", "0002", True) + " pass\n"
WITH_COUNTRY = (
    "from alembic import op\n"
    + HEAD.format("0002", "0001", False)
    + ("""\n    op.execute("ALTER TABLE site ADD COLUMN country text NOT NULL DEFAULT ''")\n""")
)
REPORTS = "result topology downtime site_group site_contact run"
AVAILABILITIES = "endpoint service function site"
VIEWS = (
    *EXAMPLES,
    *(f"report_{name}" for name in REPORTS.split()),
    *(f"{name}_availability" for name in AVAILABILITIES.split()),
    *("status_timeline", "current_status"),
)


@pytest.fixture
def become(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes this program that of the last of these versions."""
    present = sam_pipeline.sql.database.version.VERSIONS / "v0001.py"

    def become(*later: str) -> None:
        directory = tmp_path / f"versions-{len(list(tmp_path.iterdir()))}"
        directory.mkdir()
        for number, program in enumerate((present.read_text(), *later), 1):
            (directory / f"v000{number}.py").write_text(program)
        monkeypatch.setattr(sam_pipeline.sql.database.version, "VERSIONS", directory)

    return become


def version_of(engine: Engine) -> str | None:
    schema = current_schema(engine)
    return schema and schema.version


def contents(engine: Engine) -> dict[str, Counter[object]]:
    return {view: Counter(query(engine, f"SELECT * FROM {view}")) for view in VIEWS}


def test_an_upgrade_from_a_released_version_keeps_every_row(
    own_engine: Engine, become: Callable[..., None], tmp_path: Path
) -> None:
    for view, example in EXAMPLES.items():
        insert(own_engine, view, example)
    hosts = {"S CE ce01.example.org": {"00:00": "OK"}}
    publish(own_engine, profile(tmp_path), date(2026, 11, 20), hosts)
    become(WITH_COUNTRY)
    before = contents(own_engine)
    assert all(before.values()), before
    assert_refused(own_engine, "0001", "0002")

    assert upgrade(own_engine) == ["0002"]

    assert contents(own_engine) == before
    assert version_of(own_engine) == wanted_version() == "0002"
    assert query(own_engine, "SELECT DISTINCT country FROM site") == [("",)]
    for view, example in EXAMPLES.items():
        insert(own_engine, view, {**example, "siteName": "LATER"})
    become()
    assert_refused(own_engine, "0002", "0001")


def assert_refused(engine: Engine, *versions: str) -> None:
    """Both versions are named by every program."""
    environment = {
        **os.environ,
        "SAM_DATABASE_URL": url_of(engine),
        "SAM_CONSUMER_NAME": "test",
        "SAM_CONSUMER_BROKERS": "spool:///nowhere",
    }
    for command in (
        ("sam-consume", "run", "--drain"),
        ("sam-report", "show", "--day", "2026-11-01"),
        *(("sam-db", *name.split()) for name in ("version", "check", "class list")),
    ):
        answer = invoke(*command, env=environment)
        assert answer.code == CONFIG, str(answer)
        assert all(version in answer.err for version in versions), str(answer)


# Kills itself, as a power failure would, before a statement that contains the argument.
KILLED_AT = """
import os, signal, sys
from sqlalchemy import Engine, event
from sam_pipeline.sql.cli import main

@event.listens_for(Engine, "before_cursor_execute")
def kill(connection, cursor, statement, *more):
    if sys.argv[1] in statement:
        os.kill(os.getpid(), signal.SIGKILL)

main(["upgrade"])
"""


def test_a_killed_upgrade_leaves_nothing_and_completes_when_run_again(bare_engine: Engine) -> None:
    for statement in ("CREATE TABLE group_figure", "INTO alembic_version"):
        killed = subprocess.run(
            [sys.executable, "-c", KILLED_AT, statement],
            env={**os.environ, "SAM_DATABASE_URL": url_of(bare_engine)},
            timeout=60,
        )
        assert killed.returncode == -signal.SIGKILL
        assert version_of(bare_engine) is None

    assert upgrade(bare_engine) == versions()
    assert find_problems(bare_engine) == []


def test_of_two_concurrent_upgrades_one_applies_no_version(bare_engine: Engine) -> None:
    applied = upgrade_at_once([url_of(bare_engine)] * 2)

    assert sorted(applied) == [[], versions()]
    assert find_problems(bare_engine) == []


@only_on("postgresql", "own_url")
def test_the_sql_for_a_dba_makes_the_same_database(
    bare_engine: Engine, become: Callable[..., None]
) -> None:
    """On SQLite, tests/unit/sql/test_command.py shows it."""
    run_psql(url_of(bare_engine), upgrade_script("postgresql"))

    assert version_of(bare_engine) == wanted_version()
    assert find_problems(bare_engine) == []
    assert upgrade(bare_engine) == []
    for view, example in EXAMPLES.items():
        insert(bare_engine, view, example)
        assert len(stored(bare_engine, view)) == 1

    become(ADDITIVE)
    script = upgrade_script("postgresql", "0001")
    assert "INSERT INTO compatibility VALUES ('0002', '0001')" in script
    assert script.index("LOCK TABLE alembic_version") < script.index("INSERT INTO compatibility")
    run_psql(url_of(bare_engine), script)
    assert version_of(bare_engine) == "0002"


def test_only_neighbours_work_together(own_engine: Engine, become: Callable[..., None]) -> None:
    def suits() -> bool:
        schema = current_schema(own_engine)
        return schema is not None and schema.suits

    become(WITH_COUNTRY)  # it is not additive
    assert not suits()
    become(ADDITIVE)
    assert suits()
    become(ADDITIVE, THIRD)
    assert not suits()

    upgrade(own_engine)

    assert suits()
    become(ADDITIVE)
    assert suits()
    become()
    assert not suits()
    for action in (upgrade, require_compatible):
        with pytest.raises(SchemaMismatch, match=r"0003 is newer.* 0001"):
            action(own_engine)


# What every connection promises -------------------------------------------------------------------

NOTICED_S = 60
"""The time within which a program notices that the database is silent."""


@only_on("postgresql")
def test_sessions_are_in_utc_and_waits_bounded_whatever_the_server_says(engine: Engine) -> None:
    assert query(engine, "SHOW timezone") == [("UTC",)]
    after_reset = query(engine, "SELECT reset_val FROM pg_settings WHERE name = 'TimeZone'")
    assert after_reset == [("UTC",)]
    assert query(engine, "SHOW lock_timeout") == [("30s",)]
    # The server notices a vanished client.
    names = ("idle", "interval", "count")
    first_s, interval_s, count = (
        int(query(engine, f"SHOW tcp_keepalives_{name}")[0][0]) for name in names
    )
    assert 0 < first_s + count * interval_s < NOTICED_S


def test_an_unusable_database_of_a_server_is_reported_without_the_password(
    postgres: PostgresServer,
) -> None:
    with pytest.raises(DatabaseMissing, match='database "nowhere" does not exist'):
        version_of(make_engine(postgres.url("nowhere")))
    with pytest.raises(DatabaseRefused, match="password authentication failed") as caught:
        version_of(make_engine(postgres.url().replace(postgres.password, "wrong-secret")))

    assert "wrong-secret" not in str(caught.value)


@only_on("sqlite")
def test_commits_to_a_file_survive_a_power_failure_and_readers_do_not_block(engine: Engine) -> None:
    assert query(engine, "PRAGMA synchronous") == [(2,)]  # FULL
    with closing(engine.connect()) as reader:
        reader.execute(text("SELECT * FROM run")).all()
        run(engine, "INSERT INTO site (name) VALUES ('S')")

    assert query(engine, "SELECT name FROM site") == [("S",)]


@contextmanager
def connected(engine: Engine) -> Iterator[tuple[Any, socket.socket]]:
    """The driver's connection to PostgreSQL, and its socket."""
    with reading(engine) as connection:
        driver: Any = connection.connection.driver_connection
        with socket.socket(fileno=os.dup(driver.fileno())) as duplicate:
            yield driver, duplicate


@only_on("postgresql")
def test_a_silent_server_is_noticed_within_a_minute_unless_the_url_says_otherwise(
    engine: Engine,
) -> None:
    def tcp(name: str) -> int:
        return connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{name}"))

    with connected(engine) as (driver, connection):
        probing = connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        probes_s = tcp("KEEPIDLE") + tcp("KEEPCNT") * tcp("KEEPINTVL")
        unacknowledged_s = tcp("USER_TIMEOUT") / 1000
        connect_s = int(driver.info.dsn_parameters["connect_timeout"])
    url = engine.url.update_query_dict({"tcp_user_timeout": "7000", "keepalives_idle": "3"})
    own = make_engine(url.render_as_string(hide_password=False))
    with connected(own) as (_, connection):
        of_url = tcp("USER_TIMEOUT"), tcp("KEEPIDLE")
    own.dispose()

    assert probing
    idle_s = max(probes_s, unacknowledged_s)
    # Data sent at the last moment before an idle connection ends, then a new connection.
    assert 0 < unacknowledged_s < idle_s + unacknowledged_s + connect_s < NOTICED_S
    assert of_url == (7000, 3)
