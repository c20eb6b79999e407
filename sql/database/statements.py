"""The tables of statements, and which of the statements about a key holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, text

# As in 32_statements.sql.
_LAST = """
    coalesce(source, '') = 'hand' DESC, said_at DESC, coalesce(message_id, '') DESC,
    statement_id DESC
"""


class StatementTable(NamedTuple):
    """The table of a class, and the view `history` of everything that was said.

    Reports read the `facts` of a row that counts from `start` until `end`.
    """

    view: str
    name: str
    history: str
    keys: Sequence[str]
    start: str = ""
    end: str = ""
    facts: Sequence[str] = ()

    @property
    def key(self) -> str:
        return ", ".join(self.keys)


TABLES = (
    StatementTable(
        "serviceEndpoint",
        "endpoint_membership",
        "endpoint_statement",
        ("site_id", "endpoint_id", "vo_id", "valid_from"),
        "valid_from",
        "valid_to",
        ("service_uri", "grid_site", "production", "monitored"),
    ),
    StatementTable(
        "siteGroup",
        "site_group_member",
        "group_statement",
        ("site_id", "site_group_id", "valid_from"),
        "valid_from",
        "valid_to",
        ("weight",),
    ),
    StatementTable("siteContact", "site_contact", "contact_statement", ("site_id",)),
    StatementTable(
        "downtime",
        "announced_downtime",
        "downtime_statement",
        ("site_id", "host_id", "service_flavour_id", "start_key", "downtime_id"),
        "start_time",
        "end_time",
        ("classification", "severity", "description"),
    ),
)
HISTORIES = {table.view: table.history for table in TABLES}


def settle(connection: Connection, table: StatementTable, condition: str = "true") -> int:
    """Find out which statement about each key holds, for those that satisfy the condition.

    Returns how many statements hold that did not.
    """
    # The columns of the index.
    keys = ("site_id", "key") if connection.dialect.name == "sqlite" else table.keys
    same_key = " AND ".join(f"s.{key} = {table.name}.{key}" for key in keys)
    statement = f"""
        UPDATE {table.name} SET holds = NOT holds
        WHERE {condition} AND holds <> coalesce(statement_id = (
            SELECT s.statement_id FROM {table.name} AS s
            WHERE {same_key} AND s.withdrawn_at IS NULL
            ORDER BY {_LAST}
            LIMIT 1
        ), false)
        RETURNING holds
    """
    return sum(map(bool, connection.execute(text(statement)).scalars()))
