"""Makes the class views match a snapshot of a feed, in one transaction."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, text

from sam_pipeline.schema.records.classes import DOWNTIME, SERVICE_ENDPOINT, SITE_GROUP
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.transaction import load_transaction
from sam_pipeline.sql.errors import DATABASE_ERRORS, LOCK_TIMEOUT, ImportRunning, sqlstate
from sam_pipeline.sql.imports.feed_changes import (
    FeedChanges,
    FeedSnapshot,
    downtime_changes,
    topology_changes,
)
from sam_pipeline.sql.imports.feed_rows import ALL_TYPES, FeedRows
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.topology.view_rows import insert_rows, key_of, stored_rows

# One import at a time, because the stored rows must not change between comparison and insert.
_LOCK = text("SELECT lock_import()")


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
        needs_endpoints = rows.endpoints is not None or rows.downtimes is not None
        endpoints = stored_rows(connection, SERVICE_ENDPOINT) if needs_endpoints else []
        if rows.endpoints is not None:
            change = topology_changes(
                SERVICE_ENDPOINT.name, SERVICE_ENDPOINT, rows.endpoints, endpoints, snapshot
            )
            changes.append(change)
            key = SERVICE_ENDPOINT.natural_key
            after = {key_of(row, key): row for row in (*endpoints, *change.rows)}
            endpoints = list(after.values())
        groups = stored_rows(connection, SITE_GROUP) if rows.groups else []
        for group_type, exported in rows.groups.items():
            stored = [row for row in groups if group_type in (ALL_TYPES, row["groupType"])]
            kind = f"{SITE_GROUP.name} {group_type}".strip()
            changes.append(topology_changes(kind, SITE_GROUP, exported, stored, snapshot))
        if rows.downtimes is not None:
            stored = stored_rows(connection, DOWNTIME)
            changes.append(downtime_changes(rows.downtimes, stored, snapshot, endpoints))
        if not dry_run:
            for change in changes:
                insert_rows(connection, change.message_class, change.rows)
        return changes

    if dry_run:
        with reading(engine) as connection:
            return action(connection)
    fold_all(engine)  # the first result, perhaps just loaded, decides which days are due
    return load_transaction(engine, action)
