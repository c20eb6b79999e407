"""The steps of docs/new-class.md add a class while the consumer runs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError

from tests.services.postgres import PostgresServer
from tests.support.commands import Workplace
from tests.support.page import Page, on_postgresql, on_sqlite, shell, with_database
from tests.support.reports.stored import execute, query

PAGE = Page("docs/new-class.md")
SECTIONS = {"sqlite": "On SQLite", "postgresql": "On PostgreSQL"}
PASSWORD = "let-me-in"
EARLY = """\
environmentId: 6f9619ff-8b86-d011-b42d-00c04fc964ff
name: EARLY
value: before the class existed
timestamp: 2026-11-20T12:00:00Z
EOT
"""
DOTTED = '"org.wlcg.metricEnvironment"'
STORED = "SELECT name, value FROM metricEnvironment ORDER BY name"


def block(section: str, language: str, number: int = 0) -> str:
    return PAGE.texts(language, section)[number]


@pytest.fixture(params=SECTIONS)
def workplace(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Workplace, Workplace, str]]:
    """The workplaces of administrator and consumer, and their section of the page."""
    section = SECTIONS[request.param]
    if request.param == "sqlite":
        workplace = on_sqlite(tmp_path)
        yield workplace, workplace, section
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with on_postgresql(tmp_path, server) as workplace:
        yield workplace, as_the_consumer(workplace, server), section


def as_the_consumer(workplace: Workplace, server: PostgresServer) -> Workplace:
    """With a login that is a member of sam_loader and nothing else."""
    server.execute("DROP ROLE IF EXISTS consumer_of_docs")
    server.execute(f"CREATE ROLE consumer_of_docs LOGIN PASSWORD '{PASSWORD}' IN ROLE sam_loader")
    login = f"{server.user}:{server.password}@"
    return with_database(
        workplace, workplace.database.replace(login, f"consumer_of_docs:{PASSWORD}@")
    )


def eventually(read: Callable[[], object], expected: object) -> None:
    deadline = time.monotonic() + 30
    while (value := read()) != expected:
        assert time.monotonic() < deadline, f"{value} is not {expected}"
        time.sleep(0.1)


def rows(workplace: Workplace) -> list[tuple[str, str]]:
    return [(row["name"], row["value"]) for row in query(workplace.database, STORED)]


def dead_letters(workplace: Workplace) -> list[tuple[str, str]]:
    letters = query(workplace.database, "SELECT reason, state FROM dead_letter")
    return [(letter["reason"], letter["state"]) for letter in letters]


def test_the_consumer_loads_a_new_class_without_a_restart(
    workplace: tuple[Workplace, Workplace, str],
) -> None:
    admin, consumer, section = workplace
    with consumer.running("sam-consume", "run") as daemon:
        admin.succeed("sam-publish", "send", "--class", "metricEnvironment", stdin=EARLY)
        eventually(lambda: dead_letters(admin), [("unknown-class", "open")])

        admin.write("metric_environment.sql", block(section, "sql"))
        created = shell(admin, block(section, "sh"))
        assert created.code == 0, str(created)
        sent = shell(admin, block("Test it", "sh", 0))
        assert sent.code == 0, str(sent)

        eventually(lambda: rows(admin), [("LD_LIBRARY_PATH", "/usr/lib64")])
        replayed = shell(consumer, block("Test it", "sh", 1))
        assert replayed.code == 0, str(replayed)
        assert [name for name, _ in rows(admin)] == ["EARLY", "LD_LIBRARY_PATH"]
        assert daemon.poll() is None

    assert dead_letters(admin) == [("unknown-class", "replayed")]
    listed = {
        row["class"].lower(): row for row in admin.succeed("sam-db", "classes", "--json").json
    }
    assert listed["metricenvironment"]["problem"] is None


def test_a_duplicate_changes_nothing_and_a_bad_record_is_a_dead_letter(
    workplace: tuple[Workplace, Workplace, str],
) -> None:
    admin, consumer, section = workplace
    admin.write("metric_environment.sql", block(section, "sql"))
    assert shell(admin, block(section, "sh")).code == 0
    bad = EARLY.replace("6f9619ff-8b86-d011-b42d-00c04fc964ff", "none")
    unnamed = EARLY.replace("name: EARLY\n", "")

    for text in (EARLY, EARLY.replace("value: b", "value: B"), bad + unnamed + EARLY):
        admin.succeed("sam-publish", "send", "--class", "metricenvironment", stdin=text)
    drained = consumer.run("sam-consume", "run", "--drain")

    assert drained.code == 65, str(drained)
    assert rows(admin) == [("EARLY", "before the class existed")]
    errors = [row["error"] for row in query(admin.database, "SELECT error FROM dead_letter")]
    assert ["none" in error for error in errors] == [True, False]
    assert ["name" in error for error in errors] == [False, True]


def test_the_name_of_a_class_may_have_dots(
    workplace: tuple[Workplace, Workplace, str],
) -> None:
    admin, consumer, section = workplace
    statements = re.sub(r"(VIEW|ON) metricEnvironment\b", rf"\1 {DOTTED}", block(section, "sql"))
    admin.write("metric_environment.sql", statements)
    assert shell(admin, block(section, "sh")).code == 0

    admin.succeed("sam-publish", "send", "--class", "org.wlcg.metricEnvironment", stdin=EARLY)
    admin.succeed("sam-publish", "send", "--class", "metricEnvironment", stdin=EARLY)
    drained = consumer.run("sam-consume", "run", "--drain")

    assert drained.code == 65, str(drained)
    assert len(query(admin.database, f"SELECT name FROM {DOTTED}")) == 1
    assert dead_letters(admin) == [("unknown-class", "open")]


def test_the_loader_may_not_read_its_rows(tmp_path: Path, postgres: PostgresServer) -> None:
    with on_postgresql(tmp_path, postgres) as admin:
        consumer = as_the_consumer(admin, postgres)
        admin.write("metric_environment.sql", block("On PostgreSQL", "sql"))
        assert shell(admin, block("On PostgreSQL", "sh")).code == 0

        for statement in ("SELECT * FROM metricEnvironment", "DELETE FROM metric_environment"):
            with pytest.raises(DBAPIError, match="permission denied"):
                execute(consumer.environment["SAM_DATABASE_URL"], statement)


def test_both_examples_create_the_same_view() -> None:
    def view(section: str) -> str:
        (text,) = [part for part in block(section, "sql").split(";") if "CREATE VIEW" in part]
        return text[text.index("CREATE VIEW") :]

    assert view("On SQLite") == view("On PostgreSQL")
