"""Dead letters counted by sender, reason or class."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine, text

from sam_pipeline.schema.identity.identity import ANONYMOUS
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.loading.letters.dead_letter import (
    IDS,
    NO_LIMIT,
    SELECTED,
    LetterFilter,
    bound_values,
    time_of,
)

ESTABLISHED, CLAIMED, LOGIN, SOURCE = "established", "claimed", "login", "source"
"""What names a sender: its identity, its headers, the login that the broker names, the broker."""

_IDENTIFIED = f"identity <> '{ANONYMOUS}'"
_CLAIMS = "coalesce(claimed_user, claimed_host) IS NOT NULL"
_GROUPS = {
    "sender": (
        f"""
        CASE
            WHEN {_IDENTIFIED} THEN '{ESTABLISHED}'
            WHEN {_CLAIMS} THEN '{CLAIMED}'
            WHEN login IS NOT NULL THEN '{LOGIN}'
            ELSE '{SOURCE}'
        END
        """,
        f"""
        CASE
            WHEN {_IDENTIFIED} THEN identity
            WHEN {_CLAIMS} THEN coalesce(claimed_user, '?') || '@' || coalesce(claimed_host, '?')
            WHEN login IS NOT NULL THEN login || ' at ' || coalesce(broker, '?')
            ELSE coalesce(broker, '')
        END
        """,
    ),
    "reason": ("''", "reason"),
    "class": ("''", "message_class"),
}
BY = tuple(_GROUPS)

_QUERIES = {
    by: text(f"""
        SELECT
            kind, name, count(*) AS letters, min(received_at) AS first_at,
            max(received_at) AS last_at, max(dead_letter_id) AS example_id
        FROM (
            SELECT {kind} AS kind, {name} AS name, received_at, dead_letter_id
            FROM (
                SELECT dead_letter.*, p.identity
                FROM dead_letter LEFT JOIN publisher AS p USING (publisher_id)
                WHERE {SELECTED}
            ) AS letter
        ) AS named
        GROUP BY kind, name
        ORDER BY count(*) DESC, name, kind
        LIMIT :limit
    """).bindparams(IDS)
    for by, (kind, name) in _GROUPS.items()
}


@dataclass(frozen=True)
class LetterGroup:
    """How many letters have a sender, reason or class in common, and the id of the newest."""

    name: str
    letters: int
    first_received_at: datetime
    last_received_at: datetime
    example_id: int
    known_by: str | None = None
    """Of a sender: one of the four above."""


def count_dead_letters(
    engine: Engine, selected: LetterFilter, by: str, limit: int = NO_LIMIT
) -> list[LetterGroup]:
    """The letters that match, counted `by` one of BY; the largest `limit` groups first."""
    with reading(engine) as connection:
        bound = {**bound_values(connection, selected), "limit": limit}
        return [
            LetterGroup(
                row.name,
                row.letters,
                time_of(row.first_at),
                time_of(row.last_at),
                row.example_id,
                row.kind or None,
            )
            for row in connection.execute(_QUERIES[by], bound)
        ]
