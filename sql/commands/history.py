"""`sam-db history`: all that was said about endpoints, groups, contacts or downtimes."""

from __future__ import annotations

import argparse

from sam_pipeline.schema.program.command import (
    OK,
    print_json,
    print_lines,
    text_argument,
    text_table,
)
from sam_pipeline.schema.records.classes import (
    DOWNTIME,
    SERVICE_ENDPOINT,
    SITE_CONTACT,
    SITE_GROUP,
    MessageClass,
)
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.topology.view_rows import HOLDS, WITHDRAWN_AT, Row, history

EXAMPLES = """\
examples:
  sam-db history endpoints --site EXAMPLE-SITE
  sam-db history groups --json
  sam-db history downtimes --site EXAMPLE-SITE

A row for each statement, by what it is about and then by the time at which it was said. `holds`
marks those that count; the others were followed by another one, or withdrawn.
"""

CLASSES = {
    "endpoints": SERVICE_ENDPOINT,
    "groups": SITE_GROUP,
    "contacts": SITE_CONTACT,
    "downtimes": DOWNTIME,
}


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    command.add_argument("what", choices=tuple(CLASSES), help="what the statements are about")
    command.add_argument("--site", type=text_argument, metavar="S", help="only this site")
    command.set_defaults(handler=run_history)


def run_history(args: argparse.Namespace) -> int:
    with reading(open_database(args)) as connection:
        rows = history(connection, CLASSES[args.what], args.site)
    print_history(args, CLASSES[args.what], rows)
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
    print_lines(*text_table(["", *keys], cells))
