"""Upgrades: from a released version to a later one, interrupted, several at once, and refused."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from datetime import date
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

import sam_pipeline.consumer.cli
import sam_pipeline.spark_jobs.cli
import sam_pipeline.sql.cli
import sam_pipeline.sql.database.version
from sam_pipeline.schema.program.command import CONFIG
from sam_pipeline.sql.checks.check import find_problems
from sam_pipeline.sql.database.engine import make_engine, writing
from sam_pipeline.sql.database.version import (
    current_version,
    upgrade,
    upgrade_script,
    versions,
    wanted_version,
)
from tests.services.process import wait_until
from tests.services.psql import run_psql
from tests.support.database.dialects import only_on
from tests.support.database.sam_db import url_of
from tests.support.database.sql_rows import EXAMPLES, insert, query, stored
from tests.support.database.upgrade_process import start_upgrade, upgrade_at_once
from tests.support.reports.database import profile
from tests.support.reports.published_days import publish

RELEASED = "0001"
LATER = "0002"
LATER_REVISION = f'''
from alembic import op

revision, down_revision = "{LATER}", "{RELEASED}"

def upgrade() -> None:
    op.execute("ALTER TABLE site ADD COLUMN country text NOT NULL DEFAULT ''")
'''
VIEWS = (
    *EXAMPLES,
    "report_result",
    "report_topology",
    "report_downtime",
    "report_site_group",
    "report_site_contact",
    "endpoint_availability",
    "service_availability",
    "function_availability",
    "site_availability",
    "status_timeline",
    "current_status",
    "report_run",
)


@pytest.fixture
def released(bare_engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """A filled database of the released version, while the program knows one version more."""
    upgrade(bare_engine)
    for view, example in EXAMPLES.items():
        insert(bare_engine, view, example)
    publish(
        bare_engine,
        profile(tmp_path),
        date(2026, 11, 20),
        {"S CE ce01.example.org": {"00:00": "OK"}},
    )
    later_versions = tmp_path / "versions"
    shutil.copytree(sam_pipeline.sql.database.version.VERSIONS, later_versions)
    (later_versions / f"v{LATER}.py").write_text(LATER_REVISION)
    monkeypatch.setattr(sam_pipeline.sql.database.version, "VERSIONS", later_versions)
    return bare_engine


def contents(engine: Engine) -> dict[str, Counter[object]]:
    return {view: Counter(query(engine, f"SELECT * FROM {view}")) for view in VIEWS}


def test_an_upgrade_from_a_released_version_keeps_every_row(released: Engine) -> None:
    before = contents(released)
    assert all(before.values()), before

    assert upgrade(released) == [LATER]

    assert contents(released) == before
    assert current_version(released) == wanted_version() == LATER
    assert query(released, "SELECT DISTINCT country FROM site") == [("",)]
    for view, example in EXAMPLES.items():
        insert(released, view, {**example, "siteName": "LATER"})


def test_an_older_version_is_refused_with_both_versions(
    released: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_refused(released, RELEASED, monkeypatch, capsys)


def test_a_later_version_is_refused_with_both_versions(
    own_engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with writing(own_engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    assert_refused(own_engine, "9999", monkeypatch, capsys)


def assert_refused(
    engine: Engine,
    version: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SAM_DATABASE_URL", url_of(engine))
    monkeypatch.setenv("SAM_CONSUMER_NAME", "test")
    monkeypatch.setenv("SAM_CONSUMER_BROKERS", "spool:///nowhere")
    for main, command in (
        (sam_pipeline.consumer.cli.main, ["run", "--drain"]),
        (sam_pipeline.spark_jobs.cli.main, ["show", "--day", "2026-11-01"]),
        (sam_pipeline.sql.cli.main, ["current"]),
        (sam_pipeline.sql.cli.main, ["check"]),
        (sam_pipeline.sql.cli.main, ["classes"]),
    ):
        code = main(command)

        stderr = capsys.readouterr().err
        assert code == CONFIG, stderr
        assert version in stderr
        assert wanted_version() in stderr


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


@pytest.mark.parametrize("statement", ["CREATE TABLE group_figure", "INTO alembic_version"])
def test_a_killed_upgrade_leaves_nothing_and_completes_when_run_again(
    bare_engine: Engine, statement: str
) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_AT, statement],
        env={**os.environ, "SAM_DATABASE_URL": url_of(bare_engine)},
        timeout=60,
    )

    assert killed.returncode == -signal.SIGKILL
    assert current_version(bare_engine) is None
    assert upgrade(bare_engine) == versions()
    assert find_problems(bare_engine) == []


def test_an_upgrade_killed_while_a_statement_runs_completes_when_run_again(
    postgres_url: str,
) -> None:
    engine = make_engine(postgres_url)
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'")
    with engine.connect() as blocker, engine.connect() as observer:
        blocker.execute(text("CREATE TABLE group_figure (in_the_way integer)"))
        process = start_upgrade(postgres_url)
        wait_until(lambda: observer.execute(waiting).scalar_one() == 1, timeout_s=30)
        process.kill()
        process.communicate(timeout=30)
        blocker.rollback()

    assert upgrade(engine) == versions()
    assert find_problems(engine) == []
    engine.dispose()


def test_of_two_concurrent_upgrades_one_applies_no_version(bare_engine: Engine) -> None:
    applied = upgrade_at_once([url_of(bare_engine)] * 2)

    assert sorted(applied) == [[], versions()]
    assert find_problems(bare_engine) == []


def test_the_sql_for_a_dba_makes_the_same_database(bare_engine: Engine) -> None:
    script = upgrade_script(bare_engine.dialect.name)
    if bare_engine.dialect.name == "postgresql":
        run_psql(url_of(bare_engine), script)
    else:
        with bare_engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert driver is not None
            driver.executescript(script)
    bare_engine.dispose()

    assert current_version(bare_engine) == wanted_version()
    assert find_problems(bare_engine) == []
    assert upgrade(bare_engine) == []
    for view, example in EXAMPLES.items():
        insert(bare_engine, view, example)
        assert len(stored(bare_engine, view)) == 1


@only_on("postgresql", "own_url")
def test_the_sql_from_a_released_version_leads_to_the_later_one(released: Engine) -> None:
    run_psql(url_of(released), upgrade_script("postgresql", RELEASED))

    assert current_version(released) == LATER
