"""Errors of the database, by what the caller does next.

SqlError
├── DatabaseMissing       the database does not exist: configure another, or create it
├── SchemaMismatch        the schema has a version that this program does not support
├── DatabaseAway          unavailable: try again later; nothing was committed
│   ├── DatabaseRefused   access was denied: try again after someone has acted
│   ├── DatabaseFull      the disk is full: try again after someone has made room
│   └── DatabaseExhausted no memory or locks are left: try less at once, or again later
├── StatementFailed       the database rejects one of our statements: a bug, or an altered schema
├── RepairRefused         a repair would drop objects that are not ours; nothing was changed
├── CannotCreate          a file can't be created: an SQLite database, or the state of an import
├── OperationsChanged     the log of operations was changed
├── ArchiveError          the archive can't be used: nothing was changed but files nobody names
│   ├── ArchiveAway       its store is unavailable: try again later
│   ├── ArchiveRefused    its store denies access: try again after someone has acted
│   ├── ArchiveFull       its store is full, or failed to write
│   ├── ArchiveConflict   another program writes the same day
│   ├── ArchiveDamaged    a file is not what its manifest says
│   └── NotArchived       the archive does not have this day, version or file
├── BadInput              a file to import is missing, unreadable or invalid; see `exit_code`
├── FeedUnavailable       a feed can't be fetched: try again later; nothing was changed
│   └── FeedRefused       its server wants another login: try again after someone has acted
├── ImportRunning         another import is at work: try again later; nothing was changed
├── NoSuchPublisher       no publisher has that name or identity
├── NoSuchDowntime        no downtime has that id
├── DowntimeRefused       the downtime can't end at that time
├── NoSuchDeadLetter      no dead letter has that number
└── EditRefused           the dead letter was replayed or dropped, or the edit changes nothing

Errors of the drivers are classified by SQLSTATE (PostgreSQL) and error name (SQLite) in tables:
`kind_of` decides whether to retry, to give up a class, or to give up a record.
"""

from __future__ import annotations

import enum
import re
import sqlite3

import psycopg2
from sqlalchemy.exc import SQLAlchemyError

from sam_pipeline.schema.errors import SamError
from sam_pipeline.schema.program import command


class SqlError(SamError):
    """Base class of the errors of this package."""


class DatabaseMissing(SqlError):
    exit_code = command.CONFIG


class SchemaMismatch(SqlError):
    """`version` is that of the database, None if it has no schema; `wanted` is ours."""

    exit_code = command.CONFIG

    def __init__(self, text: str, version: str | None, wanted: str) -> None:
        super().__init__(text)
        self.version = version
        self.wanted = wanted
        self.is_older = (version or "") < wanted


class DatabaseAway(SqlError):
    exit_code = command.UNAVAILABLE


class DatabaseRefused(DatabaseAway):
    exit_code = command.NO_PERMISSION


class DatabaseFull(DatabaseAway):
    exit_code = command.IO_ERROR


class DatabaseExhausted(DatabaseAway):
    """The transaction needs more memory, locks or temporary space than the server has left."""


class StatementFailed(SqlError):
    """A statement other than the insert of a record; a rejected record becomes a dead letter."""


class RepairRefused(SqlError):
    exit_code = command.CONFIG


class CannotCreate(SqlError):
    exit_code = command.CANNOT_CREATE


class BadInput(SqlError):
    """A file to import can't be used; the message says how much of it was imported."""

    def __init__(self, *lines: str, exit_code: int = command.BAD_DATA) -> None:
        super().__init__(*lines)
        self.exit_code = exit_code


class FeedUnavailable(SqlError):
    exit_code = command.UNAVAILABLE


class FeedRefused(FeedUnavailable):
    exit_code = command.NO_PERMISSION


class ImportRunning(SqlError):
    exit_code = command.TRY_LATER


class OperationsChanged(SqlError):
    exit_code = command.BAD_DATA


class ArchiveError(SqlError):
    """A file of the archive can't be read or written; the message has its path."""


class ArchiveAway(ArchiveError):
    exit_code = command.UNAVAILABLE


class ArchiveRefused(ArchiveError):
    exit_code = command.NO_PERMISSION


class ArchiveFull(ArchiveError):
    exit_code = command.IO_ERROR


class ArchiveConflict(ArchiveError):
    exit_code = command.TRY_LATER


class ArchiveDamaged(ArchiveError):
    exit_code = command.BAD_DATA


class NotArchived(ArchiveError):
    exit_code = command.NO_INPUT


class DowntimeRefused(SqlError):
    exit_code = command.USAGE


class NoSuchPublisher(SqlError):
    exit_code = command.NO_INPUT


class NoSuchDowntime(SqlError):
    exit_code = command.NO_INPUT


class NoSuchDeadLetter(SqlError):
    exit_code = command.NO_INPUT

    def __init__(self, dead_letter_id: int) -> None:
        super().__init__(f"no dead letter {dead_letter_id}")
        self.dead_letter_id = dead_letter_id


class EditRefused(SqlError):
    exit_code = command.USAGE


class Kind(enum.Enum):
    """What to do about an error of the driver."""

    RETRY = "the database is unavailable, busy or full: try again later"
    CLASS = "the view, its trigger or a grant is broken: every record of the class fails"
    RECORD = "this record can never be loaded"
    HICCUP = "an internal error: try once more; after that the record can never be loaded"


SQLSTATES = {
    "08": Kind.RETRY,  # connection
    "09": Kind.CLASS,  # triggered action
    "0A": Kind.CLASS,  # not supported: a view that accepts no inserts
    "0B": Kind.CLASS,  # transaction initiation
    "0L": Kind.CLASS,  # grantor
    "0P": Kind.CLASS,  # role missing
    "0Z": Kind.CLASS,  # diagnostics
    "25": Kind.CLASS,  # transaction state
    "25006": Kind.RETRY,  # read-only: a standby after a failover
    "25P03": Kind.RETRY,  # idle in transaction for too long
    "25P04": Kind.RETRY,  # transaction timeout
    "26": Kind.CLASS,  # prepared statement missing
    "28": Kind.RETRY,  # login
    "2B": Kind.CLASS,  # dependent privileges
    "2D": Kind.CLASS,  # a trigger that commits
    "39": Kind.CLASS,  # a function that can't be called like that
    "3B": Kind.CLASS,  # savepoint
    "3D": Kind.RETRY,  # the database was dropped
    "3F": Kind.CLASS,  # schema missing
    "40": Kind.RETRY,  # deadlock, serialization
    "42": Kind.CLASS,  # table, column, function or privilege missing
    "53": Kind.RETRY,  # disk full, memory, too many connections
    "55": Kind.CLASS,  # object not ready: the view has lost its trigger
    "55006": Kind.RETRY,  # object in use
    "55P03": Kind.RETRY,  # lock timeout
    "57": Kind.RETRY,  # shutdown, cancelled, statement timeout
    "58": Kind.RETRY,  # I/O
    "72": Kind.RETRY,  # snapshot too old
    "F0": Kind.RETRY,  # configuration files of the server
    "HV": Kind.CLASS,  # foreign tables
    "XX": Kind.HICCUP,  # internal errors of the server
    "XX001": Kind.RETRY,  # damaged data: an administrator must act, the record is not at fault
    "XX002": Kind.RETRY,  # damaged index
}
"""By SQLSTATE of PostgreSQL, or its first two characters. All others reject the record, such as a
value that does not fit its type (22), a constraint (23), or a RAISE in a trigger (P0, or a code of
its own)."""

EXHAUSTED = "53"
DISK_FULL = "53100"
TOO_MANY_CONNECTIONS = "53300"
PERMISSION_DENIED = "42501"
LOCK_TIMEOUT = "55P03"
UNDEFINED_TABLE = "42P01"

SQLITE_NAMES = {
    "SQLITE_ABORT": Kind.RETRY,
    "SQLITE_AUTH": Kind.CLASS,
    "SQLITE_BUSY": Kind.RETRY,
    "SQLITE_CANTOPEN": Kind.RETRY,
    "SQLITE_CORRUPT": Kind.RETRY,
    "SQLITE_FULL": Kind.RETRY,
    "SQLITE_INTERNAL": Kind.HICCUP,
    "SQLITE_INTERRUPT": Kind.RETRY,
    "SQLITE_IOERR": Kind.RETRY,
    "SQLITE_LOCKED": Kind.RETRY,
    "SQLITE_NOLFS": Kind.RETRY,  # the file system does not support files of that size
    "SQLITE_NOMEM": Kind.RETRY,
    "SQLITE_NOTADB": Kind.RETRY,
    "SQLITE_PERM": Kind.RETRY,
    "SQLITE_PROTOCOL": Kind.RETRY,
    "SQLITE_READONLY": Kind.RETRY,
    "SQLITE_SCHEMA": Kind.RETRY,
}
"""By the first two parts of the error name. All others reject the record; of SQLITE_ERROR see
_SQLITE_BROKEN."""

# SQLITE_ERROR can also come from a function in a trigger that is given a bad value. Only these
# messages mean that the view itself is broken.
_SQLITE_BROKEN = re.compile(r"no such |cannot modify |has no column named |values for \d+ columns")

# While connecting, libpq passes on neither SQLSTATE nor the language: a refusal that the server
# itself has sent begins with its severity, a word of any language, and two blanks.
_SENT_BY_SERVER = re.compile(r"failed: [^\s:]+:  ")
_PASSES = re.compile(
    r"the database system is |too many |remaining connection slots|not currently accepting"
    r"|recovery|session is read-only"
)
"""Refusals that end by themselves, as far as the language is known."""
_NO_DATABASE = re.compile(r"FATAL: +database .* does not exist|file is not a database")

LONGEST_DETAIL = 200
"""How many characters of the detail `Key (column)=(value) already exists.` a message quotes."""

_COPY_COLUMN = re.compile(r"^COPY \S+, line \d+, column (\w+):", re.MULTILINE)

# SQLAlchemy does not wrap all errors of the drivers: not those of COPY, nor those of connecting to
# SQLite.
DATABASE_ERRORS = (SQLAlchemyError, psycopg2.Error, sqlite3.Error)

# Drivers raise ValueError and OverflowError before they send anything: a text contains NUL or a
# lone surrogate, or an integer is too large.
DRIVER_ERRORS = (*DATABASE_ERRORS, ValueError, OverflowError)


def kind_of(error: Exception) -> Kind:
    """What to do about an error of a driver."""
    orig = _of_driver(error)
    if getattr(error, "connection_invalidated", False):
        return Kind.RETRY
    if isinstance(orig, sqlite3.Error):
        name = _sqlite_name(orig)
        if name == "SQLITE_ERROR" and _SQLITE_BROKEN.search(str(orig)):
            return Kind.CLASS
        return SQLITE_NAMES.get("_".join(name.split("_")[:2]), Kind.RECORD)
    if not isinstance(orig, psycopg2.Error):
        return Kind.RECORD
    state = orig.pgcode
    if state is None:  # the connection is lost, or was never made
        lost = isinstance(orig, (psycopg2.OperationalError, psycopg2.InterfaceError))
        return Kind.RETRY if lost else Kind.RECORD
    return SQLSTATES.get(state, SQLSTATES.get(state[:2], Kind.RECORD))


def is_collision(error: Exception) -> bool:
    """Whether the transaction failed because of a concurrent one: retry it at once."""
    return sqlstate(error).startswith("40")


def is_missing_table(error: Exception) -> bool:
    """Whether a statement names a table that does not exist."""
    return sqlstate(error) == UNDEFINED_TABLE or "no such table" in str(_of_driver(error))


def sqlstate(error: Exception) -> str:
    """The SQLSTATE of an error of PostgreSQL, "" for any other error."""
    return getattr(_of_driver(error), "pgcode", None) or ""


def message_of(error: Exception) -> str:
    """One line: SQLSTATE or SQLite's error name, the message, and the column if it is known."""
    orig = _of_driver(error)
    if isinstance(orig, sqlite3.Error):
        return f"{_sqlite_name(orig)}: {orig}"
    if not isinstance(orig, psycopg2.Error) or orig.pgcode is None:
        return f"{type(orig).__name__}: {_first_line(orig)}"
    text = orig.diag.message_primary or _first_line(orig)
    in_copy = _COPY_COLUMN.search(orig.diag.context or "")
    column = orig.diag.column_name or (in_copy and in_copy[1])
    where = f" (column {column})" if column and column not in text else ""
    detail = orig.diag.message_detail or ""
    key = f" ({detail.splitlines()[0][:LONGEST_DETAIL]})" if detail.startswith("Key (") else ""
    return f"{orig.pgcode}: {text}{where}{key}"


def translated(error: Exception, database: str, role: str = "") -> SqlError:
    """Translate an error of a driver; `role` is the role that the program needs on PostgreSQL."""
    if kind_of(error) is Kind.RETRY:
        return away(error, database)
    text = f"{database}: {message_of(error)}"
    if sqlstate(error) == PERMISSION_DENIED:
        return DatabaseRefused(f"{text}; the login needs the role {role}" if role else text)
    return StatementFailed(text)


def away(error: Exception, database: str) -> SqlError:
    """The error to raise if no record is at fault: try again, perhaps after someone has acted."""
    orig = _of_driver(error)
    text = _first_line(orig)
    state = sqlstate(error)
    if _NO_DATABASE.search(text):
        return DatabaseMissing(f"{database}: {text}")
    # Of several hosts, each has a line. A server refuses us, or libpq for the lack of a password.
    refused = [
        line
        for line in ([] if state else str(orig).splitlines())
        if "no password supplied" in line
        or (_SENT_BY_SERVER.search(line) and not _PASSES.search(line))
    ]
    if refused or state == PERMISSION_DENIED:
        return DatabaseRefused(f"{database}: {(refused or [text])[0].strip()}")
    file_is_full = isinstance(orig, sqlite3.Error) and _sqlite_name(orig) == "SQLITE_FULL"
    if file_is_full or state == DISK_FULL:
        return DatabaseFull(f"{database}: {text}; make room, then try again")
    if state.startswith(EXHAUSTED) and state != TOO_MANY_CONNECTIONS:
        return DatabaseExhausted(f"{database}: {text}")
    return DatabaseAway(f"{database}: {text}")


def _of_driver(error: Exception) -> BaseException:
    return getattr(error, "orig", None) or error


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0]


def _sqlite_name(error: sqlite3.Error) -> str:
    return str(getattr(error, "sqlite_errorname", type(error).__name__))
