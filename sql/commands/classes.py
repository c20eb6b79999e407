"""`sam-db classes`: the message classes of a database."""

from __future__ import annotations

import argparse

from sam_pipeline.schema.program.command import OK, print_json, print_lines, text_table
from sam_pipeline.schema.records.classes import built_in
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.loading.catalogue import class_views

EXAMPLES = "example:\n  sam-db classes --json"


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    command.set_defaults(handler=run_classes)


def run_classes(args: argparse.Namespace) -> int:
    engine = open_database(args)
    rows = []
    for view in class_views(engine):
        name, columns = view.name, list(view.columns)
        known = built_in(name)
        if known and not view.problem:  # PostgreSQL's catalogue only has lower case
            spelling = {key.lower(): key for key in known.keys}
            name, columns = known.name, [spelling.get(key.lower(), key) for key in columns]
        rows.append((name, columns, view.problem))
    engine.dispose()
    header = ("class", "columns", "problem")
    if args.json:
        print_json([dict(zip(header, row, strict=True)) for row in rows])
    else:
        cells = [(name, " ".join(columns), problem) for name, columns, problem in rows]
        print_lines(*text_table(header, cells))
    return OK
