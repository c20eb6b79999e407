"""`sam-db sql`: what `sam-db upgrade` would do, for a DBA to read and to run."""

from __future__ import annotations

import argparse

from sam_pipeline.schema.program.command import OK, to_json
from sam_pipeline.sql.database.config import load_database
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

No database is asked: without --from it is the whole schema. What it prints is one transaction.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    what = command.add_mutually_exclusive_group()
    what.add_argument(
        "--from", dest="start", metavar="VERSION", help="only the steps after this version"
    )
    what.add_argument("--roles", action="store_true", help="only the roles and their rights")
    command.add_argument(
        "--dialect",
        choices=["postgresql", "sqlite"],
        help="default: that of the configured database",
    )
    command.set_defaults(handler=run_sql, usage_error=command.error)


def run_sql(args: argparse.Namespace) -> int:
    if args.start and args.start not in versions():
        args.usage_error(f"--from {args.start}: this program knows {', '.join(versions())}")
    dialect = args.dialect or parse_url(load_database(args).url).get_backend_name()
    if args.roles and dialect == "sqlite":
        args.usage_error("SQLite has no roles; for PostgreSQL: --dialect postgresql")
    script = access_script() if args.roles else upgrade_script(dialect, args.start)
    if args.json:
        about = {"dialect": dialect, "from": args.start, "version": wanted_version()}
        print(to_json({**about, "script": script}))
    else:
        print(script, end="")
    return OK
