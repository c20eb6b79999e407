"""`sam-db partitions`: show the day partitions, and create those of the coming days."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from sam_pipeline.schema.program.command import OK, text_table, to_json, whole_number
from sam_pipeline.sql.database.engine import name_of, reading
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.pruning.partitions import coming_days, make_partitions, partitions

AHEAD = 3
LONGEST_AHEAD = 366

EXAMPLES = """\
examples:
  sam-db partitions
  sam-db partitions --ahead 14 --json

A loader creates missing partitions itself; creating them ahead saves the first batch of a day that
work. Row counts are estimates of the last ANALYZE or VACUUM; bytes include indexes.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--ahead",
        metavar="DAYS",
        type=whole_number(0, LONGEST_AHEAD),
        default=AHEAD,
        help=f"create partitions for this many days after today (default {AHEAD})",
    )
    command.set_defaults(handler=run_partitions)


def run_partitions(args: argparse.Namespace) -> int:
    engine = open_database(args)
    made = make_partitions(engine, coming_days(datetime.now(UTC).date(), args.ahead))
    new_names = {partition.name for partition in made}
    with reading(engine) as connection:
        documents = [
            {
                "partition": partition.name,
                "day": partition.day,
                "rows": partition.rows,
                "bytes": partition.bytes,
                "made": partition.name in new_names,
            }
            for partition in partitions(connection)
        ]
    if args.json:
        print(to_json(documents))
    elif engine.dialect.name == "sqlite":
        print(f"{name_of(engine)}: no partitions; SQLite keeps all days in one table")
    else:
        lines = [
            (*cells, "created now" if is_new else "")
            for *cells, is_new in (document.values() for document in documents)
        ]
        print(text_table(("partition", "day", "rows", "bytes", ""), lines))
    return OK
