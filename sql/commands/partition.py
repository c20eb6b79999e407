"""`sam-db partition`: the day partitions of PostgreSQL."""

from __future__ import annotations

import argparse
from datetime import timedelta

from sam_pipeline.schema.program.command import (
    OK,
    Verb,
    add_verbs,
    option,
    print_done,
    print_json,
    print_table,
)
from sam_pipeline.schema.program.moments import days_argument, utc_today
from sam_pipeline.sql.database.config import open_database
from sam_pipeline.sql.database.engine import name_of, reading
from sam_pipeline.sql.database.partitions import Partition, make_partitions, partitions

AHEAD = "3d"
LONGEST_AHEAD = 366
COLUMNS = ("partition", "day", "rows", "bytes")

EXAMPLES = """\
examples:
  sam-db partition list
  sam-db partition create
  sam-db partition create --ahead 14d --json

The consumer creates the partitions of the days that it is about to load, and any that a result
needs. Row counts are estimates from the last ANALYZE or VACUUM; bytes include indexes.
"""


def add_options(noun: argparse.ArgumentParser) -> None:
    add_verbs(
        noun,
        EXAMPLES,
        list=Verb("list the day partitions, with their sizes", run_list),
        create=Verb(
            "create the partitions of today and the coming days",
            run_create,
            option(
                "--ahead",
                metavar="AGE",
                type=ahead_argument,
                default=AHEAD,
                help="how far ahead (default: %(default)s)",
            ),
        ),
    )


def ahead_argument(text: str) -> int:
    """The argparse `type` of a number of days that are not far ahead: `7d`."""
    days = days_argument(text)
    if days > LONGEST_AHEAD:
        raise argparse.ArgumentTypeError(
            f"{text!r} is too far ahead (expected 1d to {LONGEST_AHEAD}d)"
        )
    return days


def run_list(args: argparse.Namespace) -> int:
    engine = open_database(args)
    with reading(engine) as connection:
        rows = [_row(partition) for partition in partitions(connection)]
    if args.json:
        print_json([dict(zip(COLUMNS, row, strict=True)) for row in rows])
    else:
        reason = "; SQLite stores all days in one table"
        is_sqlite = engine.dialect.name == "sqlite"
        print_table(COLUMNS, rows, f"{name_of(engine)}: no partitions{reason if is_sqlite else ''}")
    return OK


def run_create(args: argparse.Namespace) -> int:
    engine = open_database(args)
    days = [utc_today() + timedelta(days=number) for number in range(args.ahead + 1)]
    created = [_row(partition) for partition in make_partitions(engine, days)]
    if args.json:
        print_json([dict(zip(COLUMNS, row, strict=True)) for row in created])
    else:
        names = [f"created {name}" for name, *_ in created] or ["nothing to create"]
        print_done(args, *(f"{name_of(engine)}: {name}" for name in names))
    return OK


def _row(partition: Partition) -> tuple[object, ...]:
    return partition.name, partition.day, partition.rows, partition.bytes
