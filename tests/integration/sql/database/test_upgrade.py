"""Upgrades: of a released version, interrupted, several at once; and who works with which."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from sqlalchemy import Engine

import sam_pipeline.sql.database.version
from sam_pipeline.schema.program.command import CONFIG
from sam_pipeline.sql.checks.check import find_problems
from sam_pipeline.sql.database.version import (
    current_schema,
    current_version,
    require_compatible,
    upgrade,
    upgrade_script,
    versions,
    wanted_version,
)
from sam_pipeline.sql.errors import SchemaMismatch
from tests.services.psql import run_psql
from tests.support.database.dialects import only_on
from tests.support.database.sam_db import url_of
from tests.support.database.sql_rows import EXAMPLES, insert, query, stored
from tests.support.database.upgrade_process import upgrade_at_once
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
        for number, text in enumerate((present.read_text(), *later), 1):
            (directory / f"v000{number}.py").write_text(text)
        monkeypatch.setattr(sam_pipeline.sql.database.version, "VERSIONS", directory)

    return become


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
    assert current_version(own_engine) == wanted_version() == "0002"
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
        *(("sam-db", name) for name in ("current", "check", "classes")),
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
        assert current_version(bare_engine) is None

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

    assert current_version(bare_engine) == wanted_version()
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
    assert current_version(bare_engine) == "0002"


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
