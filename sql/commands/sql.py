"""`sam-db sql`: the SQL of `sam-db upgrade`, for a DBA to review and run."""

from __future__ import annotations

import argparse

from sam_pipeline.schema.program.command import OK, print_json, print_text
from sam_pipeline.sql.database.config import database_url
from sam_pipeline.sql.database.engine import parse_url
from sam_pipeline.sql.database.version import (
    access_script,
    upgrade_script,
    versions,
    wanted_version,
)

EXAMPLES = """\
examples:
  sam-db sql --dialect postgresql | psql --set ON_ERROR_STOP=1 --dbname sam
  sam-db sql --from 0001 > to-the-next-version.sql
  sam-db sql --roles | psql --dbname sam

The output is one transaction. The command does not connect to a database: without --from it prints
the whole schema.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    parts = command.add_mutually_exclusive_group()
    parts.add_argument(
        "--from", dest="start", metavar="VERSION", help="only the steps after this version"
    )
    parts.add_argument("--roles", action="store_true", help="only the roles and their grants")
    command.add_argument(
        "--dialect",
        choices=["postgresql", "sqlite"],
        help="default: the dialect of the configured database",
    )
    command.set_defaults(handler=run_sql, usage_error=command.error)


def run_sql(args: argparse.Namespace) -> int:
    if args.start is not None and args.start not in versions():
        args.usage_error(f"--from {args.start}: must be one of {', '.join(versions())}")
    dialect = args.dialect or parse_url(database_url(args)).get_backend_name()
    if args.roles and dialect == "sqlite":
        args.usage_error("SQLite has no roles; for PostgreSQL add --dialect postgresql")
    script = access_script() if args.roles else upgrade_script(dialect, args.start)
    if args.json:
        about = {"dialect": dialect, "from": args.start, "version": wanted_version()}
        print_json({**about, "script": script})
    else:
        print_text(script)
    return OK
