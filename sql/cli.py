"""The command line of `sam-db`."""

from __future__ import annotations

from collections.abc import Sequence

from sam_pipeline.schema.program.command import CommandParser, program_parser, run

PROGRAM = "sam-db"

EXAMPLES = """\
examples:
  SAM_DATABASE_URL=sqlite:////var/lib/sam/sam.db sam-db upgrade
  sam-db --config /etc/sam/sam.toml check
  sam-db repair
  sam-db sql --roles | psql --dbname sam
  sam-db class list

The database is the one of `url` in section [database] of sam.toml, or of $SAM_DATABASE_URL.
A password for PostgreSQL can also come from ~/.pgpass or $PGPASSWORD. `check` prints its results
on standard output; `check` and `repair` exit 78 if a problem remains.
"""

COMMANDS = {
    "schema": {
        "upgrade": ("upgrade", "upgrade the schema to this version; creates the SQLite file"),
        "version": ("version", "print the version of the schema; exit 78 if another is needed"),
        "check": ("check", "report all problems of schema, grants and settings; exit 78 if any"),
        "repair": ("repair", "recreate missing and altered views, functions, triggers and grants"),
        "sql": ("sql", "print the SQL of an upgrade, for a DBA"),
        "class": ("class_", "list the message classes, and the statements in one"),
        "config": (
            "check:add_config_options",
            "show each key of the configuration, and where its value comes from",
        ),
    },
    "data": {
        "import": ("import_", "load records, tables and topology from files and servers"),
        "downtime": ("downtime", "announce, end, cancel and list downtimes, also past ones"),
        "revoke": ("revoke", "withdraw a publisher's records, and restore those they replaced"),
        "audit": ("audit", "list what operators did to the data; verify that list"),
    },
    "retention": {
        "prune": ("prune", "remove whole days of old results, details, statements and letters"),
        "archive": ("archive", "write closed days to Parquet files; list, verify and restore them"),
        "partition": ("partition", "list the day partitions of PostgreSQL; create coming ones"),
    },
}
"""The module in `commands` and the help text of each command, in groups."""


def main(argv: Sequence[str] | None = None) -> int:
    return run(make_parser(), argv)


def make_parser() -> CommandParser:
    description = "Manage the database: its schema, grants and data."
    return program_parser(PROGRAM, description, EXAMPLES, "sam_pipeline.sql.commands", COMMANDS)
