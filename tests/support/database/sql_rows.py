"""Rows to insert into the class views, and the rows that a view returns, for both dialects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, text

from sam_pipeline.schema.identity.identity import with_identity
from sam_pipeline.schema.messages.message import JSON, Message, new_message
from sam_pipeline.schema.records.classes import BUILT_IN
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.engine import reading, writing
from tests.support.builders import metric_result

Values = Mapping[str, object]


def service_endpoint(**changes: object) -> Values:
    return {
        "siteName": "EXAMPLE-LCG2",
        "hostName": "ce01.example.org",
        "serviceFlavour": "CE",
        "validFrom": "2026-11-01T00:00:00Z",
        "timestamp": "2026-11-01T00:00:00Z",
        **changes,
    }


def site_group(**changes: object) -> Values:
    return {
        "siteName": "EXAMPLE-LCG2",
        "groupName": "North",
        "groupType": "federation",
        "weight": "3",
        "validFrom": "2026-11-01T00:00:00Z",
        "timestamp": "2026-11-01T00:00:00Z",
        **changes,
    }


def site_contact(**changes: object) -> Values:
    return {
        "siteName": "EXAMPLE-LCG2",
        "contact": "Jane Doe, grid@example.org",
        "timestamp": "2026-11-18T00:00:00Z",
        **changes,
    }


def downtime(**changes: object) -> Values:
    return {
        "downtimeId": "D1",
        "siteName": "EXAMPLE-LCG2",
        "hostName": "ce01.example.org",
        "serviceFlavour": "CE",
        "startTime": "2026-11-20T08:00:00Z",
        "endTime": "2026-11-20T10:00:00Z",
        "classification": "SCHEDULED",
        "severity": "OUTAGE",
        "timestamp": "2026-11-18T00:00:00Z",
        **changes,
    }


EXAMPLES: Mapping[str, Values] = {
    "metricOutput": metric_result(detailsData="a\nb", messageId="m-1"),
    "serviceEndpoint": service_endpoint(),
    "siteGroup": site_group(),
    "siteContact": site_contact(),
    "downtime": downtime(),
}


WINNING: Mapping[str, Values] = {
    "metricOutput": {"metricStatus": "CRITICAL", "summaryData": "forged", "detailsData": "forged"},
    "serviceEndpoint": {"production": "N", "timestamp": "2026-11-19T00:00:00Z"},
    "siteGroup": {"weight": "1", "timestamp": "2026-11-19T00:00:00Z"},
    "siteContact": {"contact": "forger", "timestamp": "2026-11-19T00:00:00Z"},
    "downtime": {"endTime": "2026-11-20T12:00:00Z", "timestamp": "2026-11-19T00:00:00Z"},
}
"""Changes of the examples that hold, or count, instead of them; `LOSING` ones don't."""
LOSING: Mapping[str, Values] = {
    "metricOutput": {"summaryData": "forged"},
    "serviceEndpoint": {"production": "N", "timestamp": "2026-10-31T00:00:00Z"},
    "siteGroup": {"weight": "99", "timestamp": "2026-10-31T00:00:00Z"},
    "siteContact": {"timestamp": "2026-11-17T00:00:00Z"},
    "downtime": {"endTime": "2026-11-20T12:00:00Z", "timestamp": "2026-11-17T00:00:00Z"},
}


def message_of(view: str, *rows: Values, sender: str = "") -> Message:
    """A message of a publisher with these rows, without NULLs."""
    records = [
        {key: value for key, value in row.items() if value is not None and key != "messageId"}
        for row in rows
    ]
    message = new_message(view, json.dumps(records), content_type=JSON, record_count=len(rows))
    return with_identity(message, sender) if sender else message


def name_too_long_for(table: str, engine: Engine) -> str:
    """A name that only the database refuses: it does not fit into an index of PostgreSQL."""
    if engine.dialect.name == "sqlite":  # which would take it
        rule = (
            f"CREATE TRIGGER no_long_{table} BEFORE INSERT ON {table}"
            " WHEN length(NEW.name) > 2000 BEGIN SELECT RAISE(ABORT, 'too long'); END"
        )
        with writing(engine) as connection:
            connection.execute(text(rule))
    return "".join(chr(0x4E00 + number * 7919 % 20000) for number in range(9000))


def insert(engine: Engine, view: str, *rows: Values) -> None:
    """Insert rows through a class view, like any SQL client."""
    with writing(engine) as connection:
        for row in rows:
            names, placeholders = ", ".join(row), ", ".join(f":{name}" for name in row)
            connection.execute(
                text(f"INSERT INTO {view} ({names}) VALUES ({placeholders})"), dict(row)
            )


def stored(engine: Engine, view: str) -> list[dict[str, Any]]:
    """What was sent to a class view, by wire keys, without NULLs; times as on the wire.

    Without who sent it and when it arrived.
    """
    built_in = BUILT_IN.get(view.lower())
    keys = [*built_in.keys, "messageId"] if built_in else []
    spelling = {key.lower(): key for key in keys}
    with reading(engine) as connection:
        rows = connection.execute(text(f"SELECT * FROM {view}")).mappings().all()
    return [
        {
            spelling.get(key.lower(), key): _plain(value)
            for key, value in row.items()
            if value is not None and key.lower() not in _ABOUT
        }
        for row in rows
    ]


_ABOUT = ("publisher", "receivedat", "announcedat", "source")


def query(engine: Engine, statement: str, **values: object) -> list[tuple[Any, ...]]:
    """The rows of a query, times as on the wire."""
    with reading(engine) as connection:
        rows = connection.execute(text(statement), values).all()
    return [tuple(map(_plain, row)) for row in rows]


def _plain(value: object) -> object:
    return format_time(value) if isinstance(value, datetime) else value
