"""`sam-db audit`: the operators' changes to the data, and whether that log was altered."""

from __future__ import annotations

import argparse
import json
from collections import deque

from sam_pipeline.schema.program.command import (
    OK,
    Verb,
    add_verbs,
    option,
    print_done,
    print_json,
    print_lines,
    print_table,
    text_argument,
    whole_number,
)
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.sql.database.config import open_database
from sam_pipeline.sql.database.engine import name_of
from sam_pipeline.sql.database.operations import RecordedOperation, broken_links, operations
from sam_pipeline.sql.database.roles import READER
from sam_pipeline.sql.errors import OperationsChanged

LISTED = 50
COLUMNS = ("id", "time", "database login", "login", "command", "arguments")

EXAMPLES = """\
examples:
  sam-db audit list
  sam-db audit list --json
  sam-db audit verify
  sam-db audit verify --expect 5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9

Operations are edited, replayed, dropped and restored dead letters, exclusions, downtimes, seals,
requested runs of reports, prunes and revocations, and each policy that a consumer has read again.
Each has a digest that covers the one before. `verify` prints the last digest: keep it outside of
the database, and --expect it the next time, as nothing else can show that the newest operations
were removed. Exit 65 if the log was changed.
"""


def add_options(noun: argparse.ArgumentParser) -> None:
    add_verbs(
        noun,
        EXAMPLES,
        list=Verb(
            "list what operators did to the data",
            run_list,
            option(
                "--limit",
                metavar="N",
                type=whole_number(1),
                help=f"list only the newest N operations (default: {LISTED}; with --json all)",
            ),
        ),
        verify=Verb(
            "check the digests of all operations",
            run_verify,
            option(
                "--expect",
                metavar="DIGEST",
                type=text_argument,
                help="the last digest of an earlier time, which must still be there",
            ),
        ),
    )


def run_list(args: argparse.Namespace) -> int:
    limit = args.limit or (None if args.json else LISTED)
    newest = deque(operations(open_database(args, READER)), maxlen=limit)
    if args.json:
        print_json([{**one._asdict(), "arguments": _arguments(one)} for one in newest])
    else:
        rows = [
            (*operation[:5], "  ".join("=".join(pair) for pair in _arguments(operation).items()))
            for operation in newest
        ]
        print_table(COLUMNS, rows, "no operations")
    return OK


def run_verify(args: argparse.Namespace) -> int:
    """Check the chain of all operations, and print the last digest."""
    engine = open_database(args, READER)
    chain = list(operations(engine))
    problems = list(broken_links(chain))
    last = chain[-1].digest if chain else None
    if args.expect and args.expect not in (operation.digest for operation in chain):
        problems.append(f"no operation has the digest {args.expect}: operations were removed")
    name = name_of(engine)
    if args.json:
        print_json(
            {"database": name, "operations": len(chain), "digest": last, "problems": problems}
        )
    elif problems:
        print_lines(*problems)
    else:
        print_done(args, f"{name}: {plural(len(chain), 'operation')}, none was changed", last or "")
    if problems:
        text = f"{name}: the operation log was changed: {plural(len(problems), 'problem')}"
        raise OperationsChanged(text)
    return OK


def _arguments(operation: RecordedOperation) -> dict[str, str]:
    """The arguments by name; those of an operation that was altered may be only a text."""
    try:
        arguments = json.loads(operation.arguments)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return {"text": operation.arguments}
    return {name: str(value) for name, value in arguments.items()}
