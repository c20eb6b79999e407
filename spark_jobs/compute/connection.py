"""How tasks connect to the database; imported by every worker, so without SQLAlchemy."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote

Connection = Mapping[str, Any]
"""A path under the key `sqlite`, or the arguments of psycopg2.connect."""


class TaskError(Exception):
    """An error in a task, on one line: a worker can report only text."""


@contextmanager
def opened(connection: Connection) -> Iterator[Any]:
    """A connection to the database, closed at the end of the block.

    Raises:
        TaskError: any error of the driver.
    """
    try:
        if "sqlite" in connection:
            path = quote(connection["sqlite"])
            database: Any = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)
        else:
            import psycopg2

            database = psycopg2.connect(**connection)
        with closing(database):
            yield database
    except Exception as error:
        from sam_pipeline.sql.errors import DATABASE_ERRORS, message_of  # slow to import

        if isinstance(error, DATABASE_ERRORS):
            raise TaskError(message_of(error)) from None
        raise
