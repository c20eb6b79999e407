"""`sam-db import gocdb`: make topology and downtimes match an export of GOCDB."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, text

from sam_pipeline.schema.program.command import (
    OK,
    day_argument,
    print_done,
    print_json,
    print_lines,
    text_table,
)
from sam_pipeline.schema.records.classes import DOWNTIME, SERVICE_ENDPOINT, SITE_GROUP
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.database.transaction import load_transaction
from sam_pipeline.sql.imports.gocdb import read_downtimes, read_endpoints, read_groups
from sam_pipeline.sql.imports.gocdb_changes import (
    GocdbChanges,
    GocdbSnapshot,
    Window,
    downtime_changes,
    topology_changes,
)
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.topology.moments import day_end, day_start, time_argument, wire_now
from sam_pipeline.sql.topology.view_rows import Row, insert_rows, stored_rows

EXAMPLES = """\
examples:
  sam-db import gocdb --endpoints endpoints.xml --groups sites.xml
  sam-db import gocdb --endpoints page1.xml page2.xml --dry-run
  sam-db import gocdb --downtimes downtimes.xml --window 2026-11-01..2026-11-30

The files are responses of GOCDB to get_service_endpoint, to get_site or get_site_list, and to
get_downtime or get_downtime_nested_services. The files of one option form a snapshot: rows of
earlier imports that are missing from it are closed, downtimes only within --window.
"""

COLUMNS = ("kind", "read", "new", "changed", "ended", "unchanged", "kept")

# One import at a time, because the stored rows must not change between comparison and insert.
_LOCK = text("SELECT lock_import()")


@dataclass(frozen=True)
class Exports:
    """The rows of the files; `groups` by group type. None or {} if the option was not given."""

    endpoints: list[Row] | None
    groups: dict[str, list[Row]]
    downtimes: list[Row] | None


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    for name, summary in (
        ("endpoints", "from get_service_endpoint"),
        ("groups", "from get_site or get_site_list: the NGIs of sites, and their scope tags"),
        ("downtimes", "from get_downtime or get_downtime_nested_services"),
    ):
        command.add_argument(
            f"--{name}", type=Path, nargs="+", action="extend", metavar="XML", help=summary
        )
    command.add_argument(
        "--window",
        type=window_argument,
        metavar="A..B",
        help="days (inclusive) or times that --downtimes covers; missing downtimes are cancelled",
    )
    command.add_argument(
        "--at", type=time_argument, metavar="TIME", help="time of the export (default: now)"
    )
    command.add_argument(
        "--since",
        type=time_argument,
        metavar="TIME",
        help="in a first import, the time from which the topology is valid (default: --at)",
    )
    command.add_argument(
        "--force", action="store_true", help="accept that more than 20 %% of the rows are missing"
    )
    command.add_argument(
        "--dry-run", action="store_true", help="write nothing; print the changes and the rows"
    )
    command.set_defaults(handler=run_gocdb, usage_error=command.error)


def window_argument(argument: str) -> Window:
    """`2026-11-01..2026-11-30`, both days inclusive, or two times, the second one exclusive."""
    first, dots, last = argument.partition("..")
    if not dots:
        raise argparse.ArgumentTypeError(f"{argument!r} is not a window (expected FIRST..LAST)")
    if len(first) == len(last) == len("YYYY-MM-DD"):
        window = Window(day_start(day_argument(first)), day_end(day_argument(last)))
    else:
        window = Window(time_argument(first), time_argument(last))
    if window.end <= window.start:
        raise argparse.ArgumentTypeError(f"{argument!r} ends before it begins")
    return window


def run_gocdb(args: argparse.Namespace) -> int:
    now = wire_now()
    at = args.at or now
    if not (args.endpoints or args.groups or args.downtimes):
        args.usage_error("one of --endpoints, --groups and --downtimes is required")
    if args.window and not args.downtimes:
        args.usage_error("--window needs --downtimes")
    if at > now:
        args.usage_error(f"--at {at} is in the future")
    if args.since and args.since > at:
        args.usage_error(f"--since {args.since} is after the snapshot, {at}")
    exports = Exports(
        read_endpoints(args.endpoints) if args.endpoints else None,
        read_groups(args.groups) if args.groups else {},
        read_downtimes(args.downtimes) if args.downtimes else None,
    )
    snapshot = GocdbSnapshot(at, now, args.since, args.window, args.force)
    changes = apply_snapshot(open_database(args), exports, snapshot, dry_run=args.dry_run)
    counts = [[getattr(change, name) for name in COLUMNS] for change in changes]
    if args.json:
        kinds = [dict(zip(COLUMNS, row, strict=True)) for row in counts]
        document: dict[str, object] = {"at": at, "dry_run": args.dry_run, "kinds": kinds}
        if args.dry_run:
            document["rows"] = [
                {"class": change.message_class.name, "record": row}
                for change in changes
                for row in change.rows
            ]
        print_json(document)
        return OK
    print_done(args, *text_table(COLUMNS, counts), success=not args.dry_run)
    if args.dry_run:
        print_lines("", "nothing was written; these rows would be:")
        for change in changes:
            used = {key for row in change.rows for key in row}
            if keys := [key for key in change.message_class.keys if key in used]:
                cells = [[row.get(key) for key in keys] for row in change.rows]
                print_lines("", change.message_class.name, *text_table(keys, cells))
    return OK


def apply_snapshot(
    engine: Engine, exports: Exports, snapshot: GocdbSnapshot, *, dry_run: bool = False
) -> list[GocdbChanges]:
    """Compare the exports with the stored rows, and insert the changes in the same transaction.

    Raises:
        BadInput: the exports are implausible or outdated; nothing is written.
        DatabaseAway: nothing is written; try again later.
    """

    def action(connection: Connection) -> list[GocdbChanges]:
        if connection.dialect.name == "postgresql" and not dry_run:
            connection.execute(_LOCK)
        changes = []
        if (endpoints := exports.endpoints) is not None:
            stored = stored_rows(connection, SERVICE_ENDPOINT)
            kind = SERVICE_ENDPOINT.name
            changes.append(topology_changes(kind, SERVICE_ENDPOINT, endpoints, stored, snapshot))
        groups = stored_rows(connection, SITE_GROUP) if exports.groups else []
        for group_type, exported in exports.groups.items():
            stored = [row for row in groups if row["groupType"] == group_type]
            kind = f"{SITE_GROUP.name} {group_type}"
            changes.append(topology_changes(kind, SITE_GROUP, exported, stored, snapshot))
        if exports.downtimes is not None:
            stored = stored_rows(connection, DOWNTIME)
            changes.append(downtime_changes(exports.downtimes, stored, snapshot))
        if not dry_run:
            for change in changes:
                insert_rows(connection, change.message_class, change.rows)
        return changes

    if dry_run:
        with reading(engine) as connection:
            return action(connection)
    fold_all(engine)  # the first result, perhaps just loaded, decides which days are due
    return load_transaction(engine, action)
