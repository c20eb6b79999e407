"""The command line of `sam-db`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from sam_pipeline.schema.program.command import CommandParser, common_options, run
from sam_pipeline.sql.commands import (
    check,
    classes,
    current,
    downtime,
    import_files,
    partitions,
    prune,
    repair,
    sql,
    upgrade,
)

PROGRAM = "sam-db"

EXAMPLES = """\
examples:
  SAM_DATABASE_URL=sqlite:////var/lib/sam/sam.db sam-db upgrade
  sam-db --config /etc/sam/sam.toml check
  sam-db repair
  sam-db sql --roles | psql --dbname sam
  sam-db classes --json

The database is the url in section [database] of sam.toml, or $SAM_DATABASE_URL. PostgreSQL reads
a password from ~/.pgpass or $PGPASSWORD as well. `check` prints its results on standard output;
it and `repair` exit 78 while there is a problem.
"""


def main(argv: Sequence[str] | None = None) -> int:
    return run(PROGRAM, make_parser(), argv, lambda args: int(args.handler(args)))


def make_parser() -> CommandParser:
    common = common_options()
    parser = CommandParser(
        prog=PROGRAM,
        parents=[common],
        description="Look after the database: its schema and rights, what is in it, what goes.",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "--version", action="version", version=f"{PROGRAM} {version('sam-pipeline')}"
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in (
        *(upgrade, current, check, repair, classes, sql),
        *(import_files, downtime, prune, partitions),
    ):
        command.add_command(commands, common)
    return parser
