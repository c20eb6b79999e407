"""Reading the operation log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import Engine, text

from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.operations.chain import RecordedOperation

FETCHED = 1000

_OPERATIONS = text(
    f"SELECT {', '.join(RecordedOperation._fields)} FROM operation_log ORDER BY operation_id"
)


def operations(engine: Engine) -> Iterator[RecordedOperation]:
    """All operations, oldest first."""
    with reading(engine) as connection:
        rows = connection.execution_options(stream_results=True).execute(_OPERATIONS)
        for row in rows.yield_per(FETCHED):
            moment = row.happened_at
            happened_at = format_time(moment) if isinstance(moment, datetime) else moment
            yield RecordedOperation(**{**row._asdict(), "happened_at": happened_at})
