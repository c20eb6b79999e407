"""`sam-db partitions`: list the day partitions, and create those of the coming days."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta

from sam_pipeline.schema.program.command import (
    OK,
    print_done,
    print_json,
    text_table,
    whole_number,
)
from sam_pipeline.sql.database.engine import name_of, reading
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.database.partitions import make_partitions, partitions

AHEAD = 3
LONGEST_AHEAD = 366
COLUMNS = ("partition", "day", "rows", "bytes")

EXAMPLES = """\
examples:
  sam-db partitions
  sam-db partitions --ahead 14 --json

The consumer creates those of the coming days that it would load, and any that a result needs. Row
counts are estimates from the last ANALYZE or VACUUM; bytes include indexes.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    command.add_argument(
        "--ahead",
        metavar="DAYS",
        type=whole_number(0, LONGEST_AHEAD),
        default=AHEAD,
        help=f"create the partitions of today and this many days after it (default: {AHEAD})",
    )
    command.set_defaults(handler=run_partitions)


def run_partitions(args: argparse.Namespace) -> int:
    engine = open_database(args)
    today = datetime.now(UTC).date()
    coming = [today + timedelta(days=number) for number in range(args.ahead + 1)]
    created = make_partitions(engine, coming)
    new_names = {partition.name for partition in created}
    with reading(engine) as connection:
        rows = [
            (partition.name, partition.day, partition.rows, partition.bytes)
            for partition in partitions(connection)
        ]
    if args.json:
        keys = (*COLUMNS, "made")
        print_json([dict(zip(keys, (*row, row[0] in new_names), strict=True)) for row in rows])
    elif engine.dialect.name == "sqlite":
        print_done(args, f"{name_of(engine)}: no partitions; SQLite stores all days in one table")
    else:
        lines = [(*row, "created now" if row[0] in new_names else "") for row in rows]
        print_done(args, *text_table((*COLUMNS, ""), lines))
    return OK
