"""`sam-db current`: the version of the schema."""

from __future__ import annotations

import argparse

from sam_pipeline.schema.program.command import OK, print_json, print_lines
from sam_pipeline.sql.database.config import load_database
from sam_pipeline.sql.database.engine import make_engine, name_of
from sam_pipeline.sql.database.version import current_version, require_current, wanted_version

EXAMPLES = "example:\n  sam-db current --json"


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    command.set_defaults(handler=run_current)


def run_current(args: argparse.Namespace) -> int:
    engine = make_engine(load_database(args).url)
    version, name = current_version(engine), name_of(engine)
    if args.json:
        print_json({"database": name, "version": version, "wanted": wanted_version()})
    elif version:
        print_lines(f"{name}: version {version}")
    require_current(engine)
    engine.dispose()
    return OK
