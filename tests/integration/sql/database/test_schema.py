"""The schema: versions, comments, and differences from its files."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.sql.checks.check import find_problems
from sam_pipeline.sql.checks.schema_objects import differences, present_objects, wanted_objects
from sam_pipeline.sql.database.engine import make_engine, reading, writing
from sam_pipeline.sql.database.script import present_state
from sam_pipeline.sql.database.version import (
    current_version,
    require_compatible,
    upgrade,
    wanted_version,
)
from sam_pipeline.sql.errors import (
    DatabaseMissing,
    DatabaseRefused,
    SchemaMismatch,
    StatementFailed,
)
from tests.services.postgres import PostgresServer
from tests.support.database.dialects import only_on
from tests.support.database.sql_rows import query

FUNCTIONS_ON_POSTGRESQL = (
    "new_result",
    "new_result_insert",
    "operation_delete",
    "new_claim",
    "new_claim_insert",
    "lost_claims",
    "lost_result",
    "lost_result_update",
    "new_change",
    "new_change_insert",
    "result_source_insert",
    "new_instance",
    "new_instance_insert",
    "metric_result_replace",
    "metric_result_worsen",
    "metric_result_delete",
    "folded",
    "fold_news",
    "fold_news_insert",
    "unfolded_result",
    "unfolded_day",
    "unfolded_status",
    "operation_delete",
)
"""Objects of SQLite in place of functions of PostgreSQL, or of a trigger for several events."""
OF_STATEMENTS = ("_begin", "_end")
"""Ends of the names of statement triggers, which SQLite does not have."""

OF_ROLES = re.compile(
    r"published_run_change|run_change|\w+_figure_insert|(group_site|timeline_segment|report_change_row)_insert"
)
"""Triggers that keep what a role may not change; SQLite has no roles."""

OBJECT = re.compile(r"^CREATE (TABLE|VIEW|INDEX|TRIGGER) (\w+)", re.MULTILINE)


def execute(engine: Engine, statement: str) -> None:
    with writing(engine) as connection:
        connection.execute(text(statement))


def test_an_upgraded_database_equals_the_schema_files(own_engine: Engine) -> None:
    with reading(own_engine) as connection:
        actual, expected = present_objects(connection), wanted_objects(connection)

    assert actual == expected
    assert len(expected) > 50


def test_a_comparison_leaves_the_database_unchanged(own_engine: Engine) -> None:
    with reading(own_engine) as connection:
        before = present_objects(connection)
        assert list(differences(before, wanted_objects(connection))) == []
        after = present_objects(connection)

    assert before == after


def test_both_dialects_have_the_same_objects_in_the_same_order() -> None:
    objects = {
        dialect: [
            (kind, name)
            for script in present_state(dialect)
            for kind, name in OBJECT.findall(script)
            if name not in FUNCTIONS_ON_POSTGRESQL
            and not name.endswith(OF_STATEMENTS)
            and not OF_ROLES.fullmatch(name)
        ]
        for dialect in ("sqlite", "postgresql")
    }

    assert objects["sqlite"] == objects["postgresql"]
    assert len(objects["sqlite"]) > 50


@only_on("postgresql")
def test_every_object_has_a_comment(engine: Engine) -> None:
    assert query(engine, UNCOMMENTED) == []


def test_every_object_of_sqlite_has_a_comment_before_it() -> None:
    for script in present_state("sqlite"):
        lines = script.splitlines()
        for number, line in enumerate(lines):
            if line.startswith("CREATE "):
                before = list(filter(None, lines[max(number - 2, 0) : number]))
                assert before[-1].startswith("--"), line


UNCOMMENTED = """
    SELECT relname FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v')
        AND NOT relispartition
        AND relname <> 'alembic_version' AND obj_description(oid, 'pg_class') IS NULL
    UNION ALL
    SELECT proname FROM pg_proc
    WHERE pronamespace = 'public'::regnamespace AND obj_description(oid, 'pg_proc') IS NULL
    UNION ALL
    SELECT tgname FROM pg_trigger
    WHERE NOT tgisinternal AND obj_description(oid, 'pg_trigger') IS NULL
"""


def test_a_second_upgrade_applies_no_version(bare_engine: Engine) -> None:
    assert current_version(bare_engine) is None

    first, second = upgrade(bare_engine), upgrade(bare_engine)

    assert (first[-1], second) == (wanted_version(), [])
    assert current_version(bare_engine) == wanted_version()
    require_compatible(bare_engine)


def test_a_failed_upgrade_leaves_nothing_behind(bare_engine: Engine) -> None:
    execute(bare_engine, "CREATE TABLE group_figure (in_the_way integer)")

    with pytest.raises(StatementFailed, match="group_figure"):
        upgrade(bare_engine)

    assert current_version(bare_engine) is None
    execute(bare_engine, "DROP TABLE group_figure")
    upgrade(bare_engine)
    assert find_problems(bare_engine) == []


def test_a_database_without_schema_is_refused_with_the_command_to_run(bare_engine: Engine) -> None:
    with pytest.raises(SchemaMismatch, match="run `sam-db upgrade`") as caught:
        require_compatible(bare_engine)

    assert (caught.value.version, caught.value.wanted) == (None, wanted_version())


def test_a_newer_schema_is_refused_with_both_versions(own_engine: Engine) -> None:
    execute(own_engine, "UPDATE alembic_version SET version_num = '9999'")

    for action in (require_compatible, upgrade):
        with pytest.raises(SchemaMismatch, match=f"9999 is newer.* {wanted_version()}"):
            action(own_engine)


@only_on("postgresql")
def test_sessions_are_in_utc_whatever_the_setting_of_the_server(engine: Engine) -> None:
    assert query(engine, "SHOW timezone") == [("UTC",)]
    after_reset = query(engine, "SELECT reset_val FROM pg_settings WHERE name = 'TimeZone'")
    assert after_reset == [("UTC",)]


def test_a_missing_sqlite_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatabaseMissing, match=r"absent\.db: no such database"):
        make_engine(f"sqlite:///{tmp_path}/absent.db")

    assert list(tmp_path.iterdir()) == []


def test_a_postgresql_database_that_does_not_exist_is_missing(postgres: PostgresServer) -> None:
    engine = make_engine(postgres.url("nowhere"))

    with pytest.raises(DatabaseMissing, match='database "nowhere" does not exist'):
        current_version(engine)


def test_the_error_of_a_wrong_password_does_not_show_the_password(postgres: PostgresServer) -> None:
    engine = make_engine(postgres.url().replace(postgres.password, "wrong-secret"))

    with pytest.raises(DatabaseRefused) as caught:
        current_version(engine)

    assert "password authentication failed" in str(caught.value)
    assert "wrong-secret" not in str(caught.value)


def test_an_sqlite_reader_does_not_keep_the_writer_waiting(tmp_path: Path) -> None:
    engine = make_engine(f"sqlite:///{tmp_path / 'sam.db'}", create=True)
    upgrade(engine)

    with closing(engine.connect()) as reader:
        reader.execute(text("SELECT * FROM run")).all()
        execute(engine, "INSERT INTO site (name) VALUES ('S')")

    assert query(engine, "SELECT name FROM site") == [("S",)]
    engine.dispose()
