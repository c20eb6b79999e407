"""`sam-db class`: the message classes of a database, and the statements in them."""

from __future__ import annotations

import argparse

from sam_pipeline.schema.program.command import (
    OK,
    Verb,
    add_verbs,
    option,
    print_json,
    print_table,
    text_argument,
)
from sam_pipeline.schema.records.classes import STATEMENTS, MessageClass, built_in
from sam_pipeline.sql.database.config import open_database
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.loading.catalogue import class_views
from sam_pipeline.sql.topology.view_rows import HOLDS, WITHDRAWN_AT, Row, history

EXAMPLES = """\
examples:
  sam-db class list
  sam-db class list --json
  sam-db class history serviceEndpoint --site EXAMPLE-SITE
  sam-db class history downtime

`history` prints a row for each statement, sorted by its subject and then by time. `holds` marks
those that count; the others were followed by another one, or withdrawn.
"""

COLUMNS = ("class", "columns", "problem")


def add_options(noun: argparse.ArgumentParser) -> None:
    names = [message_class.name for message_class in STATEMENTS]
    add_verbs(
        noun,
        EXAMPLES,
        list=Verb("list the views that accept inserts, their columns and problems", run_list),
        history=Verb(
            "list all statements of a class",
            run_history,
            option("name", choices=names, metavar="CLASS", help=", ".join(names)),
            option("--site", type=text_argument, metavar="S", help="only this site"),
        ),
    )


def run_list(args: argparse.Namespace) -> int:
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
    if args.json:
        print_json([dict(zip(COLUMNS, row, strict=True)) for row in rows])
    else:
        cells = [(name, " ".join(columns), problem) for name, columns, problem in rows]
        print_table(COLUMNS, cells, "no classes")
    return OK


def run_history(args: argparse.Namespace) -> int:
    [message_class] = [known for known in STATEMENTS if known.name == args.name]
    with reading(open_database(args)) as connection:
        rows = history(connection, message_class, args.site)
    print_history(args, message_class, rows)
    return OK


def print_history(args: argparse.Namespace, message_class: MessageClass, rows: list[Row]) -> None:
    if args.json:
        print_json([{**row, HOLDS: HOLDS in row} for row in rows])
        return
    keys = [*message_class.keys, "source", "publisher", "receivedAt"]
    cells = [
        [
            "holds" if HOLDS in row else "withdrawn" if WITHDRAWN_AT in row else "",
            *(row.get(key, "").replace("\n", " ") for key in keys),
        ]
        for row in rows
    ]
    print_table(["", *keys], cells, "no statements")
