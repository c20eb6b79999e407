"""Where the database is, the scripts of its schema, and how tables of SQLite are compared."""

from __future__ import annotations

import sqlite3
from argparse import ArgumentTypeError, Namespace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import psycopg2
import psycopg2.errorcodes
import pytest
from sqlalchemy.exc import DBAPIError

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.sql.checks.schema_objects import table_differences
from sam_pipeline.sql.commands.import_ import window_argument
from sam_pipeline.sql.database.config import DatabaseConfig, database_url, note_on_plain_text
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.database.script import present_state, statements
from sam_pipeline.sql.errors import (
    DatabaseAway,
    DatabaseFull,
    DatabaseMissing,
    DatabaseRefused,
    Kind,
    SqlError,
    StatementFailed,
    away,
    is_collision,
    kind_of,
    message_of,
    translated,
)
from sam_pipeline.sql.imports.feed_changes import Window
from sam_pipeline.sql.removal.prune import Bounds, bounds_of
from sam_pipeline.sql.removal.revoke import RowSpan, changed_days
from sam_pipeline.sql.topology.view_rows import days_of


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("SAM_CONFIG", "SAM_DATABASE_URL", "PGHOST", "PGSSLMODE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))


def written(file: Path, url: str) -> Namespace:
    file.parent.mkdir(exist_ok=True)
    file.write_text(f'[database]\nurl = "{url}"\n')
    file.chmod(0o600)
    return Namespace(config=str(file))


def test_a_relative_path_is_relative_to_its_file_and_the_environment_beats_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = written(tmp_path / "site" / "sam.toml", "sqlite:///data/sam.db")
    assert database_url(args) == f"sqlite:///{tmp_path}/site/data/sam.db"
    for url in ("sqlite:////var/lib/sam/sam.db", "postgresql+psycopg2://sam:x@db.example.org/sam"):
        assert database_url(written(tmp_path / "other.toml", url)) == url
    with pytest.raises(ConfigError, match="url is missing"):
        database_url(Namespace(config=None))

    monkeypatch.setenv("SAM_DATABASE_URL", "sqlite:///environment.db")
    assert database_url(args) == "sqlite:///environment.db"


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "mysql://u:secret@h/d",
        "sqlite:///:memory:",
        "sqlite:////var/lib/sam/sam.db?timeout=5s",
        "postgresql://h:x/d",
        "postgresql://u:top@secret@h/d",
        "postgresql://sam:secret@db/sam?ssl_mode=verify-full",
    ],
)
def test_a_url_of_another_kind_is_refused_without_its_password(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_engine(database_url(written(tmp_path / "sam.toml", url)))

    assert "secret" not in str(caught.value)
    assert "secret" not in repr(DatabaseConfig(url="postgresql://sam:secret@db/sam"))


@pytest.mark.parametrize(
    ("url", "mode"),
    [
        ("postgresql://sam:secret@db.example.org/sam", "prefer"),
        ("postgresql://sam@10.0.0.1/sam?sslmode=allow", "allow"),
        ("postgresql:///sam?host=127.0.0.1:5432&host=db2.example.org:5432", "prefer"),
        ("sqlite:////var/lib/sam/sam.db", None),
        ("postgresql:///sam?host=/run/postgresql", None),
        ("postgresql://localhost/sam", None),
        ("postgresql://db.example.org/sam?sslmode=require", None),
    ],
)
def test_a_database_that_may_be_reached_in_plain_text_is_noted(url: str, mode: str | None) -> None:
    note = note_on_plain_text(url)

    assert (note is None) == (mode is None)
    if note:
        assert f"sslmode is {mode}" in note and "?sslmode=verify-full" in note
        assert "secret" not in note


def test_variables_of_libpq_count_for_the_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db.example.org")
    assert note_on_plain_text("postgresql:///sam")
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert note_on_plain_text("postgresql:///sam") is None


TRIGGER = """\
CREATE TRIGGER t INSTEAD OF INSERT ON v BEGIN
    SELECT CASE WHEN NEW.a = ';' THEN RAISE(ABORT, 'no; never') END;
    INSERT INTO a VALUES (1);
END;"""


@pytest.mark.parametrize(
    "parts",
    [
        ["-- first\nCREATE TABLE a (b text);", "CREATE INDEX i\n    ON a (b);"],
        ["-- one; two\nINSERT INTO a VALUES ('x;\ny'); -- and; so; on", TRIGGER],
        ["SELECT 1;", "SELECT 2"],
        [],
    ],
)
def test_a_script_is_split_at_the_ends_of_its_statements(parts: list[str]) -> None:
    assert list(statements("\n\n".join([*parts, ""]))) == parts
    if parts and parts[-1].endswith(";"):
        assert list(statements("\n".join([*parts, "", "-- the end", ""]))) == parts


def test_no_statement_of_the_schema_is_lost() -> None:
    script = "".join(present_state("sqlite"))

    assert "".join("".join(statements(script)).split()) == "".join(script.split())


TABLE = (
    "CREATE TABLE t(id integer PRIMARY KEY,state text NOT NULL DEFAULT 'a,(b'"
    " CHECK(state IN('a,(b','c')),size integer,UNIQUE(state,size)) STRICT"
)
UNIQUE, POSITIVE = "UNIQUE(state,size)", "CHECK(size > 0)"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (",size integer,", ",", ["column t.size is missing"]),
        (",size integer,", ",size integer,note text,", ["unexpected column t.note"]),
        ("size integer", "size text", ["column t.size was changed"]),
        (",'c'", "", ["column t.state was changed"]),
        ("size integer", 'more,"else" text', ["column t.size is missing", "more", "t.else"]),
        (UNIQUE, POSITIVE, [f"{UNIQUE} on t is missing", f"unexpected constraint {POSITIVE}"]),
        (" STRICT", "", ["table t was changed"]),
        (f"size integer,{UNIQUE}", f"{UNIQUE},size integer", ["table t was changed"]),
    ],
)
def test_a_difference_names_column_or_constraint(old: str, new: str, expected: list[str]) -> None:
    assert old in TABLE

    found = table_differences("t", TABLE.replace(old, new), TABLE)

    for difference, text in zip(found, expected, strict=True):
        assert text in str(difference)
    if (old, new) == ("size integer", "size text"):
        assert found[0].wanted == "integer"


# How errors of the drivers are classified ---------------------------------------------------------

STATES = {
    Kind.RETRY: "08006 25006 25P04 28P01 40001 40P01 53100 55P03 57P01 58030 XX001",
    Kind.CLASS: "0A000 2D000 39P01 42501 42703 42883 42P01 55000",
    Kind.RECORD: "22003 22P02 23502 23514 54000 P0001 ZZ001",  # the last of a trigger's own making
    Kind.HICCUP: "XX000",
}
ON_SQLITE = [
    ("SQLITE_BUSY", "database is locked", Kind.RETRY),
    ("SQLITE_FULL", "database or disk is full", Kind.RETRY),
    ("SQLITE_IOERR_WRITE", "disk I/O error", Kind.RETRY),
    ("SQLITE_READONLY_DBMOVED", "attempt to write a readonly database", Kind.RETRY),
    ("SQLITE_ERROR", "no such table: main.host", Kind.CLASS),
    ("SQLITE_ERROR", "cannot modify note because it is a view", Kind.CLASS),
    ("SQLITE_ERROR", "table note has no column named words", Kind.CLASS),
    ("SQLITE_ERROR", "malformed JSON", Kind.RECORD),
    ("SQLITE_CONSTRAINT_TRIGGER", "hostName: is not a host name", Kind.RECORD),
    ("SQLITE_CONSTRAINT_NOTNULL", "NOT NULL constraint failed", Kind.RECORD),
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


# Days and windows ---------------------------------------------------------------------------------

TODAY = date(2026, 11, 20)
DAY1, DAY2 = "2026-11-01T00:00:00Z", "2026-11-02T00:00:00Z"


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("2026-11-01..2026-11-30", Window(DAY1, "2026-12-01T00:00:00Z")),
        ("2026-11-01T00:00Z..2026-11-02T00:00Z", Window(DAY1, DAY2)),
        ("2026-11..2026-11-02T00:00Z", Window(DAY1, DAY2)),
    ],
)
def test_a_window_is_days_or_times(text: str, window: Window) -> None:
    assert window_argument(text) == window


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2026-11-01", "is not a window"),
        ("2026-11-30..2026-11-01", "ends before it begins"),
        ("2026-11-01T08:00..2026-11-01T09:00", "no time zone"),
    ],
)
def test_any_other_window_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ArgumentTypeError, match=problem):
        window_argument(text)


@pytest.mark.parametrize(
    ("start", "end", "days"),
    [
        ("2026-11-18T00:00:00Z", "2026-11-19T00:00:00Z", [18]),
        ("2026-11-18T23:59:59Z", "2026-11-19T00:00:01Z", [18, 19]),
        ("2026-11-18T12:00:00Z", "2026-11-18T12:00:00Z", []),
        ("2026-11-19T12:00:00Z", "2027-01-01T00:00:00Z", [19, 20]),
        ("2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z", []),
    ],
)
def test_the_days_of_an_interval_are_those_it_overlaps_up_to_today(
    start: str, end: str, days: list[int]
) -> None:
    assert days_of(start, end, TODAY) == [date(2026, 11, day) for day in days]


def test_a_prune_keeps_today_and_the_days_of_the_age_before_it() -> None:
    ten = TODAY - timedelta(days=10)

    assert bounds_of(TODAY, 400, 60) == Bounds(date(2025, 10, 16), date(2026, 9, 21))
    assert bounds_of(TODAY, None, 60) == Bounds(None, date(2026, 9, 21))
    # Details are removed no later than their results.
    assert bounds_of(TODAY, 10, 60) == bounds_of(TODAY, 10, None) == Bounds(ten, ten)
    others = bounds_of(TODAY, 10, keep_audit=1, keep_dead_letters=2)
    assert (others.audit, others.dead_letters) == (date(2026, 11, 19), date(2026, 11, 18))
    assert bounds_of(TODAY, 10, 10) == Bounds(ten, ten, None, None)
    assert bounds_of(TODAY, 99_999, None).results == date(1753, 2, 5)


# The days that a revocation changes ---------------------------------------------------------------


def day(number: int) -> date:
    return date(2026, 11, number)


def at(number: float) -> datetime:
    """Midnight of a day of November, or a time after it."""
    return datetime(2026, 10, 31, tzinfo=UTC) + timedelta(days=number)


def span(first: float, end: float | None = None, key: str = "a", facts: str = "") -> RowSpan:
    return RowSpan((key,), at(first), end and at(end), (facts,), at_midnight=True)  # type: ignore[arg-type]


def part(first: float, end: float) -> RowSpan:
    return RowSpan(("a",), at(first), at(end), (), at_midnight=False)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([span(3, 6)], [span(3, 6)], []),
        ([span(3, 6)], [], [3, 4, 5]),
        ([span(3, 6)], [span(3)], [6, 7, 8]),
        ([span(3, 6)], [span(5, 8)], [3, 4, 6, 7]),
        ([span(3, 6, facts="weight 1")], [span(5, 7, facts="weight 2")], [3, 4, 5, 6]),
        ([span(3, 6)], [span(3, 6, key="b")], [3, 4, 5]),
        ([span(1, 3)], [], [2]),
        ([span(9)], [], []),
        ([span(3.5, 5)], [], [4]),
        ([span(3, 4.5)], [], [3, 4]),
        ([part(3.5, 6)], [], [3, 4, 5]),
        ([part(3, 5.5)], [part(3, 5.25)], [5]),
        ([part(3.5, 5)], [part(3.25, 5.25)], [3, 5]),
    ],
)
def test_the_days_between_the_first_and_the_last_on_which_rows_differ(
    before: list[RowSpan], after: list[RowSpan], expected: list[int]
) -> None:
    days = changed_days(before, after, first=day(2), last=day(8))

    assert sorted(days) == [day(number) for number in expected]


CONNECTING = 'connection to server at "db.example.org" (192.0.2.1), port 5432 failed: '


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ('FATAL:  password authentication failed for user "sam"', DatabaseRefused),
        ("FATAL:  Passwort-Authentifizierung für Benutzer »sam« fehlgeschlagen", DatabaseRefused),
        ("FATAL:  la base de données « sam » n'existe pas", DatabaseRefused),
        ('ВАЖНО:  пользователь "sam" не прошёл проверку подлинности', DatabaseRefused),
        ('致命错误:  用户 "sam" Password 认证失败', DatabaseRefused),
        ("fe_sendauth: no password supplied", DatabaseRefused),
        ('FATAL:  database "sam" does not exist', DatabaseMissing),
        ("FATAL:  the database system is starting up", DatabaseAway),
        ("FATAL:  sorry, too many clients already", DatabaseAway),
        ("Connection refused", DatabaseAway),
        ("session is read-only", DatabaseAway),
        ("server closed the connection unexpectedly", DatabaseAway),
        (f"Connection refused\n{CONNECTING}FATAL:  rôle « sam » inexistant", DatabaseRefused),
    ],
)
def test_a_server_that_refuses_us_is_not_away_in_any_language(
    reason: str, expected: type[SqlError]
) -> None:
    error = away(psycopg2.OperationalError(CONNECTING + reason), "db")

    assert type(error) is expected
    assert reason.splitlines()[-1].rpartition(":  ")[2] in str(error) or expected is DatabaseAway
