"""The command line of `sam-db`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from sqlalchemy import Engine

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.program.command import (
    OK,
    CommandParser,
    common_options,
    run,
    text_table,
    to_json,
)
from sam_pipeline.schema.records.classes import built_in
from sam_pipeline.sql.checks.check import find_problems
from sam_pipeline.sql.commands import downtime as downtime_command
from sam_pipeline.sql.commands import import_files as import_command
from sam_pipeline.sql.commands import partitions as partitions_command
from sam_pipeline.sql.commands import prune as prune_command
from sam_pipeline.sql.commands import sql as script_command
from sam_pipeline.sql.database.config import load_database
from sam_pipeline.sql.database.engine import make_engine, name_of
from sam_pipeline.sql.database.version import (
    current_version,
    require_current,
    upgrade,
    wanted_version,
)
from sam_pipeline.sql.loading.catalogue import ClassView, class_views

PROGRAM = "sam-db"

EXAMPLES = """\
examples:
  SAM_DATABASE_URL=sqlite:////var/lib/sam/sam.db sam-db upgrade
  sam-db --config /etc/sam/sam.toml check
  sam-db check | psql --dbname sam         mends what was found
  sam-db sql --roles | psql --dbname sam
  sam-db classes --json

The database is the url in section [database] of sam.toml, or $SAM_DATABASE_URL. PostgreSQL reads
a password from ~/.pgpass or $PGPASSWORD as well.
"""

COMMANDS = {
    "upgrade": "bring the schema to this program's version; makes the SQLite file",
    "current": "tell the schema's version; exit 78 if it is not this program's",
    "check": "tell every problem of schema, rights and settings at once, each with the statement"
    " that mends it; exit 78 if there is one",
    "classes": "list the message classes: views that take inserts, their columns and problems",
}


def main(argv: Sequence[str] | None = None) -> int:
    return run(PROGRAM, make_parser(), argv, lambda args: int(args.handler(args)))


def make_parser() -> CommandParser:
    common = common_options()
    parser = CommandParser(
        prog=PROGRAM,
        parents=[common],
        description="Look after the database: its schema and rights, what is in it, what goes.",
        epilog=EXAMPLES,
    )
    parser.add_argument(
        "--version", action="version", version=f"{PROGRAM} {version('sam-pipeline')}"
    )
    commands: Any = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, handler in HANDLERS.items():
        command = commands.add_parser(
            name,
            parents=[common],
            help=COMMANDS[name],
            description=f"{COMMANDS[name].capitalize()}.",
            epilog=f"example:\n  {PROGRAM} {name} --json",
        )
        command.set_defaults(handler=handler)
    script_command.add_commands(commands, common)
    import_command.add_commands(commands, common)
    downtime_command.add_commands(commands, common)
    prune_command.add_commands(commands, common)
    partitions_command.add_commands(commands, common)
    return parser


def run_upgrade(args: argparse.Namespace) -> int:
    with _database(args, create=True) as engine:
        applied, name = upgrade(engine), name_of(engine)
    now = wanted_version()
    if args.json:
        print(to_json({"database": name, "version": now, "applied": applied}))
    elif applied:
        print(f"{name}: applied {', '.join(applied)}, now version {now}")
    else:
        print(f"{name}: already version {now}")
    return OK


def run_current(args: argparse.Namespace) -> int:
    with _database(args) as engine:
        found = current_version(engine)
        if args.json:
            known = {"database": name_of(engine), "version": found, "wanted": wanted_version()}
            print(to_json(known))
        elif found:
            print(f"{name_of(engine)}: version {found}")
        require_current(engine)
    return OK


def run_check(args: argparse.Namespace) -> int:
    with _database(args) as engine:
        problems, name = find_problems(engine), name_of(engine)
    if args.json:
        found = [{"problem": each.words, "mend": each.mend} for each in problems]
        print(to_json({"database": name, "problems": found}))
    else:
        for each in problems:
            if each.mend:  # all of them together are a script for psql or sqlite3
                print(f"-- {each.words}\n{each.mend}\n")
    if problems:
        raise ConfigError([each.words for each in problems])
    if not args.json:
        print(f"{name}: no problem found")
    return OK


def run_classes(args: argparse.Namespace) -> int:
    with _database(args) as engine:
        require_current(engine)
        views = [(*_spelled(view), view.problem) for view in class_views(engine)]
    columns = ("class", "columns", "problem")
    if args.json:
        print(to_json([dict(zip(columns, view, strict=True)) for view in views]))
    else:
        print(text_table(columns, [(name, " ".join(of), problem) for name, of, problem in views]))
    return OK


@contextmanager
def _database(args: argparse.Namespace, create: bool = False) -> Iterator[Engine]:
    engine = make_engine(load_database(args).url, create=create)
    try:
        yield engine
    finally:
        engine.dispose()


def _spelled(view: ClassView) -> tuple[str, list[str]]:
    """Name and columns as people write them: PostgreSQL folds them to lower case."""
    known = built_in(view.name)
    if known is None or view.problem:
        return view.name, list(view.columns)
    spelling = {key.lower(): key for key in known.keys}
    return known.name, [spelling.get(column.lower(), column) for column in view.columns]


HANDLERS: dict[str, Callable[[argparse.Namespace], int]] = {
    "upgrade": run_upgrade,
    "current": run_current,
    "check": run_check,
    "classes": run_classes,
}
