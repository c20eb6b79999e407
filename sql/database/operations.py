"""The log of operations: what operators did to the data, in a chain of digests.

The digest of an operation covers the operation itself and the one before. Whoever changes, inserts
or removes an operation afterwards has to compute the digests of all later ones. Removing the newest
ones leaves no trace in the chain itself: compare its last digest with one that was kept elsewhere.
"""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from itertools import count
from typing import NamedTuple

from sqlalchemy import Connection, Engine, text

from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.engine import reading

START = ""
"""The previous digest of the first operation."""
MAX_VALUE = 1000
"""The limit on an argument, in characters; the database limits the whole."""
FETCHED = 1000

# PostgreSQL: the database sets number, time, login and digests.
_RECORD = text("SELECT record_operation(:os_login, :command, :arguments)")

_LAST = text("SELECT operation_id, digest FROM operation ORDER BY operation_id DESC LIMIT 1")
_INSERT = text("""
    INSERT INTO operation (
        operation_id, happened_at, database_login, os_login, command, arguments, previous_digest,
        digest
    )
    VALUES (
        :operation_id, CAST(strftime('%s', :happened_at) AS integer), '', :os_login, :command,
        :arguments, :previous_digest, :digest
    )
""")


class RecordedOperation(NamedTuple):
    """A row of `operation_log`; `happened_at` is `YYYY-MM-DDThh:mm:ssZ`, `arguments` JSON."""

    operation_id: int
    happened_at: str
    database_login: str
    os_login: str
    command: str
    arguments: str
    previous_digest: str
    digest: str


_OPERATIONS = text(
    f"SELECT {', '.join(RecordedOperation._fields)} FROM operation_log ORDER BY operation_id"
)


def record_operation(connection: Connection, command: str, arguments: Mapping[str, str]) -> None:
    """Append an operation in the caller's transaction: it exists if and only if the change does.

    Call it at the end of a short transaction: others that record one wait until it is committed.
    """
    shortened = {
        name: value
        if len(value) <= MAX_VALUE
        else f"{value[:MAX_VALUE]} ... ({len(value)} characters)"
        for name, value in arguments.items()
    }
    document = json.dumps(shortened, ensure_ascii=False).encode("utf-8", "replace").decode()
    values = {"os_login": login_name(), "command": command, "arguments": document}
    if connection.dialect.name == "postgresql":
        connection.execute(_RECORD, values)
        return
    last = connection.execute(_LAST).one_or_none()
    number, previous = (last.operation_id + 1, last.digest) if last else (1, START)
    now = format_time(datetime.now(UTC))
    covered = (str(number), now, "", *values.values(), previous)
    row = {**values, "operation_id": number, "happened_at": now, "previous_digest": previous}
    connection.execute(_INSERT, {**row, "digest": digest_of(*covered)})


def operations(engine: Engine) -> Iterator[RecordedOperation]:
    """All operations, oldest first."""
    with reading(engine) as connection:
        rows = connection.execution_options(stream_results=True).execute(_OPERATIONS)
        for row in rows.yield_per(FETCHED):
            moment = row.happened_at
            happened_at = format_time(moment) if isinstance(moment, datetime) else moment
            yield RecordedOperation(**{**row._asdict(), "happened_at": happened_at})


def broken_links(operations: Iterable[RecordedOperation]) -> Iterator[str]:
    """How the operations, oldest first and from the first one on, differ from an unbroken chain."""
    previous = START
    for number, operation in zip(count(1), operations):
        where = f"operation {operation.operation_id}"
        if operation.operation_id != number:
            yield f"{where}: should be number {number}; operations were removed or added before it"
            return
        if operation.previous_digest != previous:
            yield f"{where}: does not continue operation {number - 1}, which was replaced"
        if operation.digest != digest_of(str(number), *operation[1:-1]):
            yield f"{where}: was changed after it was recorded"
        previous = operation.digest


def digest_of(*fields: str) -> str:
    """SHA-256 of the SHA-256 of each field, in hex; `operation_digest` of PostgreSQL."""
    return sha256(b"".join(sha256(field.encode()).digest() for field in fields)).hexdigest()


def login_name() -> str:
    """The login name of the person or service that runs this process; `uid NUMBER` without one."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
