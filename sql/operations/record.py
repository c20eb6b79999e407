"""Recording an operation: what an operator did, in the transaction that does it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

from sqlalchemy import Connection, text

from sam_pipeline.schema.login import login_name
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.operations.chain import START, digest_of

MAX_VALUE = 1000
"""The limit on an argument, in characters; the database limits the whole."""

# The database sets number, time, login and digests.
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
