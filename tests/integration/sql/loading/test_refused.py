"""The error of a record that the database refused names class, column and code."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.messages.message import JSON, new_message
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.database.version import upgrade
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.load import load
from tests.support.builders import NOW
from tests.support.database.letters import list_dead_letters
from tests.support.database.own_class import add_trigger, run

TABLES = (
    "CREATE TABLE author (name text PRIMARY KEY)",
    """
    CREATE TABLE kept_note (
        word_count integer NOT NULL CHECK (word_count > 0),
        author text REFERENCES author,
        title text UNIQUE
    )
    """,
    "CREATE VIEW note AS SELECT word_count AS wordCount, author, title FROM kept_note",
    "INSERT INTO author VALUES ('me')",
    "INSERT INTO kept_note VALUES (1, 'me', 'taken')",
)
GOOD = {"wordCount": "3", "author": "me", "title": "a"}
BAD: Mapping[str, tuple[Mapping[str, str], str, str, str]] = {
    "not null": ({"wordCount": ""}, "wordCount", "23502", "SQLITE_CONSTRAINT_NOTNULL"),
    "check": ({"wordCount": "-1"}, "wordCount", "23514", "SQLITE_CONSTRAINT_CHECK"),
    "unique": ({"title": "taken"}, "title", "23505", "SQLITE_CONSTRAINT_UNIQUE"),
    "foreign key": ({"author": "you"}, "author", "23503", "SQLITE_CONSTRAINT_FOREIGNKEY"),
    "raised by the trigger": ({"title": "x"}, "title", "P0001", "SQLITE_CONSTRAINT_TRIGGER"),
}


@pytest.fixture
def with_notes(own_engine: Engine) -> Engine:
    """A class `note` whose table has a constraint of each kind."""
    run(own_engine, *TABLES)
    insert = "INSERT INTO kept_note VALUES (CAST(NEW.wordCount AS integer), NEW.author, NEW.title);"
    if own_engine.dialect.name == "sqlite":
        refuse = "SELECT RAISE(ABORT, 'title: no letter') WHERE NEW.title = 'x';"
    else:
        refuse = "IF NEW.title = 'x' THEN RAISE 'title: no letter'; END IF;"
    add_trigger(own_engine, "note", f"{refuse} {insert}")
    return own_engine


@pytest.mark.parametrize("kind", BAD)
def test_the_error_of_a_refused_record_names_class_column_and_code(
    with_notes: Engine, kind: str
) -> None:
    changes, column, sqlstate, sqlite_name = BAD[kind]

    error = only_error(with_notes, {**GOOD, **changes})

    assert error.startswith("note: ")
    code = sqlite_name if with_notes.dialect.name == "sqlite" else sqlstate
    assert f" {code}: " in error
    assert column.lower() in error.lower().replace("_", "")


def test_the_error_of_a_value_of_another_type_names_its_column(postgres_url: str) -> None:
    engine = make_engine(postgres_url)
    upgrade(engine)
    run(
        engine,
        "CREATE TABLE kept_note (words text, number integer)",
        "CREATE VIEW note AS SELECT words, CAST(number AS text) AS number FROM kept_note",
    )
    add_trigger(engine, "note", "INSERT INTO kept_note VALUES (NEW.words, NEW.number::integer);")

    error = only_error(engine, {"words": "hello", "number": "many"})

    engine.dispose()
    assert error.startswith("note: 22P02: ")
    assert '"many"' in error
    assert "(column number)" in error


def only_error(engine: Engine, values: Mapping[str, str]) -> str:
    message = new_message("note", json.dumps(values), content_type=JSON)
    load(engine, Catalogue(engine), [message], NOW)
    [letter] = list_dead_letters(engine)
    assert (letter.message_class, letter.reason) == ("note", "refused-by-database")
    return letter.error
