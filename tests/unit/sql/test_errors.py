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


def postgresql_error(state: str | None, text: str = "no text") -> psycopg2.Error:
    class Error(psycopg2.DatabaseError):
        pgcode = state

    return Error(text)


def sqlite_error(name: str, text: str = "no text") -> sqlite3.Error:
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
        ("25P04", Kind.RETRY),
        ("2D000", Kind.CLASS),
        ("39P01", Kind.CLASS),
        ("54000", Kind.RECORD),
        ("P0001", Kind.RECORD),
        ("XX000", Kind.HICCUP),
        ("XX001", Kind.RETRY),
        ("ZZ001", Kind.RECORD),  # of a trigger's own making
    ],
)
def test_a_sqlstate_says_what_to_do(state: str, kind: Kind) -> None:
    error = postgresql_error(state)

    assert (kind_of(error), kind_of(wrapped(error))) == (kind, kind)


SQLSTATES_KNOWN = {str(code) for name, code in vars(psycopg2.errorcodes).items() if name.isupper()}
"""Codes and, of two characters, their classes."""
NO_ERRORS = {"00", "01", "02", "03"}
"""Success, warnings, no more rows."""


def test_every_sqlstate_of_postgresql_or_its_class_is_in_the_table() -> None:
    known = {code for code in SQLSTATES_KNOWN if len(code) == 2}

    assert known - NO_ERRORS == {key for key in SQLSTATES if len(key) == 2}


def test_a_single_sqlstate_in_the_table_differs_from_its_class() -> None:
    exceptions = {key: SQLSTATES[key] for key in SQLSTATES if len(key) == 5}

    assert exceptions.keys() <= SQLSTATES_KNOWN
    for key, kind in exceptions.items():
        assert kind is not SQLSTATES[key[:2]]


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
        ("SQLITE_CONSTRAINT_TRIGGER", "hostName: is not a host name", Kind.RECORD),
        ("SQLITE_CONSTRAINT_NOTNULL", "NOT NULL constraint failed", Kind.RECORD),
        ("SQLITE_TOOBIG", "string or blob too big", Kind.RECORD),
        ("SQLITE_NEWLY_MADE", "of a later version", Kind.RECORD),
    ],
)
def test_an_sqlite_error_name_says_what_to_do(name: str, text: str, kind: Kind) -> None:
    assert kind_of(wrapped(sqlite_error(name, text))) is kind


def test_every_primary_code_of_sqlite_is_in_the_table() -> None:
    # As in sqlite.org/rescode.html, without those that no statement gives.
    codes = """
        ABORT AUTH BUSY CANTOPEN CONSTRAINT CORRUPT ERROR FULL INTERNAL INTERRUPT IOERR LOCKED
        MISMATCH MISUSE NOLFS NOMEM NOTADB PERM PROTOCOL RANGE READONLY SCHEMA TOOBIG
    """

    assert SQLITE_NAMES.keys() == {f"SQLITE_{code}" for code in codes.split()}
    assert all(hasattr(sqlite3, name) for name in SQLITE_NAMES)


@pytest.mark.parametrize(
    "error",
    [
        psycopg2.OperationalError("server closed the connection unexpectedly"),
        psycopg2.InterfaceError("connection already closed"),
        wrapped(postgresql_error(None), lost=True),
        wrapped(postgresql_error("22P02"), lost=True),
    ],
)
def test_a_lost_connection_is_retried(error: Exception) -> None:
    assert kind_of(error) is Kind.RETRY


@pytest.mark.parametrize(
    "error",
    [
        ValueError("A string literal cannot contain NUL (0x00) characters."),
        UnicodeEncodeError("utf-8", "\udc80", 0, 1, "surrogates not allowed"),
        OverflowError("Python int too large to convert to SQLite INTEGER"),
    ],
)
def test_a_value_that_the_driver_cannot_send_is_the_records_fault(error: Exception) -> None:
    assert kind_of(error) is Kind.RECORD
    assert message_of(error).startswith(type(error).__name__)


def test_an_error_of_the_driver_without_a_sqlstate_is_the_records_fault() -> None:
    error = psycopg2.DataError("date out of range")

    assert kind_of(wrapped(error)) is Kind.RECORD
    assert message_of(wrapped(error)) == "DataError: date out of range"


class Diagnosed(psycopg2.DatabaseError):
    """An error as the server sends it, with fields in addition to the text."""

    def __init__(
        self,
        text: str,
        column: str | None = None,
        context: str | None = None,
        detail: str | None = None,
    ) -> None:
        super().__init__(text)
        self._fields = SimpleNamespace(
            message_primary=text, message_detail=detail, column_name=column, context=context
        )

    @property
    def pgcode(self) -> str:
        return "22P02"

    @property
    def diag(self) -> Any:
        return self._fields


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Diagnosed("bad value", column="size"), "22P02: bad value (column size)"),
        (Diagnosed("bad size", column="size"), "22P02: bad size"),
        (
            Diagnosed("bad value", context='COPY note, line 3, column size: "x"'),
            "22P02: bad value (column size)",
        ),
        (Diagnosed("bad value", context="SQL statement"), "22P02: bad value"),
        (
            Diagnosed("twice", detail="Key (id)=(7) is there."),
            "22P02: twice (Key (id)=(7) is there.)",
        ),
        (Diagnosed("bad row", detail="Failing row contains (a, b)."), "22P02: bad row"),
    ],
)
def test_a_message_names_the_column_or_key_once_wherever_the_server_reports_it(
    error: Diagnosed, message: str
) -> None:
    assert message_of(wrapped(error)) == message


def test_a_message_has_code_and_text_on_one_line() -> None:
    postgresql = postgresql_error("22P02", 'invalid input: "abc"\nLINE 1: x')
    sqlite = sqlite_error("SQLITE_CONSTRAINT_TRIGGER", "hostName: is not a host name")

    assert message_of(wrapped(postgresql)) == '22P02: invalid input: "abc"'
    assert message_of(wrapped(sqlite)) == "SQLITE_CONSTRAINT_TRIGGER: hostName: is not a host name"


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
def test_an_unusable_database_is_reported_with_the_reason(text: str, kind: type[Exception]) -> None:
    error = away(OperationalError("", {}, psycopg2.OperationalError(text)), "the database")

    assert type(error) is kind
    assert str(error) == f"the database: {text.splitlines()[0]}"


def test_a_permission_denied_while_loading_is_a_refusal() -> None:
    denied = postgresql_error("42501", "permission denied for table dead_letter")

    error = away(wrapped(denied), "the database")

    assert type(error) is DatabaseRefused
    assert str(error) == "the database: permission denied for table dead_letter"


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
