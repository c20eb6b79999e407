"""How errors of the drivers are classified and worded."""

from __future__ import annotations

import sqlite3

import psycopg2
import psycopg2.errorcodes
import pytest
from sqlalchemy.exc import DBAPIError

from sam_pipeline.sql.errors import (
    DatabaseAway,
    DatabaseFull,
    DatabaseRefused,
    Kind,
    StatementFailed,
    is_collision,
    kind_of,
    message_of,
    translated,
)

STATES = {
    Kind.RETRY: "08006 25006 25P04 28P01 40001 40P01 53100 55P03 57P01 58030 XX001",
    Kind.CLASS: "0A000 2D000 39P01 42501 42703 42883 42P01 55000",
    Kind.RECORD: "22003 22P02 23502 23514 54000 P0001 ZZ001",  # the last of a trigger's own making
    Kind.HICCUP: "XX000",
}
ON_SQLITE = [
    ("SQLITE_BUSY", "database is locked", Kind.RETRY),
    ("SQLITE_BUSY_SNAPSHOT", "database is locked", Kind.RETRY),
    ("SQLITE_CANTOPEN", "unable to open database file", Kind.RETRY),
    ("SQLITE_FULL", "database or disk is full", Kind.RETRY),
    ("SQLITE_IOERR_WRITE", "disk I/O error", Kind.RETRY),
    ("SQLITE_READONLY_DBMOVED", "attempt to write a readonly database", Kind.RETRY),
    ("SQLITE_ERROR", "no such table: main.host", Kind.CLASS),
    ("SQLITE_ERROR", "cannot modify note because it is a view", Kind.CLASS),
    ("SQLITE_ERROR", "table note has no column named words", Kind.CLASS),
    ("SQLITE_ERROR", "malformed JSON", Kind.RECORD),
    ("SQLITE_CONSTRAINT_TRIGGER", "hostName: is not a host name", Kind.RECORD),
    ("SQLITE_CONSTRAINT_NOTNULL", "NOT NULL constraint failed", Kind.RECORD),
    ("SQLITE_TOOBIG", "string or blob too big", Kind.RECORD),
    ("SQLITE_NEWLY_MADE", "of a later version", Kind.RECORD),
]


def postgresql_error(state: str | None, text: str = "no text") -> psycopg2.Error:
    class Error(psycopg2.DatabaseError):
        pgcode = state

    return Error(text)


def sqlite_error(name: str, text: str) -> sqlite3.Error:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorname = name
    return error


def wrapped(error: BaseException, lost: bool = False) -> DBAPIError:
    """As SQLAlchemy hands it on."""
    return DBAPIError("INSERT", {}, error, connection_invalidated=lost)


@pytest.mark.parametrize(
    ("state", "kind"), [(state, kind) for kind in STATES for state in STATES[kind].split()]
)
def test_a_sqlstate_says_what_to_do(state: str, kind: Kind) -> None:
    error = postgresql_error(state)

    assert kind_of(error) is kind_of(wrapped(error)) is kind
    assert is_collision(wrapped(error)) is (state in ("40001", "40P01"))


@pytest.mark.parametrize(("name", "text", "kind"), ON_SQLITE)
def test_an_sqlite_error_name_says_what_to_do(name: str, text: str, kind: Kind) -> None:
    assert kind_of(wrapped(sqlite_error(name, text))) is kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg2.OperationalError("server closed the connection unexpectedly"), Kind.RETRY),
        (psycopg2.InterfaceError("connection already closed"), Kind.RETRY),
        (wrapped(postgresql_error(None), lost=True), Kind.RETRY),
        (wrapped(postgresql_error("22P02"), lost=True), Kind.RETRY),
        (ValueError("A string literal cannot contain NUL (0x00) characters."), Kind.RECORD),
        (UnicodeEncodeError("utf-8", "\udc80", 0, 1, "surrogates not allowed"), Kind.RECORD),
        (OverflowError("Python int too large to convert to SQLite INTEGER"), Kind.RECORD),
        (wrapped(psycopg2.DataError("date out of range")), Kind.RECORD),
    ],
    ids=repr,
)
def test_a_lost_connection_is_retried_and_an_unsendable_value_is_the_records_fault(
    error: Exception, kind: Kind
) -> None:
    assert kind_of(error) is kind
    if not isinstance(error, DBAPIError):
        assert message_of(error).startswith(type(error).__name__)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("57P01", DatabaseAway),
        ("53100", DatabaseFull),
        ("42501", DatabaseRefused),
        ("42P01", StatementFailed),
    ],
)
def test_the_class_of_an_error_says_whether_waiting_helps(
    state: str, kind: type[Exception]
) -> None:
    error = translated(wrapped(postgresql_error(state, "some text")), "the database")

    assert type(error) is kind
    assert "some text" in str(error)
