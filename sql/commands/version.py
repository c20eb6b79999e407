"""`sam-db version`: the version of the schema."""

from __future__ import annotations

import argparse

from sam_pipeline.schema.program.command import OK, print_json, print_lines
from sam_pipeline.sql.database.config import database_url
from sam_pipeline.sql.database.engine import make_engine, name_of
from sam_pipeline.sql.database.version import current_schema, require_compatible, wanted_version

EXAMPLES = "example:\n  sam-db version --json"


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    command.set_defaults(handler=run_version)


def run_version(args: argparse.Namespace) -> int:
    engine = make_engine(database_url(args))
    schema, name = current_schema(engine), name_of(engine)
    if args.json:
        version, works = schema and schema.version, schema is not None and schema.suits
        wanted = wanted_version()
        print_json({"database": name, "version": version, "wanted": wanted, "compatible": works})
    elif schema:
        print_lines(f"{name}: {schema if schema.suits else f'version {schema.version}'}")
    require_compatible(engine)
    engine.dispose()
    return OK
