"""`sam-db upgrade`: upgrade the schema to this program's version."""

from __future__ import annotations

import argparse

from sam_pipeline.schema.program.command import OK, print_done, print_json
from sam_pipeline.sql.database.config import database_url
from sam_pipeline.sql.database.engine import make_engine, name_of
from sam_pipeline.sql.database.version import require_compatible, upgrade

EXAMPLES = """\
examples:
  SAM_DATABASE_URL=sqlite:////var/lib/sam/sam.db sam-db upgrade
  sam-db upgrade --json

On PostgreSQL it also creates the roles and grants them their rights, as far as the user is allowed
to.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    command.set_defaults(handler=run_upgrade)


def run_upgrade(args: argparse.Namespace) -> int:
    engine = make_engine(database_url(args), create=True)
    applied, schema, name = upgrade(engine), require_compatible(engine), name_of(engine)
    engine.dispose()
    if args.json:
        print_json({"database": name, "version": schema.version, "applied": applied})
    elif applied:
        print_done(args, f"{name}: applied {', '.join(applied)}, now version {schema.version}")
    else:
        print_done(args, f"{name}: already {schema}")
    return OK
