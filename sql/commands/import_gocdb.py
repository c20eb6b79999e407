"""`sam-db import gocdb`: what GOCDB knows now, compared with what the database holds."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, text

from sam_pipeline.schema.program.command import OK, text_table, to_json
from sam_pipeline.schema.records.classes import DOWNTIME, SERVICE_ENDPOINT, SITE_GROUP
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.database.transaction import load_transaction
from sam_pipeline.sql.imports.gocdb import read_downtimes, read_endpoints, read_groups
from sam_pipeline.sql.imports.gocdb_changes import (
    Changes,
    Snapshot,
    Window,
    downtime_changes,
    topology_changes,
)
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.topology.moments import (
    day_argument,
    day_end,
    day_start,
    time_argument,
    wire_now,
)
from sam_pipeline.sql.topology.view_rows import Row, insert_rows, stored_rows

EXAMPLES = """\
examples:
  sam-db import gocdb --endpoints endpoints.xml --groups sites.xml
  sam-db import gocdb --endpoints page1.xml page2.xml --dry-run
  sam-db import gocdb --downtimes downtimes.xml --window 2026-11-01..2026-11-30

The files are answers of GOCDB: of get_service_endpoint, of get_site or get_site_list, and of
get_downtime or get_downtime_nested_services. Each kind is a snapshot: what an earlier import
brought and this one does not tell any more is closed; downtimes only within --window.
"""

COUNTS = ("read", "new", "changed", "ended", "unchanged", "kept")

# One import at a time: what another one compares must not change meanwhile.
_ALONE = text("SELECT pg_advisory_xact_lock(hashtextextended('sam import gocdb', 0))")


@dataclass(frozen=True)
class Exports:
    """What the files say, read before the database is asked; None: of this kind there are none."""

    endpoints: list[Row] | None
    groups: dict[str, list[Row]]
    downtimes: list[Row] | None


def add_command(actions: Any, common: argparse.ArgumentParser) -> None:
    """Add `gocdb` to the imports."""
    command = actions.add_parser(
        "gocdb",
        parents=[common],
        help="snapshots of GOCDB: endpoints, groups of sites, downtimes",
        description="Make topology and downtimes what an export of GOCDB says.",
        epilog=EXAMPLES,
    )
    for name, words in (
        ("endpoints", "of get_service_endpoint"),
        ("groups", "of get_site or get_site_list: the NGIs of sites, and their scope tags"),
        ("downtimes", "of get_downtime or get_downtime_nested_services"),
    ):
        command.add_argument(
            f"--{name}", type=Path, nargs="+", action="extend", metavar="XML", help=words
        )
    command.add_argument(
        "--window",
        type=window_argument,
        metavar="A..B",
        help="days (both included) or times that the downtimes are about: what is missing there"
        " is cancelled",
    )
    command.add_argument(
        "--at", type=time_argument, metavar="TIME", help="when the export was made (default: now)"
    )
    command.add_argument(
        "--since",
        type=time_argument,
        metavar="TIME",
        help="in the first import: since when all of it is valid (default: --at)",
    )
    command.add_argument(
        "--force", action="store_true", help="even if more than 20 %% of what was known vanished"
    )
    command.add_argument(
        "--dry-run", action="store_true", help="tell what would be done, with the rows"
    )
    command.set_defaults(handler=run_gocdb, usage_error=command.error)


def window_argument(words: str) -> Window:
    """`2026-11-01..2026-11-30`, both days included, or two times, the second excluded."""
    first, dots, last = words.partition("..")
    if not dots:
        raise argparse.ArgumentTypeError(f"{words!r} is not a window (expected FIRST..LAST)")
    if len(first) == len(last) == len("YYYY-MM-DD"):
        window = Window(day_start(day_argument(first)), day_end(day_argument(last)))
    else:
        window = Window(time_argument(first), time_argument(last))
    if window.end <= window.start:
        raise argparse.ArgumentTypeError(f"{words!r} ends before it begins")
    return window


def run_gocdb(args: argparse.Namespace) -> int:
    snapshot = _snapshot(args)
    exports = Exports(
        read_endpoints(args.endpoints) if args.endpoints else None,
        read_groups(args.groups) if args.groups else {},
        read_downtimes(args.downtimes) if args.downtimes else None,
    )
    engine = open_database(args)
    _print(args, snapshot, take_up(engine, exports, snapshot, write=not args.dry_run))
    return OK


def take_up(
    engine: Engine, exports: Exports, snapshot: Snapshot, write: bool = True
) -> list[Changes]:
    """Compare, and write it all in one transaction.

    Raises:
        BadInput: a part of it can't be right: nothing is written.
        DatabaseAway: the same again later.
    """
    if not write:
        with reading(engine) as connection:
            return list(_changes(connection, exports, snapshot))

    def action(connection: Connection) -> list[Changes]:
        if connection.dialect.name == "postgresql":
            connection.execute(_ALONE)
        changes = list(_changes(connection, exports, snapshot))
        for each in changes:
            insert_rows(connection, each.message_class, each.rows)
        return changes

    fold_all(engine)  # reports begin with the first result, be it a new one
    return load_transaction(engine, action)


def _snapshot(args: argparse.Namespace) -> Snapshot:
    now = wire_now()
    at = args.at or now
    if not (args.endpoints or args.groups or args.downtimes):
        args.usage_error("say what to read: --endpoints, --groups or --downtimes")
    if args.window and not args.downtimes:
        args.usage_error("--window is about --downtimes")
    if at > now:
        args.usage_error(f"--at {at} lies in the future")
    if args.since and args.since > at:
        args.usage_error(f"--since {args.since} lies after the snapshot, {at}")
    return Snapshot(at, now, args.since, args.window, args.force)


def _changes(connection: Connection, exports: Exports, by: Snapshot) -> Iterator[Changes]:
    if exports.endpoints is not None:
        yield topology_changes(
            SERVICE_ENDPOINT.name,
            SERVICE_ENDPOINT,
            exports.endpoints,
            stored_rows(connection, SERVICE_ENDPOINT),
            by,
        )
    groups = stored_rows(connection, SITE_GROUP) if exports.groups else []
    for group_type, told in exports.groups.items():
        yield topology_changes(
            f"{SITE_GROUP.name} {group_type}",
            SITE_GROUP,
            told,
            [row for row in groups if row["groupType"] == group_type],
            by,
        )
    if exports.downtimes is not None:
        yield downtime_changes(exports.downtimes, stored_rows(connection, DOWNTIME), by)


def _print(args: argparse.Namespace, snapshot: Snapshot, changes: Sequence[Changes]) -> None:
    if args.json:
        kinds = [
            {"kind": each.kind, **{name: getattr(each, name) for name in COUNTS}}
            for each in changes
        ]
        document: dict[str, object] = {"at": snapshot.at, "dry_run": args.dry_run, "kinds": kinds}
        if args.dry_run:
            document["rows"] = [
                {"class": each.message_class.name, "record": row}
                for each in changes
                for row in each.rows
            ]
        print(to_json(document))
        return
    print(
        text_table(
            ("kind", *COUNTS),
            [(each.kind, *(getattr(each, name) for name in COUNTS)) for each in changes],
        )
    )
    if args.dry_run:
        print("\nnothing was written; these rows would be:")
        for each in changes:
            _print_rows(each)


def _print_rows(changes: Changes) -> None:
    keys = [key for key in changes.message_class.keys if any(key in row for row in changes.rows)]
    if keys:
        rows = [[row.get(key) for key in keys] for row in changes.rows]
        print(f"\n{changes.message_class.name}\n{text_table(keys, rows)}")
