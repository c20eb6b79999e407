"""`sam-db import`: load data from files, and topology from the servers of feeds."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sam_pipeline.schema.errors import ConfigError, SamError
from sam_pipeline.schema.program.command import (
    BAD_DATA,
    OK,
    AddOption,
    Verb,
    add_verbs,
    option,
    print_done,
    print_json,
    print_lines,
)
from sam_pipeline.schema.program.moments import (
    day_argument,
    days_argument,
    time_argument,
    utc_today,
)
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.program.wording import grouped, plural
from sam_pipeline.schema.records.classes import METRIC_OUTPUT, STATEMENTS, MessageClass
from sam_pipeline.schema.records.input_file import refuse_missing
from sam_pipeline.schema.settings.files import state_dir
from sam_pipeline.sql.database.config import open_database
from sam_pipeline.sql.database.roles import TOPOLOGY
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.feed_changes import (
    FeedOutcome,
    FeedSnapshot,
    Window,
    apply_snapshot,
)
from sam_pipeline.sql.imports.feed_config import FeedConfig, feed_at, feed_of_files, load_feeds
from sam_pipeline.sql.imports.feed_rows import FeedRows, Files, taken
from sam_pipeline.sql.imports.formats.argo import read_argo
from sam_pipeline.sql.imports.formats.cric import read_cric
from sam_pipeline.sql.imports.formats.gocdb import read_gocdb
from sam_pipeline.sql.imports.formats.osg import read_osg
from sam_pipeline.sql.imports.formats.vofeed import read_vo_feed
from sam_pipeline.sql.imports.records import (
    MAX_PROBLEMS,
    Import,
    limits_of_history,
    usable_view,
)
from sam_pipeline.sql.imports.table import import_table, opened_table, time_format_argument
from sam_pipeline.sql.loading.catalogue import Catalogue
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
    from sam_pipeline.sql.imports.download import Download

EXAMPLES = """\
examples:
  sam-db import records results-2016.txt results-2017.txt.gz
  sam-db import records --dry-run results-2018.json
  zcat old/*.gz | sam-db import records -
  sam-db import csv --class serviceEndpoint topology.csv
  sam-db import gocdb --url https://goc.egi.eu/gocdbpi
  sam-db import vofeed vofeed.xml
  sam-db import feeds
"""
RECORDS = """\
Load records into the views, as the consumer does: WLCG `key: value` text or JSON (an object, an
array, or one object per line), optionally gzipped. An interrupted import resumes if the command is
repeated, and repeating a complete one changes nothing. Records that can't be loaded become dead
letters (sam-consume dead-letter list). Results from the year 2000 on are accepted.
"""
CSV = """\
Load a table in CSV (RFC 4180) and UTF-8. Its first line names columns of the class, in any case and
order. All lines are checked first: if any of them is invalid, nothing is loaded and all invalid
lines are listed. Repeating an import changes nothing.
"""
FEEDS = """\
Import each [[import.feed]] of sam.toml from its server. A feed that fails changes nothing, and the
others are imported all the same; the exit code is that of the first failure.
"""
TABLE_NAMES = ", ".join(message_class.name for message_class in STATEMENTS)
DELIMITERS = {"tab": "\t", "\\t": "\t"}
DAYS_BACK, DAYS_AHEAD = 30, 90
"""The downtimes to fetch by default, in days from today."""

logger = logging.getLogger(__name__)


class FeedKind(NamedTuple):
    """A kind of feed: how the command is described, and how its files are read."""

    summary: str
    read: Callable[..., FeedRows]
    examples: str
    files: Mapping[str, str] = {}
    """The options for files and their help texts; a VO feed is one document."""
    metavar: str = "XML"
    url: str = ""
    """The help text of --url."""


FEED_KINDS: Mapping[str, FeedKind] = {
    GOCDB: FeedKind(
        "make topology and downtimes match GOCDB, from its server or files",
        read_gocdb,
        """\
examples:
  sam-db import gocdb --url https://goc.egi.eu/gocdbpi
  sam-db import gocdb --url "https://goc.egi.eu/gocdbpi?scope=EGI" --dry-run
  sam-db import gocdb --endpoints page1.xml page2.xml --groups sites.xml --dry-run
  sam-db import gocdb --downtimes downtimes.xml --window 2026-11-01..2026-11-30

With --url, everything is fetched as `[[import.feed]]` of sam.toml describes it. Files are responses
of GOCDB to get_service_endpoint, to get_site or get_site_list, and to get_downtime or
get_downtime_nested_services. The files of one option form a snapshot: rows of earlier imports that
are missing from it are closed, downtimes only within --window.
""",
        {
            "endpoints": "from get_service_endpoint",
            "groups": "from get_site or get_site_list: the NGIs of sites, and their scope tags",
            "downtimes": "from get_downtime or get_downtime_nested_services",
        },
        url="fetch everything from the GOCDB whose URL ends in /gocdbpi",
    ),
    VO_FEED: FeedKind(
        "make endpoints and groups of a VO match its feed (XML)",
        read_vo_feed,
        """\
examples:
  sam-db import vofeed --url https://vo.example.org/vofeed.xml
  sam-db import vofeed vofeed.xml --dry-run
  sam-db import vofeed vofeed.xml --site-group CMS_Site

The feed names its VO. Endpoints and groups of earlier feeds of this VO that are missing from it are
closed; those of other VOs and from other sources are not.
""",
        url="fetch the feed from here",
    ),
    CRIC: FeedKind(
        "make topology and downtimes match CRIC, from its server or files (JSON)",
        read_cric,
        """\
examples:
  sam-db import cric --url https://wlcg-cric.cern.ch
  sam-db import cric --endpoints services.json --groups federations.json --dry-run
  sam-db import cric --downtimes downtimes.json --window 2026-11-01..2026-11-30

The files are responses of CRIC, in JSON, to queries below api/core. Rows of earlier imports from
CRIC that are missing are closed, downtimes only within --window. With --url, downtimes are fetched
with a client certificate only, as CRIC shows them to nobody else.
""",
        {
            "endpoints": "from service/query: the services",
            "groups": "from federation/query: the federations of sites",
            "downtimes": "from downtime/query",
        },
        "JSON",
        "fetch everything from this server",
    ),
    OSG: FeedKind(
        "make topology and downtimes match OSG, from its server or files",
        read_osg,
        """\
examples:
  sam-db import osg --url https://topology.opensciencegrid.org
  sam-db import osg --endpoints rgsummary.xml --downtimes rgdowntime.xml --dry-run
  sam-db import osg --downtimes topology/*/*/*_downtime.yaml --window 2026-11-01..2026-11-30

The files are rgsummary/xml and rgdowntime/xml of the server, or files of the repository: beside
GROUP_downtime.yaml must be GROUP.yaml, which has the hosts of its resources. Rows of earlier
imports from OSG that are missing are closed, downtimes only within --window.
""",
        {
            "endpoints": "rgsummary/xml: services, facilities and administrators",
            "downtimes": "rgdowntime/xml, or GROUP_downtime.yaml",
        },
        "FILE",
        "fetch both from this server",
    ),
    ARGO: FeedKind(
        "make topology and downtimes match tables of argo-connectors (CSV)",
        read_argo,
        """\
examples:
  sam-db import argo --endpoints topology.csv --dry-run
  sam-db import argo --downtimes downtimes.csv --time-format "%m/%d/%Y %H:%M"

The files are tables in CSV with the columns that argo-connectors knows. Rows of earlier imports of
such tables that are missing are closed, downtimes only within --window. Times are in UTC.
""",
        {
            "endpoints": "a table of services: SITENAME-SERVICEGROUP, SERVICE_TYPE, URL …",
            "downtimes": "a table of downtimes: unique_id, url, start_time, end_time, …",
        },
        "CSV",
    ),
}


TIME_FORMAT = option(
    "--time-format",
    type=time_format_argument,
    metavar="FORMAT",
    help="the form of times, such as %%m/%%d/%%Y %%H:%%M, in UTC unless it has %%z; by default that"
    " of records, such as 2026-11-29T13:45:00Z",
)
TIMES = [
    option(name, type=time_argument, metavar="TIME", help=text)
    for name, text in (
        ("--at", "time of the files (default: now)"),
        ("--since", "in a first import, the time from which the topology is valid (default: --at)"),
    )
]
RULES = [
    option(name, action="store_true", help=text)
    for name, text in (
        ("--accept-shrinking", "accept that more than 20 %% of the rows are missing"),
        ("--keep-going", "leave out invalid elements and list them, instead of importing nothing"),
        ("--dry-run", "write nothing; print each difference as a line"),
    )
]


def add_options(noun: argparse.ArgumentParser) -> None:
    dry_run = partial(option, "--dry-run", action="store_true")
    feeds = {
        name: Verb(kind.summary, run_feed, partial(add_feed, name))
        for name, kind in FEED_KINDS.items()
    }
    add_verbs(
        noun,
        EXAMPLES,
        records=Verb(
            "load metric results, or records of another class",
            run_records,
            described(RECORDS),
            option("files", metavar="FILE", nargs="+", help="a file, or - for standard input"),
            option(
                "--class",
                dest="message_class",
                metavar="NAME",
                default=METRIC_OUTPUT.name,
                help="class of the records (default: %(default)s)",
            ),
            option(
                "--age-limit",
                type=days_argument,
                metavar="AGE",
                help="refuse results older than this, such as 400d (default: before 2000)",
            ),
            option("--restart", action="store_true", help="start again instead of resuming"),
            dry_run(help="write nothing; count records, list refused ones"),
        ),
        csv=Verb(
            "load a table of endpoints, groups or downtimes",
            run_csv,
            described(CSV),
            option("file", metavar="FILE", help="the table, or - for standard input"),
            option(
                "--class",
                dest="message_class",
                metavar="NAME",
                required=True,
                type=table_class_argument,
                help=f"class of the rows: {TABLE_NAMES}",
            ),
            option(
                "--delimiter",
                type=delimiter_argument,
                default=",",
                metavar="C",
                help="the delimiter: one character, or `tab` (default: a comma)",
            ),
            TIME_FORMAT,
            option(
                "--keep-going", action="store_true", help="load valid lines beside invalid ones"
            ),
            dry_run(help="write nothing; print each difference as a line"),
        ),
        **feeds,
        feeds=Verb("import all feeds that sam.toml names", run_feeds, described(FEEDS), *RULES),
    )


def described(text: str) -> AddOption:
    """Sets the description of a command."""
    return lambda command: setattr(command, "description", text)


def add_feed(name: str, command: argparse.ArgumentParser) -> None:
    """The options of a kind of feed."""
    kind = FEED_KINDS[name]
    command.epilog = kind.examples
    command.set_defaults(kind=name, url=None, window=None)
    for content, summary in kind.files.items():
        command.add_argument(
            f"--{content}",
            type=Path,
            nargs="+",
            action="extend",
            metavar=kind.metavar,
            help=summary,
        )
    if name == VO_FEED:
        command.add_argument("file", type=Path, nargs="?", metavar="XML", help="the feed as a file")
        command.add_argument(
            "--site-group",
            default="",
            metavar="TYPE",
            help="the groups of this type are the sites (default: the grid sites are)",
        )
    else:
        command.add_argument(
            "--window",
            type=window_argument,
            metavar="A..B",
            help="days (inclusive) or times that --downtimes covers; missing ones are cancelled"
            f" (with --url: from {DAYS_BACK} days ago to {DAYS_AHEAD} days ahead)",
        )
    if name == ARGO:
        TIME_FORMAT(command)
    if kind.url:
        command.add_argument("--url", help=kind.url)
    for add in (*TIMES, *RULES):
        add(command)


def table_class_argument(text: str) -> MessageClass:
    for message_class in STATEMENTS:
        if message_class.name.lower() == text.lower():
            return message_class
    raise argparse.ArgumentTypeError(f"{text!r} must be one of {TABLE_NAMES}")


def delimiter_argument(text: str) -> str:
    character = DELIMITERS.get(text.lower(), text)
    if len(character) != 1 or character in '"\r\n':
        raise argparse.ArgumentTypeError(f"{text!r} is not a delimiter, such as , or ; or tab")
    return character


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


def run_records(args: argparse.Namespace) -> int:
    args.files = list(dict.fromkeys(args.files))
    refuse_missing(args.files, "no file was imported")
    engine = open_database(args)
    try:
        job = Import(
            engine,
            Catalogue(engine),
            args.message_class,
            limits_of_history(datetime.now(UTC), args.age_limit and timedelta(days=args.age_limit)),
            Progress(unit="records"),
            state_dir(os.environ),
            restart=args.restart,
            dry_run=args.dry_run,
        )
        try:
            for name in args.files:
                job.run(name)
        except BaseException:
            if not args.dry_run:
                done = f"{plural(job.totals.records, 'record')} imported"
                advice = "the same command continues from there (a pipe starts over)"
                print_lines(f"sam-db: interrupted: {done}; {advice}", file=sys.stderr)
            raise
        job.end()
    finally:
        engine.dispose()
    totals, seconds = job.totals, job.progress.elapsed_s
    code = BAD_DATA if totals.refused or job.damaged_files else OK
    if args.json:
        facts = {**totals.document(), "seconds": round(seconds, 3), "dry_run": args.dry_run}
        print_json({"files": args.files, **facts, "problems": job.problems})
    else:
        if args.dry_run:
            for problem in job.problems:
                print_lines(problem)
            if totals.refused > MAX_PROBLEMS:
                print_lines(f"and {grouped(totals.refused - MAX_PROBLEMS)} more")
        summary = totals.summary(seconds, args.dry_run)
        print_done(args, summary, success=code == OK and not args.dry_run)
        if totals.counts.dead_letters:
            print_lines("sam-db: see `sam-consume dead-letter list`", file=sys.stderr)
    return code


def run_csv(args: argparse.Namespace) -> int:
    with opened_table(args.file, args.message_class, args.delimiter, args.time_format) as table:
        engine = open_database(args)
        try:
            catalogue = Catalogue(engine)
            usable_view(catalogue, args.message_class.name)
            done = import_table(engine, catalogue, table, args.keep_going, args.dry_run)
        finally:
            engine.dispose()
    for bad in done.bad:
        print_lines(f"sam-db: error: {table.name}:{bad.line}: {bad.text}", file=sys.stderr)
    if args.json:
        lines = [str(difference) for difference in done.differences]
        facts = {**asdict(replace(done, differences=[])), "differences": lines}
        print_json({"file": table.name, "class": args.message_class.name, **facts})
    else:
        print_lines(*done.differences)
        outcome = f"{done.rows} new or changed, {done.duplicates} unchanged"
        outcome += f", {len(done.bad)} left out"
        if args.dry_run or (done.bad and not args.keep_going):
            outcome += "; nothing was written"
        summary = f"{table.name}: {plural(done.lines, 'line')}: {outcome}"
        print_done(args, summary, success=not done.bad and not args.dry_run)
    return BAD_DATA if done.bad else OK


def run_feed(args: argparse.Namespace) -> int:
    """Import a feed from files, or from the server at `--url`, and print the changes."""
    kind, now = FEED_KINDS[args.kind], wire_now()
    files: Files = {name: paths for name in kind.files if (paths := getattr(args, name))}
    if args.kind == VO_FEED and args.file:
        files = {"feed": [args.file]}
    if args.window and not ("downtimes" in files or args.url):
        args.usage_error("--window needs --downtimes or --url")
    if bool(args.url) == bool(files):
        args.usage_error(f"{'either --url or ' if kind.url else ''}files are required")
    if args.url and args.at:
        args.usage_error("--at is for files: the time of a feed from --url is now")
    if args.at and args.at > now:
        args.usage_error(f"--at {args.at} is in the future")
    if args.since and args.since > (args.at or now):
        args.usage_error(f"--since {args.since} is after the snapshot, {args.at or now}")
    if args.url:
        outcome = import_from_server(args, feed_at(args, args.kind, args.url), args.window)
    else:
        feed = feed_of_files(args, args.kind)
        paths = [path for some in files.values() for path in some if path.is_file()]
        if (size := sum(path.stat().st_size for path in paths)) > feed.max_bytes:
            limit = f"{size} bytes, more than {feed.max_bytes} (max_bytes of an [[import.feed]]"
            named = ", ".join(map(str, paths))
            raise BadInput(f"{named}: {limit} of this kind); nothing was changed")
        outcome = _import(args, feed, files, args.at or now, args.window)
    if args.json:
        print_json(outcome.document(args.dry_run))
    else:
        _print_feed(args, outcome)
    return OK


def run_feeds(args: argparse.Namespace) -> int:
    feeds = load_feeds(args)
    if not feeds:
        raise ConfigError(["[import] has no feed: add a table [[import.feed]] to sam.toml"])
    code = OK
    results: list[dict[str, Any]] = []
    for number, feed in enumerate(feeds):
        if number:
            # Each snapshot has a second of its own, or rows of two feeds could have the same key.
            time.sleep(1 - time.time() % 1)
        try:
            outcome = import_from_server(args, feed)
        except SamError as error:
            for line in error.lines:
                logger.error("%s: %s", feed.kind, line)
            code = code or error.exit_code
            results.append({"kind": feed.kind, "url": feed.url, "error": "\n".join(error.lines)})
        else:
            results.append({"kind": feed.kind, **outcome.document(args.dry_run)})
            if not args.json:
                _print_feed(args, outcome)
    if args.json:
        print_json(results)
    return code


def import_from_server(
    args: argparse.Namespace, feed: FeedConfig, window: Window | None = None
) -> FeedOutcome:
    """Fetch a feed and import it; raises SamError, and then nothing was changed."""
    # Slow to import, and files need neither it nor urllib3.
    from sam_pipeline.sql.imports.download import downloaded

    if feed.can_be_forged:
        logger.warning("%s: anyone on the way to the server could change it: use https://", feed)
    at, today = wire_now(), utc_today()
    if window is None:
        first, last = today - timedelta(days=DAYS_BACK), today + timedelta(days=DAYS_AHEAD)
        window = Window(day_start(first), day_end(last))
    with downloaded(feed, window, state_dir(os.environ), os.environ) as download:
        return _import(args, feed, download.files, at, window, download)


def _import(
    args: argparse.Namespace,
    feed: FeedConfig,
    files: Files,
    at: str,
    window: Window | None,
    download: Download | None = None,
) -> FeedOutcome:
    options: dict[str, str | None] = {}
    if feed.kind == VO_FEED:
        options["site_group"] = getattr(args, "site_group", "") or feed.site_group
    elif feed.kind == ARGO:
        options["time_format"] = args.time_format
    rules = feed.replace(keep_going=feed.keep_going or args.keep_going)
    answered = download.answered if download else ()
    rows = taken(FEED_KINDS[feed.kind].read(files, **options), rules, answered)
    since = getattr(args, "since", None)
    snapshot = FeedSnapshot(rows.feed, at, since, window, args.accept_shrinking)
    engine = open_database(args, TOPOLOGY)
    changes = apply_snapshot(engine, rows, snapshot, dry_run=args.dry_run)
    if download is None:
        return FeedOutcome(snapshot, rows, changes)
    return FeedOutcome(snapshot, rows, changes, feed.url, download.documents, download.unchanged)


def _print_feed(args: argparse.Namespace, outcome: FeedOutcome) -> None:
    """The summary; in a dry run also each difference, as a line."""
    print_done(args, *outcome.summary(), success=not args.dry_run)
    for item in outcome.rows.left_out:
        logger.warning("left out: %s", item)
    if args.dry_run:
        differences = [str(line) for change in outcome.changes for line in change.differences]
        print_lines("", *differences, "nothing was written")
