"""`sam-db` on an SQLite file."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sam_pipeline.schema.program.command import (
    CANNOT_CREATE,
    CONFIG,
    NO_PERMISSION,
    OK,
    UNAVAILABLE,
    USAGE,
)
from sam_pipeline.sql.cli import main
from sam_pipeline.sql.database.version import wanted_version


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configured database file, which does not exist yet."""
    monkeypatch.setenv("SAM_DATABASE_URL", f"sqlite:///{tmp_path}/sam.db")
    return tmp_path / "sam.db"


@pytest.fixture
def database(file: Path, empty_database: Path) -> Path:
    """The configured database file, with a schema."""
    shutil.copy(empty_database, file)
    return file


def execute(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The only line of error output."""
    captured = capsys.readouterr()
    [line] = captured.err.splitlines()
    assert captured.out == ""
    return line


def test_upgrade_creates_the_file_and_prints_what_it_applied(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["upgrade"]) == OK
    assert main(["upgrade"]) == OK

    first, second = capsys.readouterr().out.splitlines()
    assert first == f"sqlite:///{file}: applied 0001, now version {wanted_version()}"
    assert second == f"sqlite:///{file}: already version {wanted_version()}"


def test_upgrade_answers_in_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["upgrade", "--json"]) == OK

    assert json.loads(capsys.readouterr().out) == {
        "database": f"sqlite:///{file}",
        "version": wanted_version(),
        "applied": ["0001"],
    }


def test_current_prints_the_version(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["current"]) == OK

    assert capsys.readouterr().out == f"sqlite:///{database}: version {wanted_version()}\n"


def test_check_finds_no_problem_in_a_new_database(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--json"]) == OK

    assert json.loads(capsys.readouterr().out)["problems"] == []


def test_check_reports_every_problem_at_once_with_its_command(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(database, "DROP TRIGGER siteGroup_insert")
    execute(database, "DROP VIEW report_run")

    assert main(["check"]) == CONFIG

    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        f"sqlite:///{database}: view report_run is missing",
        "    sam-db repair",
        f"sqlite:///{database}: trigger siteGroup_insert is missing",
        "    sam-db repair",
    ]
    assert captured.err == f"sam-db: error: sqlite:///{database}: 2 problems, see above\n"
    assert main(["repair"]) == OK
    assert main(["check"]) == OK


def test_check_names_in_json_what_repairs_a_problem(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(database, "DROP TRIGGER siteGroup_insert")
    execute(database, "DROP INDEX run_report_day")

    assert main(["check", "--json"]) == CONFIG

    index, trigger = json.loads(capsys.readouterr().out)["problems"]
    assert trigger == {
        "problem": f"sqlite:///{database}: trigger siteGroup_insert is missing",
        "repair": "sam-db repair",
    }
    assert index["problem"].startswith(f"sqlite:///{database}: index run_report_day is missing")
    assert index["repair"] is None  # tables are left as they are


def test_check_names_the_upgrade_that_a_database_needs(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.touch()

    assert main(["check", "--json"]) == CONFIG

    [problem] = json.loads(capsys.readouterr().out)["problems"]
    assert "has no schema" in problem["problem"]
    assert problem["repair"] == "sam-db upgrade"


def test_sql_prints_the_whole_schema_without_a_database(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql"]) == OK
    script = capsys.readouterr().out
    assert not file.exists()

    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(script)
        connection.execute("PRAGMA journal_mode = WAL")
    assert main(["check"]) == OK
    assert main(["upgrade"]) == OK
    assert "already version" in capsys.readouterr().out


def test_sql_answers_in_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "--dialect", "postgresql", "--from", "0001", "--json"]) == OK

    answer = json.loads(capsys.readouterr().out)
    assert (answer["dialect"], answer["from"], answer["version"]) == (
        "postgresql",
        "0001",
        wanted_version(),
    )
    assert "CREATE TABLE alembic_version" not in answer["script"]
    assert "GRANT" in answer["script"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--roles"], "SQLite has no roles"),
        (["--from", "0000"], "must be one of 0001"),
        (["--roles", "--from", "0001"], "not allowed with"),
    ],
)
def test_sql_refuses_what_it_cannot_print(
    file: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["sql", *arguments])

    assert caught.value.code == USAGE
    assert message in capsys.readouterr().err


def test_classes_are_listed_with_their_columns(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["classes", "--json"]) == OK

    classes = {row["class"]: row["columns"] for row in json.loads(capsys.readouterr().out)}
    assert list(classes) == [
        "downtime",
        "metricOutput",
        "serviceEndpoint",
        "siteContact",
        "siteGroup",
    ]
    assert classes["siteGroup"] == [
        "siteName",
        "groupName",
        "groupType",
        "weight",
        "validFrom",
        "validTo",
    ]


def test_classes_are_listed_with_their_problems(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(database, "DROP TRIGGER siteGroup_insert")

    assert main(["classes"]) == OK

    header, *_, last = capsys.readouterr().out.splitlines()
    assert header.split() == ["class", "columns", "problem"]
    assert last.endswith("view siteGroup has no INSTEAD OF INSERT trigger")


@pytest.mark.parametrize("command", ["current", "check", "classes"])
def test_a_missing_database_is_one_clear_line(
    file: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command]) == CONFIG

    assert one_line(capsys).startswith(f"sam-db: error: {file}: no such database")
    assert not file.exists()


@pytest.mark.parametrize("command", ["current", "check", "classes"])
def test_a_database_without_schema_is_one_clear_line(
    file: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.touch()

    assert main([command]) == CONFIG

    assert "has no schema" in one_line(capsys)


@pytest.mark.parametrize("command", ["current", "check", "classes", "upgrade"])
def test_a_newer_schema_names_both_versions(
    database: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(database, "UPDATE alembic_version SET version_num = '0815'")

    assert main([command]) == CONFIG

    message = capsys.readouterr().err
    assert "0815" in message
    assert wanted_version() in message


def test_a_file_that_is_not_a_database_is_left_alone(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("a letter to my aunt\n" * 100)

    assert main(["upgrade"]) == CONFIG

    assert "file is not a database" in one_line(capsys)
    assert file.read_text() == "a letter to my aunt\n" * 100


def test_no_directory_is_created_for_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAM_DATABASE_URL", f"sqlite:///{tmp_path}/absent/sam.db")

    assert main(["upgrade"]) == CANNOT_CREATE

    assert f"the directory {tmp_path}/absent does not exist" in one_line(capsys)


def test_a_file_that_may_not_be_written_is_refused(
    database: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write everything

    assert main(["check"]) == NO_PERMISSION

    assert f"no permission to write {database}" in one_line(capsys)


def test_a_server_that_does_not_answer_is_named_without_the_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAM_DATABASE_URL", "postgresql+psycopg2://sam:secret@127.0.0.1:1/sam")

    assert main(["check"]) == UNAVAILABLE

    line = one_line(capsys)
    assert "127.0.0.1" in line
    assert "secret" not in line


@pytest.mark.parametrize("arguments", [[], ["prune"], ["upgrade", "--fast"]])
def test_wrong_usage_is_reported(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert caught.value.code == USAGE
    assert "--help" in capsys.readouterr().err
