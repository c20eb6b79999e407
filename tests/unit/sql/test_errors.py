"""How errors of the drivers are classified and worded."""

from __future__ import annotations

import sqlite3
from types import SimpleNamespace
from typing import Any

import psycopg2
import psycopg2.errorcodes
import pytest
from sqlalchemy.exc import DBAPIError, OperationalError

from sam_pipeline.sql.errors import (
    SQLITE_NAMES,
    SQLSTATES,
    DatabaseAway,
    DatabaseFull,
    DatabaseMissing,
    DatabaseRefused,
    Kind,
    StatementFailed,
    away,
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


def test_the_tables_have_every_code() -> None:
    known = {str(code) for name, code in vars(psycopg2.errorcodes).items() if name.isupper()}
    classes = {code for code in known if len(code) == 2}
    no_errors = {"00", "01", "02", "03"}  # success, warnings, no more rows
    exceptions = {key: kind for key, kind in SQLSTATES.items() if len(key) == 5}
    # As in sqlite.org/rescode.html, without those that no statement gives.
    codes = """
        ABORT AUTH BUSY CANTOPEN CONSTRAINT CORRUPT ERROR FULL INTERNAL INTERRUPT IOERR LOCKED
        MISMATCH MISUSE NOLFS NOMEM NOTADB PERM PROTOCOL RANGE READONLY SCHEMA TOOBIG
    """

    assert classes - no_errors == {key for key in SQLSTATES if len(key) == 2}
    assert exceptions.keys() <= known
    assert all(kind is not SQLSTATES[key[:2]] for key, kind in exceptions.items())
    assert SQLITE_NAMES.keys() == {f"SQLITE_{code}" for code in codes.split()}
    assert all(hasattr(sqlite3, name) for name in SQLITE_NAMES)


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


class Diagnosed(psycopg2.DatabaseError):
    """An error as the server sends it, with fields in addition to the text."""

    def __init__(self, text: str, **fields: str) -> None:
        super().__init__(text)
        nothing = dict.fromkeys(("message_detail", "column_name", "context"))
        self._fields = SimpleNamespace(message_primary=text, **{**nothing, **fields})

    @property
    def pgcode(self) -> str:
        return "22P02"

    @property
    def diag(self) -> Any:
        return self._fields


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Diagnosed("bad value", column_name="size"), "22P02: bad value (column size)"),
        (Diagnosed("bad size", column_name="size"), "22P02: bad size"),
        (
            Diagnosed("bad value", context='COPY note, line 3, column size: "x"'),
            "22P02: bad value (column size)",
        ),
        (Diagnosed("bad value", context="SQL statement"), "22P02: bad value"),
        (Diagnosed("twice", message_detail="Key (i)=(7)."), "22P02: twice (Key (i)=(7).)"),
        (Diagnosed("bad row", message_detail="Failing row contains (a, b)."), "22P02: bad row"),
        (postgresql_error("22P02", 'invalid: "abc"\nLINE 1: x'), '22P02: invalid: "abc"'),
        (sqlite_error("SQLITE_ERROR", "host: no"), "SQLITE_ERROR: host: no"),
        (psycopg2.DataError("date out of range"), "DataError: date out of range"),
    ],
)
def test_a_message_is_one_line_that_names_the_column_or_key_once(
    error: Exception, message: str
) -> None:
    assert message_of(wrapped(error)) == message


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
def test_an_unusable_database_is_reported_with_the_reason(text: str, kind: type[Exception]) -> None:
    error = away(OperationalError("", {}, psycopg2.OperationalError(text)), "the database")

    assert type(error) is kind
    assert str(error) == f"the database: {text.splitlines()[0]}"


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
