"""What the imports of all kinds of feeds have in common: options, fetching, output."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine

from sam_pipeline.schema.program.command import (
    OK,
    day_argument,
    print_done,
    print_json,
    print_lines,
    text_table,
)
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.settings.files import state_dir
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.database.roles import TOPOLOGY
from sam_pipeline.sql.imports.cric import FEDERATION, read_federations, read_services
from sam_pipeline.sql.imports.feed_changes import FeedChanges, FeedSnapshot, Window
from sam_pipeline.sql.imports.feed_import import apply_snapshot
from sam_pipeline.sql.imports.feed_rows import FeedRows
from sam_pipeline.sql.imports.gocdb import read_downtimes, read_endpoints, read_groups
from sam_pipeline.sql.imports.vofeed import read_vo_feed
from sam_pipeline.sql.topology.moments import day_end, day_start, time_argument, wire_now
from sam_pipeline.sql.topology.view_rows import CRIC, GOCDB

if TYPE_CHECKING:
    from sam_pipeline.sql.imports.http.feed_config import FeedConfig

COLUMNS = ("kind", "read", "new", "changed", "ended", "unchanged", "kept")

DAYS_BACK, DAYS_AHEAD = 30, 90
"""Of the downtimes that are fetched."""

logger = logging.getLogger(__name__)

Files = Mapping[str, Sequence[Path]]
"""The files of a feed by what they contain."""


@dataclass(frozen=True)
class FeedOutcome:
    """The changes by a snapshot; of a feed from a server also its URL and how much had changed."""

    snapshot: FeedSnapshot
    changes: Sequence[FeedChanges]
    dry_run: bool
    url: str = ""
    documents: int = 0
    unchanged: int = 0

    def as_json(self) -> dict[str, Any]:
        kinds = [dict(zip(COLUMNS, row, strict=True)) for row in self._counts()]
        document: dict[str, Any] = {"at": self.snapshot.at, "dry_run": self.dry_run, "kinds": kinds}
        if self.url:
            document |= {"url": self.url, "documents": self.documents}
            document |= {"unchanged_documents": self.unchanged}
        if self.dry_run:
            document["rows"] = [
                {"class": change.message_class.name, "record": row}
                for change in self.changes
                for row in change.rows
            ]
        return document

    def print_text(self, args: argparse.Namespace) -> None:
        if self.url:
            unchanged = f", {self.unchanged} of them unchanged" if self.unchanged else ""
            fetched = f"{plural(self.documents, 'document')}{unchanged}"
            print_done(args, f"{self.url}: {fetched}", success=not self.dry_run)
        print_done(args, *text_table(COLUMNS, self._counts()), success=not self.dry_run)
        if not self.dry_run:
            return
        print_lines("", "nothing was written; these rows would be:")
        for change in self.changes:
            used = {key for row in change.rows for key in row}
            if keys := [key for key in change.message_class.keys if key in used]:
                cells = [[row.get(key) for key in keys] for row in change.rows]
                print_lines("", change.message_class.name, *text_table(keys, cells))

    def _counts(self) -> list[list[Any]]:
        return [[getattr(change, name) for name in COLUMNS] for change in self.changes]


def add_options(command: argparse.ArgumentParser, url_help: str) -> None:
    """The options of a feed from files or from a server."""
    command.add_argument("--url", help=url_help)
    command.add_argument(
        "--at", type=time_argument, metavar="TIME", help="time of the files (default: now)"
    )
    command.add_argument(
        "--since",
        type=time_argument,
        metavar="TIME",
        help="in a first import, the time from which the topology is valid (default: --at)",
    )
    add_common_options(command)


def add_common_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--accept-shrinking",
        action="store_true",
        help="accept that more than 20 %% of the rows are missing",
    )
    command.add_argument(
        "--dry-run", action="store_true", help="write nothing; print the changes and the rows"
    )


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


def run_feed(
    args: argparse.Namespace, kind: str, files: Files, window: Window | None = None
) -> int:
    """Import a feed from files, or from the server at `--url`, and print the changes."""
    now = wire_now()
    if bool(args.url) == bool(files):
        args.usage_error("either --url or files are required")
    if args.url and args.at:
        args.usage_error("--at is for files: the time of a feed from --url is now")
    if args.at and args.at > now:
        args.usage_error(f"--at {args.at} is in the future")
    at = args.at or now
    if args.since and args.since > at:
        args.usage_error(f"--since {args.since} is after the snapshot, {at}")
    if args.url:
        from sam_pipeline.sql.imports.http.feed_config import feed_at

        outcome = import_from_server(args, feed_at(args, kind, args.url), window)
    else:
        name, rows = rows_of_feed(kind, files, getattr(args, "site_group", ""))
        snapshot = FeedSnapshot(name, at, args.since, window, args.accept_shrinking)
        engine = open_database(args, TOPOLOGY)
        outcome = _outcome(engine, rows, snapshot, args.dry_run)
    if args.json:
        print_json(outcome.as_json())
    else:
        outcome.print_text(args)
    return OK


def import_from_server(
    args: argparse.Namespace, feed: FeedConfig, window: Window | None = None
) -> FeedOutcome:
    """Fetch a feed and import it; raises SamError, and then nothing was changed."""
    if feed.can_be_forged:
        logger.warning("%s: anyone on the way to the server could change it: use https://", feed)
    # Slow to import, and files need neither it nor `requests`.
    from sam_pipeline.sql.imports.http.download import downloaded

    engine = open_database(args, TOPOLOGY)
    at, window = wire_now(), window or _default_window()
    with downloaded(feed, window, state_dir(os.environ), os.environ) as download:
        site_group = getattr(args, "site_group", "") or feed.site_group
        name, rows = rows_of_feed(feed.kind, download.files, site_group)
        since = getattr(args, "since", None)
        snapshot = FeedSnapshot(name, at, since, window, args.accept_shrinking)
        return _outcome(
            engine,
            rows,
            snapshot,
            args.dry_run,
            url=feed.url,
            documents=download.documents,
            unchanged=download.unchanged,
        )


def rows_of_feed(kind: str, files: Files, site_group: str = "") -> tuple[str, FeedRows]:
    """The name of a feed, and its rows.

    Raises:
        BadInput: a file can't be read, or has invalid elements, which the message lists.
    """
    if kind == GOCDB:
        return kind, FeedRows(
            read_endpoints(files["endpoints"]) if "endpoints" in files else None,
            read_groups(files["groups"]) if "groups" in files else {},
            read_downtimes(files["downtimes"]) if "downtimes" in files else None,
        )
    if kind == CRIC:
        endpoints = read_services(*files["endpoints"]) if "endpoints" in files else None
        groups = {FEDERATION: read_federations(*files["groups"])} if "groups" in files else {}
        return kind, FeedRows(endpoints, groups)
    [[path]] = files.values()
    feed = read_vo_feed(path, site_group)
    return feed.name, feed.rows


def _outcome(
    engine: Engine, rows: FeedRows, snapshot: FeedSnapshot, dry_run: bool, **fetched: Any
) -> FeedOutcome:
    changes = apply_snapshot(engine, rows, snapshot, dry_run=dry_run)
    return FeedOutcome(snapshot, changes, dry_run, **fetched)


def _default_window() -> Window:
    """The days of downtimes to fetch if the command line names none."""
    today = datetime.now(UTC).date()
    first, last = today - timedelta(days=DAYS_BACK), today + timedelta(days=DAYS_AHEAD)
    return Window(day_start(first), day_end(last))
