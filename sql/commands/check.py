"""`sam-db check`: every problem of a database, with the command that solves it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.program.command import OK, print_done, print_json, print_lines
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.settings import show
from sam_pipeline.schema.settings.section import examine
from sam_pipeline.sql.archive.config import ArchiveConfig
from sam_pipeline.sql.checks.check import Problem, find_problems
from sam_pipeline.sql.database.config import DatabaseConfig, database_url, note_on_plain_text
from sam_pipeline.sql.database.engine import make_engine, name_of
from sam_pipeline.sql.database.version import current_schema
from sam_pipeline.sql.errors import SchemaMismatch
from sam_pipeline.sql.imports.feed_config import ImportConfig
from sam_pipeline.sql.removal.prune import PruneConfig
from sam_pipeline.sql.topology.downtime import downtimes_without_endpoints
from sam_pipeline.sql.topology.view_rows import wire_now

EXAMPLES = """\
examples:
  sam-db --config /etc/sam/sam.toml check
  sam-db check --json

Each problem is printed with the command that solves it: `sam-db upgrade`, `sam-db repair`,
`sam-db sql --roles | psql`, or a statement for psql or sqlite3. Only altered tables, and settings
on the server's command line, must be corrected by hand. Exit 78 if there is a problem. Objects and
grants are compared if the schema has this program's version. A note counts the downtimes that are
not over and apply to no endpoint of the topology: perhaps their sites or flavours have other names.
"""


def add_options(command: argparse.ArgumentParser) -> None:
    command.epilog = EXAMPLES
    command.set_defaults(handler=run_check)


def add_config_options(command: argparse.ArgumentParser) -> None:
    """The command `config`."""
    sections = (DatabaseConfig, ImportConfig, ArchiveConfig, PruneConfig)
    show.add_options(command, lambda args: [examine(one, args.config) for one in sections])


def run_check(args: argparse.Namespace) -> int:
    url = database_url(args)
    engine = make_engine(url)
    name = name_of(engine)
    notes: list[str] = []

    def add_note(note: str) -> None:
        notes.append(note)
        if not args.json:
            print_done(args, f"note: {note}", file=sys.stderr)

    if plain_text := note_on_plain_text(url):
        add_note(plain_text)
    try:
        problems = find_problems(engine)
        schema = current_schema(engine)
        if schema and not schema.is_wanted:
            add_note(f"{name}: {schema}; its objects and grants were not compared")
        elif unmatched := downtimes_without_endpoints(engine, wire_now()):
            add_note(f"{name}: {unmatched}")
    except SchemaMismatch as error:
        if args.json:
            mismatch = Problem(str(error), "sam-db upgrade" if error.is_older else None)
            print_problems(name, [mismatch], as_json=True, notes=notes)
        raise
    engine.dispose()
    if not problems and not args.json:
        print_done(args, f"{name}: no problem found")
    print_problems(name, problems, args.json, notes=notes)
    require_none(problems, name)
    return OK


def print_problems(
    database: str, problems: Sequence[Problem], as_json: bool, **facts: object
) -> None:
    """Print the problems and their solutions; in the JSON document, `facts` come before them."""
    if as_json:
        listed = [{"problem": problem.text, "repair": problem.repair} for problem in problems]
        print_json({"database": database, **facts, "problems": listed})
        return
    for problem in problems:
        print_lines(problem.text, f"    {problem.repair or '(no command solves this)'}")


def require_none(problems: Sequence[Problem], database: str) -> None:
    """Raise ConfigError with the number of problems, if there are any."""
    if problems:
        raise ConfigError([f"{database}: {plural(len(problems), 'problem')}, see above"])
