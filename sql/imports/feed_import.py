"""Makes the class views match a snapshot of a feed, in one transaction."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, text

from sam_pipeline.schema.records.classes import (
    DOWNTIME,
    SERVICE_ENDPOINT,
    SITE_CONTACT,
    SITE_GROUP,
)
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.transaction import load_transaction
from sam_pipeline.sql.errors import DATABASE_ERRORS, LOCK_TIMEOUT, ImportRunning, sqlstate
from sam_pipeline.sql.imports.feed_changes import (
    FeedChanges,
    FeedSnapshot,
    contact_changes,
    downtime_changes,
    topology_changes,
)
from sam_pipeline.sql.imports.feed_rows import ALL_TYPES, FeedRows
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.topology.view_rows import insert_rows, key_of, last_said, stored_rows

# One import at a time, because the stored rows must not change between comparison and insert.
_LOCK = text("SELECT lock_statements()")


def apply_snapshot(
    engine: Engine, rows: FeedRows, snapshot: FeedSnapshot, *, dry_run: bool = False
) -> list[FeedChanges]:
    """Compare a feed with the stored rows, and insert the changes in the same transaction.

    Raises:
        BadInput: the feed is implausible or outdated; nothing is written.
        ImportRunning: another import took too long; nothing is written.
        DatabaseAway: nothing is written; try again later.
    """

    def action(connection: Connection) -> list[FeedChanges]:
        if connection.dialect.name == "postgresql" and not dry_run:
            try:
                connection.execute(_LOCK)
            except DATABASE_ERRORS as error:
                if sqlstate(error) != LOCK_TIMEOUT:
                    raise
                problem = "another import is storing its topology in this database"
                raise ImportRunning(f"{problem}; nothing was changed, try again later") from error
        changes = []
        if rows.endpoints is not None:
            said = last_said(connection, SERVICE_ENDPOINT, snapshot.source)
            change = topology_changes(
                SERVICE_ENDPOINT.name, SERVICE_ENDPOINT, rows.endpoints, said, snapshot
            )
            changes.append(change)
        groups = last_said(connection, SITE_GROUP, snapshot.source) if rows.groups else []
        for group_type, exported in rows.groups.items():
            said = [row for row in groups if group_type in (ALL_TYPES, row["groupType"])]
            kind = f"{SITE_GROUP.name} {group_type}".strip()
            changes.append(topology_changes(kind, SITE_GROUP, exported, said, snapshot))
        if rows.contacts is not None:
            said = last_said(connection, SITE_CONTACT, snapshot.source)
            changes.append(contact_changes(rows.contacts, said, snapshot))
        if rows.downtimes is not None:
            endpoints = (
                *stored_rows(connection, SERVICE_ENDPOINT),
                *(row for c in changes if c.message_class is SERVICE_ENDPOINT for row in c.rows),
            )
            key = SERVICE_ENDPOINT.natural_key
            said = last_said(connection, DOWNTIME, snapshot.source)
            changes.append(
                downtime_changes(
                    rows.downtimes,
                    said,
                    stored_rows(connection, DOWNTIME),
                    snapshot,
                    list({key_of(row, key): row for row in endpoints}.values()),
                )
            )
        if not dry_run:
            for change in changes:
                insert_rows(connection, change.message_class, change.rows)
        return changes

    if dry_run:
        with reading(engine) as connection:
            return action(connection)
    fold_all(engine)  # the first result, perhaps just loaded, decides which days are due
    return load_transaction(engine, action)
