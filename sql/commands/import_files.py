"""`sam-db import`: what arrives as files instead of messages."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Engine

from sam_pipeline.schema.program.command import BAD_DATA, OK, CommandParser, to_json
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.program.wording import grouped
from sam_pipeline.schema.records.classes import (
    BUILT_IN,
    DOWNTIME,
    METRIC_OUTPUT,
    SERVICE_ENDPOINT,
    SITE_GROUP,
)
from sam_pipeline.sql.commands import import_gocdb as gocdb_command
from sam_pipeline.sql.database.config import state_directory
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.imports.checkpoint import Tally
from sam_pipeline.sql.imports.input_file import refuse_missing
from sam_pipeline.sql.imports.records import MOST_PROBLEMS, Import, limits_of_history, usable_view
from sam_pipeline.sql.imports.table import Imported, import_table, opened_table
from sam_pipeline.sql.loading.catalogue import Catalogue

EXAMPLES = """\
examples:
  sam-db import records results-2016.txt results-2017.txt.gz
  sam-db import records --dry-run results-2018.json
  zcat old/*.gz | sam-db import records -
  sam-db import csv --class serviceEndpoint topology.csv
  sam-db import gocdb --endpoints endpoints.xml --groups sites.xml
"""

RECORDS = """\
Load records straight into the views, as the consumer does: WLCG `key: value` text, or JSON (an
object, an array, or objects one a line), also gzipped. Stopped or killed it goes on where it was
when called again; repeated it changes nothing. Records that can't be loaded become dead letters
(sam-consume dead-letter list). Results of any age from the year 2000 on are taken.
"""
CSV = """\
Load a table. Its first line names columns of the class, in any case and order; UTF-8, quotes as in
RFC 4180. All lines are looked at first: with a bad one nothing is loaded, and all bad ones are
listed. A repeat changes nothing.
"""
TABLES = (SERVICE_ENDPOINT, SITE_GROUP, DOWNTIME)
DELIMITERS = {"tab": "\t", "\\t": "\t"}


def add_command(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add `import` and what it can import."""
    group = commands.add_parser(
        "import",
        parents=[common],
        help="load records and tables from files",
        description="Load records and tables from files.",
        epilog=EXAMPLES,
    )
    actions = group.add_subparsers(metavar="WHAT", required=True)
    for add in SUBCOMMANDS:
        add(actions, common)


def run_records(args: argparse.Namespace) -> int:
    args.files = list(dict.fromkeys(args.files))
    refuse_missing(args.files)
    with _database(args) as engine:
        job = Import(
            engine,
            Catalogue(engine),
            args.message_class,
            limits_of_history(datetime.now(UTC), args.age_limit),
            Progress(unit="records"),
            state_directory(),
            restart=args.restart,
            dry_run=args.dry_run,
        )
        done = False
        try:
            for name in args.files:
                job.run(name)
            done = True
        finally:
            if not done and not args.dry_run:
                _tell_where_it_stopped(job.tally)
        job.end()
    _tell(job, args)
    return BAD_DATA if job.tally.refused or job.damaged else OK


def run_csv(args: argparse.Namespace) -> int:
    message_class = BUILT_IN[args.message_class.lower()]
    with opened_table(args.file, message_class, args.delimiter) as table, _database(args) as engine:
        catalogue = Catalogue(engine)
        usable_view(catalogue, message_class.name)
        done = import_table(engine, catalogue, table, args.keep_going)
    _tell_bad_lines(done, table.name)
    if args.json:
        print(to_json({"file": table.name, "class": message_class.name, **asdict(done)}))
    else:
        print(_table_words(done, table.name, args.keep_going))
    return BAD_DATA if done.bad else OK


def _add_records(actions: Any, common: argparse.ArgumentParser) -> None:
    command = _add(actions, common, "records", "metric results, or records of any class", RECORDS)
    command.add_argument("files", metavar="FILE", nargs="+", help="- is standard input")
    command.add_argument(
        "--class",
        dest="message_class",
        metavar="NAME",
        default=METRIC_OUTPUT.name,
        help="class of the records (default: %(default)s)",
    )
    command.add_argument(
        "--age-limit",
        type=_days,
        metavar="DAYS",
        help="refuse results that are older (default: those before the year 2000)",
    )
    command.add_argument(
        "--restart", action="store_true", help="from the front, not where it was stopped"
    )
    command.add_argument(
        "--dry-run", action="store_true", help="write nothing: count, and list the bad records"
    )
    command.set_defaults(handler=run_records)


def _add_csv(actions: Any, common: argparse.ArgumentParser) -> None:
    command = _add(actions, common, "csv", "a table of topology, groups or downtimes", CSV)
    command.add_argument("file", metavar="FILE", help="- is standard input")
    command.add_argument(
        "--class",
        dest="message_class",
        metavar="NAME",
        required=True,
        type=_table_class,
        help=f"what the lines are: {_table_names()}",
    )
    command.add_argument(
        "--delimiter",
        type=_delimiter,
        default=",",
        metavar="C",
        help="between the values: one character, or `tab` (default: a comma)",
    )
    command.add_argument(
        "--keep-going", action="store_true", help="load the good lines, list the bad ones"
    )
    command.set_defaults(handler=run_csv)


# Each adds one WHAT: called with the subparsers and the common options.
SUBCOMMANDS = (_add_records, _add_csv, gocdb_command.add_command)


def _add(
    actions: Any, common: argparse.ArgumentParser, name: str, words: str, description: str
) -> CommandParser:
    parser: CommandParser = actions.add_parser(
        name, parents=[common], help=words, description=description, epilog=EXAMPLES
    )
    return parser


def _days(text: str) -> timedelta:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 100_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of days, like 5000")
    return timedelta(days=int(text))


def _table_class(text: str) -> str:
    if text.lower() not in {each.name.lower() for each in TABLES}:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {_table_names()}")
    return text


def _table_names() -> str:
    return ", ".join(each.name for each in TABLES)


def _delimiter(text: str) -> str:
    character = DELIMITERS.get(text.lower(), text)
    if len(character) != 1 or character in '"\r\n':
        raise argparse.ArgumentTypeError(f"{text!r} is no delimiter, like , or ; or tab")
    return character


@contextmanager
def _database(args: argparse.Namespace) -> Iterator[Engine]:
    engine = open_database(args)
    try:
        yield engine
    finally:
        engine.dispose()


def _tell_where_it_stopped(tally: Tally) -> None:
    words = f"stopped after {grouped(tally.records)} records, which are done"
    print(f"sam-db: {words}; the same command goes on there (a pipe: repeats)", file=sys.stderr)


def _tell(job: Import, args: argparse.Namespace) -> None:
    tally, seconds = job.tally, job.progress.elapsed_s
    if args.json:
        facts = {**asdict(tally), "seconds": round(seconds, 3), "dry_run": args.dry_run}
        print(to_json({"files": args.files, **facts, "problems": job.problems}))
        return
    if args.dry_run:
        for problem in job.problems:
            print(problem)
        if tally.refused > MOST_PROBLEMS:
            print(f"and {grouped(tally.refused - MOST_PROBLEMS)} more")
    print(_summary(tally, seconds, args.dry_run))
    if sum(tally.dead_letters.values()):
        print("sam-db: see `sam-consume dead-letter list`", file=sys.stderr)


def _summary(tally: Tally, seconds: float, dry_run: bool) -> str:
    verb = "would be stored" if dry_run else "stored"
    parts = [f"{grouped(tally.records)} records: {grouped(tally.rows)} rows {verb}"]
    parts.append(f"{grouped(tally.refused)} records refused")
    if not dry_run:
        parts.append(f"{grouped(sum(tally.dead_letters.values()))} new dead letters")
        parts[-1] += _counted(tally.dead_letters)
    if tally.ignored_keys:
        parts.append(f"keys without a column{_counted(tally.ignored_keys)}")
    if tally.resumed:
        parts.append(f"{grouped(tally.resumed)} of the records by an earlier call")
    rate = (tally.records - tally.resumed) / max(seconds, 1e-6)
    return f"{', '.join(parts)}; {seconds:.1f} s, {grouped(int(rate))} records a second"


def _counted(counts: dict[str, int]) -> str:
    told = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    return f" ({told})" if told else ""


def _tell_bad_lines(done: Imported, name: str) -> None:
    for bad in done.bad:
        print(f"sam-db: error: {name}:{bad.line}: {bad.text}", file=sys.stderr)


def _table_words(done: Imported, name: str, keep_going: bool) -> str:
    if not done.bad:
        return f"{name}: {grouped(done.lines)} lines, {grouped(done.rows)} rows stored"
    found = f"{name}: {grouped(len(done.bad))} of {grouped(done.lines)} lines are bad"
    if done.rows or keep_going:
        return f"{found}; {grouped(done.rows)} rows stored"
    return f"{found}; nothing was imported"
