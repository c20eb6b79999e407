"""`sam-db partitions`: show the day partitions, and make those of the coming days."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sam_pipeline.schema.program.command import OK, text_table, to_json
from sam_pipeline.sql.database.engine import name_of, reading
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.pruning.partitions import Partition, coming_days, make_partitions, partitions

AHEAD = 3
LONGEST_AHEAD = 366

EXAMPLES = """\
examples:
  sam-db partitions
  sam-db partitions --ahead 14 --json

A loader makes a missing partition by itself; one made ahead spares the first batch of a day that.
Rows are about: as many as the last ANALYZE or VACUUM found; bytes count indexes as well.
"""


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add `partitions`."""
    words = "show the day partitions of PostgreSQL, and make those of the coming days"
    command = commands.add_parser(
        "partitions",
        parents=[common],
        help=words,
        description=f"{words.capitalize()}.",
        epilog=EXAMPLES,
    )
    command.add_argument(
        "--ahead",
        metavar="DAYS",
        type=_days_ahead,
        default=AHEAD,
        help=f"how many days after today must have theirs (default {AHEAD})",
    )
    command.set_defaults(handler=run_partitions)


def run_partitions(args: argparse.Namespace) -> int:
    engine = open_database(args)
    made = make_partitions(engine, coming_days(datetime.now(UTC).date(), args.ahead))
    with reading(engine) as connection:
        found = partitions(connection)
    if args.json:
        print(to_json(_documents(found, made)))
    elif engine.dialect.name == "sqlite":
        print(f"{name_of(engine)}: no partitions; SQLite keeps all days in one table")
    else:
        print(_table(found, made))
    return OK


def _days_ahead(word: str) -> int:
    if not re.fullmatch("[0-9]{1,3}", word) or int(word) > LONGEST_AHEAD:
        raise argparse.ArgumentTypeError(f"want 0 to {LONGEST_AHEAD} days, not {word!r}")
    return int(word)


def _documents(found: Sequence[Partition], made: Sequence[Partition]) -> list[dict[str, object]]:
    names = {one.name for one in made}
    return [
        {
            "partition": one.name,
            "day": one.day,
            "rows": one.rows,
            "bytes": one.bytes,
            "made": one.name in names,
        }
        for one in found
    ]


def _table(found: Sequence[Partition], made: Sequence[Partition]) -> str:
    names = {one.name for one in made}
    lines = [
        (one.name, one.day, one.rows, one.bytes, "made now" if one.name in names else "")
        for one in found
    ]
    return text_table(("partition", "day", "rows", "bytes", ""), lines)
