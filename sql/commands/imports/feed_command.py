"""What the imports of all kinds of feeds have in common: options, fetching, output."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine

from sam_pipeline.schema.program.command import (
    OK,
    print_done,
    print_json,
    print_lines,
    text_table,
)
from sam_pipeline.schema.program.moments import day_argument, time_argument
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.settings.files import state_dir
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.database.roles import TOPOLOGY
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_changes import FeedChanges, FeedSnapshot, Window, apply_snapshot
from sam_pipeline.sql.imports.feed_rows import FeedRows, Files, taken
from sam_pipeline.sql.imports.formats.argo import read_argo
from sam_pipeline.sql.imports.formats.cric import read_cric
from sam_pipeline.sql.imports.formats.gocdb import read_gocdb
from sam_pipeline.sql.imports.formats.osg import read_osg
from sam_pipeline.sql.imports.formats.vofeed import read_vo_feed
from sam_pipeline.sql.topology.view_rows import (
    ARGO,
    CRIC,
    GOCDB,
    OSG,
    VO_FEED,
    day_end,
    day_start,
    wire_now,
)

if TYPE_CHECKING:
    from sam_pipeline.sql.imports.feed_config import FeedConfig

COLUMNS = ("kind", "read", "new", "changed", "ended", "unchanged", "kept")

MAX_EXAMPLES = 5
"""How many names a line of the summary shows."""

NO_OPTIONS: Mapping[str, str | None] = {}

DAYS_BACK, DAYS_AHEAD = 30, 90
"""Of the downtimes that are fetched."""

logger = logging.getLogger(__name__)

READERS: Mapping[str, Callable[..., FeedRows]] = {
    GOCDB: read_gocdb,
    CRIC: read_cric,
    VO_FEED: read_vo_feed,
    OSG: read_osg,
    ARGO: read_argo,
}
"""Of each kind of feed: its files become rows. They raise BadInput."""


@dataclass(frozen=True)
class FeedOutcome:
    """The changes by a snapshot; of a feed from a server also its URL and how much had changed."""

    snapshot: FeedSnapshot
    rows: FeedRows
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
        document["left_out"] = [item._asdict() for item in self.rows.left_out]
        document["filtered_sites"] = {
            condition: sorted(sites) for condition, sites in self.rows.filtered.items()
        }
        document["downtimes_without_endpoint"] = self._without_endpoint()
        if self.dry_run:
            document["rows"] = [
                {"class": change.message_class.name, "record": row}
                for change in self.changes
                for row in change.rows
            ]
        return document

    def print_text(self, args: argparse.Namespace) -> None:
        """The summary; in a dry run also each difference, as a line."""
        if self.url:
            unchanged = f", {self.unchanged} of them unchanged" if self.unchanged else ""
            fetched = f"{plural(self.documents, 'document')}{unchanged}"
            print_done(args, f"{self.url}: {fetched}", success=not self.dry_run)
        lines = text_table(COLUMNS, self._counts())
        for condition, sites in self.rows.filtered.items():
            lines.append(f"not taken: {plural(len(sites), 'site')} ({condition}): {_some(sites)}")
        lines += self._without_endpoint()
        if self.rows.left_out:
            lines.append(f"{plural(len(self.rows.left_out), 'element')} left out")
        print_done(args, *lines, success=not self.dry_run)
        for item in self.rows.left_out:
            logger.warning("left out: %s", item)
        if self.dry_run:
            differences = [str(line) for change in self.changes for line in change.differences]
            print_lines("", *differences, "nothing was written")

    def _counts(self) -> list[list[Any]]:
        return [[getattr(change, name) for name in COLUMNS] for change in self.changes]

    def _without_endpoint(self) -> list[str]:
        return [change.without_endpoint for change in self.changes if change.without_endpoint]


def _some(names: Iterable[str]) -> str:
    shown = sorted(names)
    more = len(shown) - MAX_EXAMPLES
    return ", ".join(shown[:MAX_EXAMPLES]) + (f", … and {more} more" if more > 0 else "")


def add_options(command: argparse.ArgumentParser, url_help: str = "") -> None:
    """The options of a feed from files, or with `url_help` also from a server."""
    command.set_defaults(url=None, needed="either --url or files" if url_help else "files")
    if url_help:
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
        "--keep-going",
        action="store_true",
        help="leave out odd elements and list them, instead of importing nothing",
    )
    command.add_argument(
        "--dry-run", action="store_true", help="write nothing; print each difference as a line"
    )


def window_argument(argument: str) -> Window:
    """`2026-11-01..2026-11-30`, both days inclusive, or two times, the second one exclusive."""
    first, dots, last = argument.partition("..")
    if not dots:
        raise argparse.ArgumentTypeError(f"{argument!r} is not a window (expected FIRST..LAST)")
    try:
        window = Window(day_start(day_argument(first)), day_end(day_argument(last)))
    except argparse.ArgumentTypeError:
        window = Window(time_argument(first), time_argument(last))
    if window.end <= window.start:
        raise argparse.ArgumentTypeError(f"{argument!r} ends before it begins")
    return window


def run_feed(
    args: argparse.Namespace,
    kind: str,
    files: Files,
    window: Window | None = None,
    **reader_options: str | None,
) -> int:
    """Import a feed from files, or from the server at `--url`, and print the changes."""
    now = wire_now()
    if bool(args.url) == bool(files):
        args.usage_error(f"{args.needed} are required")
    if args.url and args.at:
        args.usage_error("--at is for files: the time of a feed from --url is now")
    if args.at and args.at > now:
        args.usage_error(f"--at {args.at} is in the future")
    at = args.at or now
    if args.since and args.since > at:
        args.usage_error(f"--since {args.since} is after the snapshot, {at}")
    from sam_pipeline.sql.imports.feed_config import feed_at, feed_of_files

    if args.url:
        outcome = import_from_server(args, feed_at(args, kind, args.url), window)
    else:
        feed = feed_of_files(args, kind)
        _refuse_larger(files, feed.max_bytes)
        rows = _rows(args, feed, files, reader_options=reader_options)
        snapshot = FeedSnapshot(rows.feed, at, args.since, window, args.accept_shrinking)
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
    from sam_pipeline.sql.imports.download import downloaded

    engine = open_database(args, TOPOLOGY)
    at, window = wire_now(), window or _default_window()
    with downloaded(feed, window, state_dir(os.environ), os.environ) as download:
        rows = _rows(args, feed, download.files, download.answered)
        since = getattr(args, "since", None)
        snapshot = FeedSnapshot(rows.feed, at, since, window, args.accept_shrinking)
        return _outcome(
            engine,
            rows,
            snapshot,
            args.dry_run,
            url=feed.url,
            documents=download.documents,
            unchanged=download.unchanged,
        )


def _refuse_larger(files: Files, max_bytes: int) -> None:
    """Raise BadInput if the rows of the files might not fit into memory."""
    paths = [path for some in files.values() for path in some if path.is_file()]
    if (size := sum(path.stat().st_size for path in paths)) > max_bytes:
        raise BadInput(
            f"{', '.join(map(str, paths))}: {size} bytes, more than {max_bytes} (max_bytes of an"
            " [[import.feed]] of this kind); nothing was changed"
        )


def _rows(
    args: argparse.Namespace,
    feed: FeedConfig,
    files: Files,
    answered: Collection[str] = (),
    reader_options: Mapping[str, str | None] = NO_OPTIONS,
) -> FeedRows:
    """What is taken from the files of a feed; raises BadInput."""
    if feed.kind == VO_FEED:
        reader_options = {"site_group": getattr(args, "site_group", "") or feed.site_group}
    rules = feed.replace(keep_going=feed.keep_going or args.keep_going)
    return taken(READERS[feed.kind](files, **reader_options), rules, answered)


def _outcome(
    engine: Engine, rows: FeedRows, snapshot: FeedSnapshot, dry_run: bool, **fetched: Any
) -> FeedOutcome:
    changes = apply_snapshot(engine, rows, snapshot, dry_run=dry_run)
    return FeedOutcome(snapshot, rows, changes, dry_run, **fetched)


def _default_window() -> Window:
    """The days of downtimes to fetch if the command line names none."""
    today = datetime.now(UTC).date()
    first, last = today - timedelta(days=DAYS_BACK), today + timedelta(days=DAYS_AHEAD)
    return Window(day_start(first), day_end(last))
