"""`sam-db repair`: recreate missing and altered views, functions, triggers and grants."""

from __future__ import annotations

import argparse

from sam_pipeline.schema.program.command import OK, print_done
from sam_pipeline.sql.checks.repair import repair
from sam_pipeline.sql.commands.check import print_problems, require_none
from sam_pipeline.sql.database.config import database_url
from sam_pipeline.sql.database.engine import make_engine, name_of

EXAMPLES = """\
examples:
  sam-db repair
  sam-db repair --json

A repair is one transaction and changes no rows, except which statements hold, if that is wrong. It
never alters tables: those that differ, and objects that depend on them, are reported as by `sam-db
check`. Your own views and the grants of your own roles are kept; if a repair would lose them, it
names them and changes nothing.
Exit 77 if the user may not act as the owner of the schema, 78 if a problem remains.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    command.set_defaults(handler=run_repair)


def run_repair(args: argparse.Namespace) -> int:
    engine = make_engine(database_url(args))
    (done, problems), name = repair(engine), name_of(engine)
    engine.dispose()
    if not args.json:
        lines = done or ([] if problems else ["nothing to repair"])
        print_done(args, *[f"{name}: {line}" for line in lines], success=not problems)
    print_problems(name, problems, args.json, done=done)
    require_none(problems, name)
    return OK
