"""`sam-db import`: load data from files instead of messages."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

from sam_pipeline.schema.program.command import (
    BAD_DATA,
    OK,
    common_options,
    print_done,
    print_json,
    print_lines,
    whole_number,
)
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.program.wording import grouped, plural
from sam_pipeline.schema.records.classes import (
    DOWNTIME,
    METRIC_OUTPUT,
    SERVICE_ENDPOINT,
    SITE_CONTACT,
    SITE_GROUP,
    MessageClass,
)
from sam_pipeline.schema.records.input_file import refuse_missing
from sam_pipeline.schema.settings.files import state_dir
from sam_pipeline.sql.commands.imports import argo as argo_command
from sam_pipeline.sql.commands.imports import cric as cric_command
from sam_pipeline.sql.commands.imports import feeds as feeds_command
from sam_pipeline.sql.commands.imports import gocdb as gocdb_command
from sam_pipeline.sql.commands.imports import osg as osg_command
from sam_pipeline.sql.commands.imports import vofeed as vofeed_command
from sam_pipeline.sql.commands.imports.file_options import add_time_format
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.imports.records import (
    MAX_PROBLEMS,
    Import,
    ImportTotals,
    limits_of_history,
    usable_view,
)
from sam_pipeline.sql.imports.table import import_table, opened_table
from sam_pipeline.sql.loading.catalogue import Catalogue

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
TABLES = (SERVICE_ENDPOINT, SITE_GROUP, SITE_CONTACT, DOWNTIME)
TABLE_NAMES = ", ".join(message_class.name for message_class in TABLES)
DELIMITERS = {"tab": "\t", "\\t": "\t"}


def add_options(group: argparse.ArgumentParser) -> None:
    group.epilog = EXAMPLES
    actions = group.add_subparsers(metavar="FORMAT", required=True)
    for name, (summary, description, add_options_of) in FORMATS.items():
        add_options_of(
            actions.add_parser(
                name,
                parents=[common_options()],
                help=summary,
                description=description,
                epilog=EXAMPLES,
            )
        )


def add_records_options(records: argparse.ArgumentParser) -> None:
    records.add_argument("files", metavar="FILE", nargs="+", help="a file, or - for standard input")
    records.add_argument(
        "--class",
        dest="message_class",
        metavar="NAME",
        default=METRIC_OUTPUT.name,
        help="class of the records (default: %(default)s)",
    )
    records.add_argument(
        "--age-limit",
        type=whole_number(1, 99_999),
        metavar="DAYS",
        help="refuse results older than this (default: from before the year 2000)",
    )
    records.add_argument(
        "--restart", action="store_true", help="start from the beginning instead of resuming"
    )
    records.add_argument(
        "--dry-run", action="store_true", help="write nothing; count records, list refused ones"
    )
    records.set_defaults(handler=run_records)


def add_csv_options(table: argparse.ArgumentParser) -> None:
    table.add_argument("file", metavar="FILE", help="the table, or - for standard input")
    table.add_argument(
        "--class",
        dest="message_class",
        metavar="NAME",
        required=True,
        type=table_class_argument,
        help=f"class of the rows: {TABLE_NAMES}",
    )
    table.add_argument(
        "--delimiter",
        type=delimiter_argument,
        default=",",
        metavar="C",
        help="the delimiter: one character, or `tab` (default: a comma)",
    )
    add_time_format(table)
    table.add_argument(
        "--keep-going", action="store_true", help="load the valid lines even if others are invalid"
    )
    table.add_argument(
        "--dry-run", action="store_true", help="write nothing; print each difference as a line"
    )
    table.set_defaults(handler=run_csv)


FORMATS: Mapping[str, tuple[str, str, Callable[[argparse.ArgumentParser], None]]] = {
    "records": (
        "load metric results, or records of another class",
        RECORDS,
        add_records_options,
    ),
    "csv": ("load a table of endpoints, groups or downtimes", CSV, add_csv_options),
    "gocdb": (
        "topology and downtimes of GOCDB, from its server or from files",
        "Make topology and downtimes match GOCDB.",
        gocdb_command.add_options,
    ),
    "vofeed": (
        "endpoints and groups of a VO, from its feed (XML)",
        "Make endpoints and groups of a VO match its feed.",
        vofeed_command.add_options,
    ),
    "cric": (
        "topology and downtimes of CRIC (JSON), from its server or from files",
        "Make topology and downtimes match CRIC.",
        cric_command.add_options,
    ),
    "osg": (
        "topology and downtimes of OSG (XML, YAML), from its server or from files",
        "Make topology and downtimes match the topology of OSG.",
        osg_command.add_options,
    ),
    "argo": (
        "topology and downtimes from tables of argo-connectors (CSV)",
        "Make topology and downtimes match tables of argo-connectors.",
        argo_command.add_options,
    ),
    "feeds": (
        "all feeds that sam.toml names",
        "Import all feeds that sam.toml names, from their servers.",
        feeds_command.add_options,
    ),
}
"""What is imported: a summary, a description, and the options."""


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
                advice = "the same command resumes there (a pipe starts over)"
                print_lines(f"sam-db: interrupted: {done}; {advice}", file=sys.stderr)
            raise
        job.end()
    finally:
        engine.dispose()
    totals, seconds = job.totals, job.progress.elapsed_s
    code = BAD_DATA if totals.refused or job.damaged_files else OK
    if args.json:
        facts = {**asdict(totals), "seconds": round(seconds, 3), "dry_run": args.dry_run}
        print_json({"files": args.files, **facts, "problems": job.problems})
    else:
        if args.dry_run:
            for problem in job.problems:
                print_lines(problem)
            if totals.refused > MAX_PROBLEMS:
                print_lines(f"and {grouped(totals.refused - MAX_PROBLEMS)} more")
        summary = _summary(totals, seconds, args.dry_run)
        print_done(args, summary, success=code == OK and not args.dry_run)
        if sum(totals.dead_letters.values()):
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
        outcome = _counts("new or changed", done.rows, done.duplicates, len(done.bad))
        if args.dry_run or (done.bad and not args.keep_going):
            outcome += "; nothing was written"
        summary = f"{table.name}: {plural(done.lines, 'line')}: {outcome}"
        print_done(args, summary, success=not done.bad and not args.dry_run)
    return BAD_DATA if done.bad else OK


def table_class_argument(text: str) -> MessageClass:
    for message_class in TABLES:
        if message_class.name.lower() == text.lower():
            return message_class
    raise argparse.ArgumentTypeError(f"{text!r} must be one of {TABLE_NAMES}")


def delimiter_argument(text: str) -> str:
    character = DELIMITERS.get(text.lower(), text)
    if len(character) != 1 or character in '"\r\n':
        raise argparse.ArgumentTypeError(f"{text!r} is not a delimiter, such as , or ; or tab")
    return character


def _counts(new: str, rows: int, duplicates: int, left_out: int) -> str:
    return f"{rows} {new}, {duplicates} unchanged, {left_out} left out"


def _summary(totals: ImportTotals, seconds: float, dry_run: bool) -> str:
    def counted(label: str, counts: dict[str, int]) -> str:
        pairs = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        return f"{label} ({pairs})" if pairs else label

    new = "new, unless they are stored already" if dry_run else "new"
    counts = _counts(new, totals.rows, totals.duplicates, totals.refused)
    parts = [f"{plural(totals.records, 'record')}: {counts}"]
    if not dry_run:
        letters = plural(sum(totals.dead_letters.values()), "new dead letter")
        parts.append(counted(letters, totals.dead_letters))
    if totals.ignored_keys:
        parts.append(counted("keys without a column", totals.ignored_keys))
    if totals.resumed:
        parts.append(f"{grouped(totals.resumed)} of the records in an earlier call")
    rate = (totals.records - totals.resumed) / max(seconds, 1e-6)
    return f"{', '.join(parts)}; {seconds:.1f} s, {grouped(int(rate))} records a second"
