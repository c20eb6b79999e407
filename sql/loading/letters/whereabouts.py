"""Where a message is in the database: its rows, its dead letters, a summary that quotes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Engine, TextClause, text
from sqlalchemy.exc import DBAPIError

from sam_pipeline.schema.records.classes import KNOWN_KEYS, TIME_KEYS, built_in
from sam_pipeline.schema.times import format_time, parse_time
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.errors import PERMISSION_DENIED, message_of, sqlstate
from sam_pipeline.sql.loading.catalogue import class_views
from sam_pipeline.sql.loading.letters.dead_letter import (
    EDITED,
    DeadLetter,
    letters_where,
    time_of,
)
from sam_pipeline.sql.loading.letters.store import key_id
from sam_pipeline.sql.loading.staging import quoted

MOST_ROWS = 10_000
"""Rows of one message, and class, that are read: it has no more records by default."""

_POSTGRESQL = text("SELECT * FROM rows_of_message(:id, :begins, :ends)")
_SQLITE = (
    text("""
        SELECT
            'metricOutput',
            json_object(
                'hostName', n.host_name, 'serviceFlavour', n.service_flavour,
                'metricName', n.metric_name, 'voName', n.vo, 'voFqan', n.fqan,
                'timestamp', strftime('%Y-%m-%dT%H:%M:%SZ', r.measured_at, 'unixepoch'),
                'gatheredAt', g.gathered_at, 'monitoringHost', g.monitoring_host
            ),
            r.received_at,
            r.holds
        FROM (
            SELECT instance_id, gatherer_id, measured_at, message_id, received_at, 1 AS holds
            FROM metric_result
            UNION ALL
            SELECT instance_id, gatherer_id, measured_at, message_id, received_at, 0
            FROM result_repeat
        ) AS r
        JOIN metric_instance_name AS n ON n.instance_id = r.instance_id
        JOIN gatherer AS g ON g.gatherer_id = r.gatherer_id
        WHERE r.message_id = :id AND r.measured_at >= :begins AND r.measured_at < :ends
    """),
    text("""
        SELECT
            'serviceEndpoint',
            json_object(
                'siteName', siteName, 'hostName', hostName, 'serviceFlavour', serviceFlavour,
                'voName', voName, 'validFrom', validFrom
            ),
            receivedAt,
            holds
        FROM endpoint_statement WHERE messageId = :id
    """),
    text("""
        SELECT
            'siteGroup',
            json_object(
                'siteName', siteName, 'groupName', groupName, 'groupType', groupType,
                'validFrom', validFrom
            ),
            receivedAt,
            holds
        FROM group_statement WHERE messageId = :id
    """),
    text("""
        SELECT 'siteContact', json_object('siteName', siteName), receivedAt, holds
        FROM contact_statement WHERE messageId = :id
    """),
    text("""
        SELECT
            'downtime',
            json_object(
                'downtimeId', downtimeId, 'siteName', siteName, 'hostName', hostName,
                'serviceFlavour', serviceFlavour
            ),
            receivedAt,
            holds
        FROM downtime_statement WHERE messageId = :id
    """),
)
_QUOTES = {
    "postgresql": "reason = 'flood' AND strpos(error, :quoted) > 0",
    "sqlite": "reason = 'flood' AND instr(error, :quoted) > 0",
}
# The key of an edited letter extends that of the one it replaces; a full stop follows a hyphen.
_LETTERS = "message_id = :id OR (message_id >= :edited AND message_id < :behind)"


@dataclass(frozen=True)
class MessageRow:
    """A row that a message has stored; it `holds` unless what others said, or sent first, does.

    `key` has the columns of the class's key, or all columns in a site's own class.
    """

    message_class: str
    key: dict[str, str]
    received_at: datetime | None
    holds: bool = True


@dataclass(frozen=True)
class Whereabouts:
    """What the database has of a message; `summaries` quote it as one of many letters.

    `not_searched`: classes whose rows this login can't read.
    """

    rows: list[MessageRow]
    letters: list[DeadLetter]
    summaries: list[DeadLetter]
    not_searched: list[str]

    @property
    def is_known(self) -> bool:
        return bool(self.rows or self.letters or self.summaries)


def whereabouts(engine: Engine, message_id: str, begins: datetime, ends: datetime) -> Whereabouts:
    """What the database has of a message; of its results, those measured in [begins, ends)."""
    stored_id = key_id(message_id)
    rows: list[MessageRow] = []
    not_searched: list[str] = []
    with reading(engine) as connection:
        dialect = connection.dialect.name
        rows += _rows_of_built_in(connection, message_id, begins, ends)
        edited = f"{stored_id}{EDITED}"
        keys = {"id": stored_id, "edited": edited, "behind": edited[:-1] + "."}
        letters = letters_where(connection, _LETTERS, keys)
        summaries = letters_where(connection, _QUOTES[dialect], {"quoted": f"{stored_id} "})
    for view in class_views(engine):
        if built_in(view.name) or not view.message_id_column:
            continue
        statement = text(
            f"SELECT * FROM {quoted(view.name)} WHERE {quoted(view.message_id_column)} = :id"
            f" LIMIT {MOST_ROWS}"
        )
        try:
            with engine.connect() as connection:
                found = connection.execute(statement, {"id": message_id}).mappings().all()
        except DBAPIError as error:
            is_denied = sqlstate(error) == PERMISSION_DENIED
            reason = "permission denied" if is_denied else message_of(error)
            not_searched.append(f"{view.name} ({reason})")
            continue
        rows += [MessageRow(view.name, _texts(row), None) for row in found]
    rows.sort(key=lambda row: (row.message_class, *row.key.values()))
    return Whereabouts(rows, letters, summaries, not_searched)


def _rows_of_built_in(
    connection: Connection, message_id: str, begins: datetime, ends: datetime
) -> Iterator[MessageRow]:
    """The rows of built-in classes."""
    bound: dict[str, Any] = {"id": message_id, "begins": begins, "ends": ends}
    statements: tuple[TextClause, ...] = (_POSTGRESQL,)
    if connection.dialect.name == "sqlite":
        statements = _SQLITE
        bound |= {"begins": int(begins.timestamp()), "ends": int(ends.timestamp())}
    for statement in statements:
        parameters = {name: bound[name] for name in bound if f":{name}" in statement.text}
        for name, record, received_at, holds in connection.execute(statement, parameters):
            yield MessageRow(name, _key(name, record), _moment(received_at), bool(holds))


def _key(class_name: str, record: str) -> dict[str, str]:
    """The key of a row from the JSON object of its columns, in the spelling of the records."""
    known = built_in(class_name)
    values = {KNOWN_KEYS[name] or name: value for name, value in json.loads(record).items()}
    names = known.natural_key if known else tuple(values)
    return _texts({name: values.get(name) for name in names})


def _texts(values: Any) -> dict[str, str]:
    """The columns that have a value, as texts."""
    texts = {}
    for name, value in dict(values).items():
        if value in (None, ""):
            continue
        if isinstance(value, datetime):
            value = format_time(value)
        elif name in TIME_KEYS:
            value = format_time(parse_time(str(value)))
        texts[name] = str(value)
    return texts


def _moment(stored: Any) -> datetime:
    return parse_time(stored) if isinstance(stored, str) else time_of(stored).astimezone(UTC)
