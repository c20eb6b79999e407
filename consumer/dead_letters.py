"""`sam-consume dead-letter`: list, show and replay what could not be loaded."""

from __future__ import annotations

import argparse
import base64
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine

from consumer.config import load_limits
from schema.command import BAD_DATA, OK, CommandParser, text_table, to_json
from schema.normalise import Limits
from schema.times import format_time
from sql.catalogue import Catalogue
from sql.database import open_database
from sql.dead_letter import (
    REPLAYED,
    DeadLetter,
    DeadLetterContent,
    Replayed,
    list_dead_letters,
    replay_dead_letter,
    show_dead_letter,
)
from sql.news import fold_all

EXAMPLES = """\
examples:
  sam-consume dead-letter list --reason unknown-class
  sam-consume dead-letter show 17
  sam-consume dead-letter replay --class metricOutput
"""


def add_commands(commands: Any, common: argparse.ArgumentParser) -> None:
    """Add `dead-letter` and what it can do."""
    group = commands.add_parser(
        "dead-letter",
        parents=[common],
        help="look at records that could not be loaded, and load them after all",
        epilog=EXAMPLES,
    )
    actions = group.add_subparsers(metavar="ACTION", required=True)
    command = _add(actions, common, "list", "the open ones: id, time, class, reason")
    _add_filters(command, everything="also those that were replayed or dropped")
    command.set_defaults(handler=run_list)
    command = _add(actions, common, "show", "bytes, headers and error")
    command.add_argument("ids", metavar="ID", type=int, nargs="+")
    command.set_defaults(handler=run_show)
    command = _add(actions, common, "replay", "load again; what fails again stays")
    command.add_argument("ids", metavar="ID", type=int, nargs="*")
    _add_filters(command, everything="all open ones")
    command.set_defaults(handler=run_replay, usage_error=command.error)


def run_list(args: argparse.Namespace) -> int:
    letters = list_dead_letters(
        open_database(args),
        reason=args.reason,
        message_class=args.message_class,
        any_state=args.everything,
    )
    if args.json:
        print(to_json([_facts(letter) for letter in letters]))
    else:
        columns = ("id", "time", "class", "reason", "error")
        print(text_table(columns, map(_line, letters)))
    return OK


def run_show(args: argparse.Namespace) -> int:
    engine = open_database(args)
    contents = [show_dead_letter(engine, each) for each in args.ids]
    if args.json:
        documents = [_document(content) for content in contents]
        print(to_json(documents if len(documents) > 1 else documents[0]))
    else:
        print("\n\n".join(_text(content) for content in contents))
    return OK


def run_replay(args: argparse.Namespace) -> int:
    if bool(args.ids) == any((args.reason, args.message_class, args.everything)):
        args.usage_error("say which: either IDs, or --reason, --class or --all")
    limits = load_limits(args)
    engine = open_database(args)
    outcomes = list(_replay(engine, args.ids or _wanted(engine, args), limits))
    fold_all(engine)
    if args.json:
        print(to_json([asdict(outcome) for outcome in outcomes]))
    else:
        columns = ("id", "state", "reason", "error")
        rows = [(o.dead_letter_id, o.state, o.reason, o.error) for o in outcomes]
        print(text_table(columns, rows))
    return OK if all(map(_all_loaded, outcomes)) else BAD_DATA


def _add(actions: Any, common: argparse.ArgumentParser, name: str, words: str) -> CommandParser:
    parser: CommandParser = actions.add_parser(
        name, parents=[common], help=words, description=f"{words}.", epilog=EXAMPLES
    )
    return parser


def _add_filters(command: argparse.ArgumentParser, everything: str) -> None:
    command.add_argument("--reason", metavar="R", help="only those of this reason")
    command.add_argument(
        "--class", dest="message_class", metavar="C", help="only those of this class"
    )
    command.add_argument("--all", dest="everything", action="store_true", help=everything)


def _wanted(engine: Engine, args: argparse.Namespace) -> Sequence[int]:
    found = list_dead_letters(engine, reason=args.reason, message_class=args.message_class)
    return [letter.dead_letter_id for letter in found]


def _replay(engine: Engine, ids: Sequence[int], limits: Limits) -> Iterator[Replayed]:
    catalogue = Catalogue(engine)
    for dead_letter_id in ids:
        yield replay_dead_letter(engine, catalogue, dead_letter_id, datetime.now(UTC), limits)


def _all_loaded(outcome: Replayed) -> bool:
    return outcome.state == REPLAYED and not outcome.new_dead_letters


def _line(letter: DeadLetter) -> tuple[object, ...]:
    time = format_time(letter.received_at)
    return letter.dead_letter_id, time, letter.message_class, letter.reason, letter.error


def _facts(letter: DeadLetter) -> dict[str, object]:
    return asdict(letter)


def _document(content: DeadLetterContent) -> dict[str, object]:
    document = _facts(content.letter) | {"headers": dict(content.headers)}
    try:
        document["body"] = content.body.decode()
    except UnicodeDecodeError:
        document["body"] = content.body.decode(errors="replace")
        document["body_base64"] = base64.b64encode(content.body).decode()
    return document


def _text(content: DeadLetterContent) -> str:
    facts = {**_facts(content.letter), "received_at": format_time(content.letter.received_at)}
    facts["changed_at"] = format_time(content.letter.changed_at)
    lines = [f"{name}: {value}" for name, value in facts.items()]
    lines += ["", *(f"{name}: {value}" for name, value in sorted(content.headers.items())), ""]
    return "\n".join(lines) + "\n" + content.body.decode(errors="backslashreplace").rstrip("\n")
