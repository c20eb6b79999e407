"""The command line of `sam-db`."""

from __future__ import annotations

from collections.abc import Sequence

from sam_pipeline.schema.program.command import (
    CommandParser,
    program_parser,
    run,
)

PROGRAM = "sam-db"

EXAMPLES = """\
examples:
  SAM_DATABASE_URL=sqlite:////var/lib/sam/sam.db sam-db upgrade
  sam-db --config /etc/sam/sam.toml check
  sam-db repair
  sam-db sql --roles | psql --dbname sam
  sam-db classes --json

The database is the one of `url` in section [database] of sam.toml, or of $SAM_DATABASE_URL.
A password for PostgreSQL can also come from ~/.pgpass or $PGPASSWORD. `check` prints its results
on standard output; `check` and `repair` exit 78 if a problem remains.
"""

COMMANDS = {
    "schema": {
        "upgrade": (
            "upgrade",
            "upgrade the schema to this program's version; creates the SQLite file",
        ),
        "current": (
            "current",
            "print the version of the schema; exit 78 if this program needs another",
        ),
        "check": (
            "check",
            "report all problems with schema, grants and settings; exit 78 if there are any",
        ),
        "repair": ("repair", "recreate missing and altered views, functions, triggers and grants"),
        "classes": (
            "classes",
            "list the message classes: views that accept inserts, their columns and problems",
        ),
        "sql": ("sql", "print the SQL of an upgrade, for a DBA"),
        "config": (
            "check:add_config_options",
            "show each key of the configuration, and where its value comes from",
        ),
    },
    "data": {
        "import": ("imports.files", "load records and tables from files"),
        "downtime": ("downtime", "announce, cancel and list downtimes, including past ones"),
        "history": (
            "history",
            "list all that was said about endpoints, groups, contacts or downtimes",
        ),
        "revoke": (
            "removal.revoke",
            "withdraw what a publisher said, so that what held before holds again",
        ),
        "audit": ("audit", "list what operators did to the data; check that the list is unchanged"),
    },
    "retention": {
        "prune": (
            "removal.prune",
            "remove old results, details, statements, audit rows and dead letters by whole days",
        ),
        "archive": (
            "archive",
            "write closed days to the archive as Parquet files; list, verify and restore them",
        ),
        "partitions": (
            "partitions",
            "list the day partitions of PostgreSQL, and create those of the coming days",
        ),
    },
}
"""The module in `commands` and the help text of each command, in groups."""


def main(argv: Sequence[str] | None = None) -> int:
    return run(PROGRAM, make_parser(), argv)


def make_parser() -> CommandParser:
    description = "Manage the database: its schema, grants and data."
    return program_parser(PROGRAM, description, EXAMPLES, "sam_pipeline.sql.commands", COMMANDS)
