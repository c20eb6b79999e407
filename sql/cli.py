"""The command line of `sam-db`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

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

COMMANDS = {
    "upgrade": (upgrade, "bring the schema to this program's version; creates the SQLite file"),
    "current": (current, "print the schema's version; exit 78 if it is not this program's"),
    "check": (
        check,
        "report every problem of schema, rights and settings; exit 78 if there is one",
    ),
    "repair": (repair, "create missing and altered views, functions, triggers and grants again"),
    "classes": (
        classes,
        "list the message classes: views that take inserts, their columns and problems",
    ),
    "sql": (sql, "print what `upgrade` does, for a DBA"),
    "import": (import_files, "load records and tables from files"),
    "downtime": (downtime, "announce, cancel and list downtimes by hand, in the past too"),
    "prune": (prune, "remove whole days of old results, details, audit rows and dead letters"),
    "partitions": (
        partitions,
        "show the day partitions of PostgreSQL, and create those of the coming days",
    ),
}
"""Module, and help."""


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
    commands: Any = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (module, text) in COMMANDS.items():
        command = commands.add_parser(
            name,
            parents=[common],
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=module.EXAMPLES,
        )
        module.add_options(command)
    return parser
