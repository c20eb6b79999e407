"""`sam-consume check`: every problem at once, without touching a broker."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

from consumer.config import load_consumer, state_directory
from schema.broker import SPOOL
from schema.errors import ConfigError, SamError
from sql.check import loader_problems
from sql.config import load_database
from sql.engine import make_engine
from sql.version import require_current


def find_problems(args: argparse.Namespace) -> list[str]:
    """One line per problem of configuration, directories and database; none is good news."""
    problems: list[str] = []
    for find in (_with_consumer, _with_database):
        try:
            problems.extend(find(args))
        except ConfigError as error:
            problems.extend(error.problems)
        except SamError as error:
            problems.append(str(error))
    return list(dict.fromkeys(problems))  # both read the same file


def _with_consumer(args: argparse.Namespace) -> Iterator[str]:
    config = load_consumer(args)
    spools = [Path(broker.path) for broker in config.parsed_brokers() if broker.kind == SPOOL]
    for path in spools:
        yield from _unusable(path, "spool")
    if spools:
        yield from _unusable(state_directory(), "state directory")


def _with_database(args: argparse.Namespace) -> Iterator[str]:
    engine = make_engine(load_database(args).url)
    require_current(engine)
    yield from (problem.words for problem in loader_problems(engine))


def _unusable(path: Path, what: str) -> Iterator[str]:
    """A directory that is absent is made when it is needed, if its parent allows it."""
    existing = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not existing.is_dir():
        yield f"{what} {path}: {existing} is no directory"
    elif not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        yield f"{what} {path}: no permission to read and write {existing}"
