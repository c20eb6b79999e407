"""`sam-db classes`: the message classes a database knows."""

from __future__ import annotations

import argparse

from sam_pipeline.schema.program.command import OK, text_table, to_json
from sam_pipeline.schema.records.classes import built_in
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.loading.catalogue import ClassView, class_views

EXAMPLES = "example:\n  sam-db classes --json"


def add_options(command: argparse.ArgumentParser) -> None:
    command.set_defaults(handler=run_classes)


def run_classes(args: argparse.Namespace) -> int:
    engine = open_database(args)
    rows = [(*_spelled(view), view.problem) for view in class_views(engine)]
    engine.dispose()
    header = ("class", "columns", "problem")
    if args.json:
        print(to_json([dict(zip(header, row, strict=True)) for row in rows]))
    else:
        print(text_table(header, [(name, " ".join(of), problem) for name, of, problem in rows]))
    return OK


def _spelled(view: ClassView) -> tuple[str, list[str]]:
    """Name and columns as people write them: PostgreSQL folds them to lower case."""
    known = built_in(view.name)
    if known is None or view.problem:
        return view.name, list(view.columns)
    spelling = {key.lower(): key for key in known.keys}
    return known.name, [spelling.get(column.lower(), column) for column in view.columns]
