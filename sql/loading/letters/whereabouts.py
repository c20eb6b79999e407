"""Where a message is in the database: its rows, its dead letters, a summary that quotes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from sam_pipeline.schema.records.classes import BUILT_IN, KNOWN_KEYS, STATEMENTS, TIME_KEYS
from sam_pipeline.schema.times import format_time, parse_time
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.statements import HISTORIES
from sam_pipeline.sql.errors import PERMISSION_DENIED, message_of, sqlstate
from sam_pipeline.sql.loading.catalogue import class_views
from sam_pipeline.sql.loading.insert import quoted
from sam_pipeline.sql.loading.letters.dead_letter import (
    EDITED,
    DeadLetter,
    letters_where,
    stored_time,
    time_of,
)
from sam_pipeline.sql.loading.letters.store import key_id

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
    *(
        text(f"""
            SELECT
                '{known.name}',
                json_object({", ".join(f"'{key}', {key}" for key in known.natural_key)}),
                receivedAt,
                holds
            FROM {HISTORIES[known.name]} WHERE messageId = :id
        """)
        for known in STATEMENTS
    ),
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
        bounds = (stored_time(connection, begins), stored_time(connection, ends))
        bound = {"id": message_id, "begins": bounds[0], "ends": bounds[1]}
        for statement in _SQLITE if dialect == "sqlite" else (_POSTGRESQL,):
            for name, record, received_at, holds in connection.execute(statement, bound):
                known = BUILT_IN[name.lower()]
                values = {KNOWN_KEYS[key]: value for key, value in json.loads(record).items()}
                key = _texts({key: values.get(key) for key in known.natural_key})
                is_text = isinstance(received_at, str)
                moment = parse_time(received_at) if is_text else time_of(received_at)
                rows.append(MessageRow(name, key, moment, bool(holds)))
        edited = f"{stored_id}{EDITED}"
        keys = {"id": stored_id, "edited": edited, "behind": edited[:-1] + "."}
        letters = letters_where(connection, _LETTERS, keys)
        summaries = letters_where(connection, _QUOTES[dialect], {"quoted": f"{stored_id} "})
    for view in class_views(engine):
        if view.known or not view.message_id_column:
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
        rows += [MessageRow(view.name, _texts(dict(row)), None) for row in found]
    rows.sort(key=lambda row: (row.message_class, *row.key.values()))
    return Whereabouts(rows, letters, summaries, not_searched)


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """The columns that have a value, as texts."""
    texts = {}
    for name, value in values.items():
        if value in (None, ""):
            continue
        if isinstance(value, datetime):
            value = format_time(value)
        elif name in TIME_KEYS:
            value = format_time(parse_time(str(value)))
        texts[name] = str(value)
    return texts
