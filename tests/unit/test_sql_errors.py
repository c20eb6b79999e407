"""Which errors of the drivers mean what."""

from __future__ import annotations

import sqlite3

import psycopg2
import pytest
from sqlalchemy.exc import DBAPIError, OperationalError

from sql.errors import (
    SQLSTATES,
    DatabaseAway,
    DatabaseMissing,
    DatabaseRefused,
    Kind,
    StatementFailed,
    away,
    is_collision,
    kind_of,
    translated,
    words_of,
)


def postgresql_error(state: str | None, text: str = "no words") -> psycopg2.Error:
    class Error(psycopg2.DatabaseError):
        pgcode = state

    return Error(text)


def sqlite_error(name: str, text: str = "no words") -> sqlite3.Error:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorname = name
    return error


def wrapped(error: BaseException, lost: bool = False) -> DBAPIError:
    """As SQLAlchemy hands it on."""
    return DBAPIError("INSERT", {}, error, connection_invalidated=lost)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("08006", Kind.RETRY),
        ("25006", Kind.RETRY),
        ("28P01", Kind.RETRY),
        ("40001", Kind.RETRY),
        ("40P01", Kind.RETRY),
        ("53100", Kind.RETRY),
        ("55P03", Kind.RETRY),
        ("57P01", Kind.RETRY),
        ("58030", Kind.RETRY),
        ("0A000", Kind.CLASS),
        ("42501", Kind.CLASS),
        ("42703", Kind.CLASS),
        ("42883", Kind.CLASS),
        ("42P01", Kind.CLASS),
        ("55000", Kind.CLASS),
        ("22003", Kind.RECORD),
        ("22P02", Kind.RECORD),
        ("23502", Kind.RECORD),
        ("23514", Kind.RECORD),
        ("54000", Kind.RECORD),
        ("P0001", Kind.RECORD),
        ("XX000", Kind.RECORD),
        ("XX001", Kind.RETRY),
    ],
)
def test_a_sqlstate_says_what_to_do(state: str, kind: Kind) -> None:
    error = postgresql_error(state)

    assert (kind_of(error), kind_of(wrapped(error))) == (kind, kind)


@pytest.mark.parametrize("key", SQLSTATES)
def test_the_table_holds_sqlstates_or_their_classes(key: str) -> None:
    state = key.ljust(5, "0")

    assert len(key) in (2, 5)
    assert kind_of(postgresql_error(state)) is SQLSTATES[key]


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
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
        ("SQLITE_CONSTRAINT_TRIGGER", "hostName: is no host", Kind.RECORD),
        ("SQLITE_CONSTRAINT_NOTNULL", "NOT NULL constraint failed", Kind.RECORD),
        ("SQLITE_TOOBIG", "string or blob too big", Kind.RECORD),
    ],
)
def test_an_sqlite_error_name_says_what_to_do(name: str, text: str, kind: Kind) -> None:
    assert kind_of(wrapped(sqlite_error(name, text))) is kind


@pytest.mark.parametrize(
    "error",
    [
        psycopg2.OperationalError("server closed the connection unexpectedly"),
        psycopg2.InterfaceError("connection already closed"),
        wrapped(postgresql_error(None), lost=True),
        wrapped(postgresql_error("22P02"), lost=True),
    ],
)
def test_a_lost_connection_is_a_database_that_is_away(error: Exception) -> None:
    assert kind_of(error) is Kind.RETRY


@pytest.mark.parametrize(
    "error",
    [
        ValueError("A string literal cannot contain NUL (0x00) characters."),
        UnicodeEncodeError("utf-8", "\udc80", 0, 1, "surrogates not allowed"),
        OverflowError("Python int too large to convert to SQLite INTEGER"),
    ],
)
def test_what_cannot_be_sent_at_all_is_the_records_fault(error: Exception) -> None:
    assert kind_of(error) is Kind.RECORD
    assert words_of(error).startswith(type(error).__name__)


def test_words_name_code_and_text_in_one_line() -> None:
    postgresql = postgresql_error("22P02", 'invalid input: "abc"\nLINE 1: x')
    sqlite = sqlite_error("SQLITE_CONSTRAINT_TRIGGER", "hostName: is no host")

    assert words_of(wrapped(postgresql)) == '22P02: invalid input: "abc"'
    assert words_of(wrapped(sqlite)) == "SQLITE_CONSTRAINT_TRIGGER: hostName: is no host"


@pytest.mark.parametrize(
    ("state", "collides"), [("40P01", True), ("40001", True), ("57P01", False)]
)
def test_deadlocks_and_serialization_failures_are_collisions(state: str, collides: bool) -> None:
    assert is_collision(wrapped(postgresql_error(state))) is collides


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('FATAL:  database "sam" does not exist', DatabaseMissing),
        ("file is not a database", DatabaseMissing),
        ('FATAL:  password authentication failed for user "sam"', DatabaseRefused),
        ('FATAL:  role "sam" does not exist', DatabaseRefused),
        ("fe_sendauth: no password supplied", DatabaseRefused),
        ('column "x" does not exist', DatabaseAway),
        ("could not connect: Connection refused\n\tIs the server running?", DatabaseAway),
    ],
)
def test_a_database_that_cannot_be_used_says_why(text: str, kind: type[Exception]) -> None:
    error = away(OperationalError("", {}, psycopg2.OperationalError(text)), "the database")

    assert type(error) is kind
    assert str(error) == f"the database: {text.splitlines()[0]}"


@pytest.mark.parametrize(
    ("state", "kind"),
    [("57P01", DatabaseAway), ("42501", DatabaseRefused), ("42P01", StatementFailed)],
)
def test_an_error_of_a_statement_says_whether_waiting_helps(
    state: str, kind: type[Exception]
) -> None:
    error = translated(wrapped(postgresql_error(state, "some words")), "the database")

    assert type(error) is kind
    assert "some words" in str(error)
