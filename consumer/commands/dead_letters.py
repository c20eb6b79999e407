"""`sam-consume dead-letter`: list, show, edit, replay and drop records that could not be loaded."""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import Engine

from sam_pipeline.consumer.commands.dead_letter_tables import (
    documents,
    letter_lines,
    letter_table,
    outcome_table,
)
from sam_pipeline.consumer.commands.letter_editor import edited_by_hand
from sam_pipeline.consumer.config import editor_command, load_limits
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.program.command import (
    BAD_DATA,
    NO_INPUT,
    OK,
    common_options,
    print_json,
    print_lines,
    whole_number,
)
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.sql.database.open import open_database
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.loading.dead_letter import (
    NO_LIMIT,
    LetterFilter,
    dead_letter_ids,
    drop_dead_letters,
    list_dead_letters,
    show_dead_letter,
)
from sam_pipeline.sql.loading.dead_letter_edit import edit_dead_letter, refuse_settled
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.replay import Replayed, replay_dead_letters
from sam_pipeline.sql.topology.moments import age_argument

EXAMPLES = """\
examples:
  sam-consume dead-letter list --reason unknown-class
  sam-consume dead-letter list --all --limit 20      the newest ones in any state
  sam-consume dead-letter show 17
  sam-consume dead-letter edit 17 --replay           in $VISUAL or $EDITOR, then load it
  sam-consume dead-letter edit 17 --header messageClass=metricOutput
  sam-consume dead-letter edit 17 --body fixed.txt
  sam-consume dead-letter replay --class metricOutput
  sam-consume dead-letter drop --reason too-old --older-than 30d

Select letters either by ID or by filters; several filters narrow the selection. Editing creates a
new letter and drops the old one, which keeps its bytes. A letter that was replayed or dropped is
never loaded again. The daemon replays letters with the reason class-broken by itself once the view
works.
"""

ALL_OPEN = "select all open letters"

logger = logging.getLogger(__name__)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    actions = parser.add_subparsers(metavar="ACTION", required=True)

    def add(
        name: str, handler: Callable[[argparse.Namespace], int], text: str
    ) -> argparse.ArgumentParser:
        action = actions.add_parser(
            name,
            parents=[common_options()],
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=EXAMPLES,
        )
        action.set_defaults(handler=handler, usage_error=action.error)
        return action

    action = add("list", run_list, "list open letters: id, time, class, reason, error")
    _add_selection(action, everything="also list replayed and dropped letters")
    action.add_argument("--limit", metavar="N", type=whole_number(), help="list only the newest N")
    _add_selection(add("show", run_show, "show body, headers and error"), ALL_OPEN)
    action = add("edit", run_edit, "replace a letter by one with a new body or new headers")
    action.add_argument("id", metavar="ID", type=whole_number())
    action.add_argument(
        "--body",
        metavar="FILE",
        help="read the new body from FILE (- for standard input) instead of opening an editor",
    )
    action.add_argument(
        "--header",
        dest="headers",
        metavar="K=V",
        type=_header,
        action="append",
        default=[],
        help="set a header, or remove it with K=, without opening an editor (repeatable)",
    )
    action.add_argument("--replay", action="store_true", help="load the new letter afterwards")
    _add_selection(add("replay", run_replay, "load letters again; those that fail stay"), ALL_OPEN)
    _add_selection(add("drop", run_drop, "mark letters as dropped, for good"), ALL_OPEN)


def _add_selection(action: argparse.ArgumentParser, everything: str) -> None:
    action.add_argument("ids", metavar="ID", type=whole_number(), nargs="*")
    action.add_argument("--reason", metavar="R", help="select letters with this reason")
    action.add_argument(
        "--class", dest="message_class", metavar="C", help="select letters of this class"
    )
    action.add_argument(
        "--older-than",
        metavar="AGE",
        type=age_argument,
        help="select letters older than AGE, for example 30d",
    )
    action.add_argument("--all", dest="everything", action="store_true", help=everything)


def run_list(args: argparse.Namespace) -> int:
    """Print the selected letters as a table, or all open letters without a selection."""
    selected = _selected(args, any_state=args.everything or bool(args.ids), by_default=True)
    engine = open_database(args)
    letters = list_dead_letters(engine, selected, args.limit or NO_LIMIT)
    if args.ids:
        dead_letter_ids(engine, selected)  # an unknown id is an error
    if args.limit and len(letters) == args.limit:
        total = len(dead_letter_ids(engine, selected))
        logger.info("showing the newest %d of %d dead letters", args.limit, total)
    if args.json:
        print_json(documents(letters))
    else:
        print_lines(*letter_table(letters))
    return OK


def run_show(args: argparse.Namespace) -> int:
    """Print the selected letters with headers and body."""
    selected = _selected(args, any_state=bool(args.ids))
    engine = open_database(args)
    contents = (show_dead_letter(engine, number) for number in dead_letter_ids(engine, selected))
    if args.json:
        shown = documents(contents)
        print_json(shown[0] if len(args.ids) == 1 else shown)
    else:
        for index, content in enumerate(contents):
            print_lines(*["", ""] * bool(index), *letter_lines(content))
    return OK


def run_edit(args: argparse.Namespace) -> int:
    """Replace a letter by an edited one, and with --replay load that."""
    engine, limits = open_database(args), load_limits(args)
    content = show_dead_letter(engine, args.id)
    refuse_settled(content)
    body: bytes | None = None
    with ExitStack() as stack:  # keeps the text that was typed if the edit fails
        if args.body == "-":
            body = sys.stdin.buffer.read()
        elif args.body is not None:
            try:
                body = Path(args.body).read_bytes()
            except OSError as error:
                text = f"{args.body}: {error.strerror}; nothing changed"
                raise BadInput(text, exit_code=NO_INPUT) from error
        elif not args.headers:
            editor = editor_command() or (["vi"] if sys.stdin.isatty() else [])
            if not editor:
                args.usage_error("no $VISUAL, $EDITOR or terminal: use --body FILE")
            suffix = ".json" if Message(content.headers, content.body).is_json else ".txt"
            body = stack.enter_context(edited_by_hand(content.body, editor, suffix))
        edited = edit_dead_letter(engine, args.id, datetime.now(UTC), body, dict(args.headers))
    outcomes = list(_replayed(engine, [edited], limits)) if args.replay else []
    if args.json:
        replayed = asdict(outcomes[0]) if outcomes else None
        print_json({"dead_letter_id": edited, "edited_from": args.id, "replayed": replayed})
    else:
        print_lines(f"dead letter {args.id} was replaced by dead letter {edited}")
        if outcomes:
            print_lines(*outcome_table(outcomes))
    return _exit_code(outcomes)


def run_replay(args: argparse.Namespace) -> int:
    """Load the selected letters again, and print the outcome of each."""
    selected = _selected(args, any_state=bool(args.ids))
    engine, limits = open_database(args), load_limits(args)
    outcomes: list[Replayed] = []
    try:
        for outcome in _replayed(engine, dead_letter_ids(engine, selected), limits):
            outcomes.append(outcome)
    finally:  # print what was committed, even after an error
        if args.json:
            print_json([asdict(outcome) for outcome in outcomes])
        else:
            print_lines(*outcome_table(outcomes))
        counts = Counter(outcome.outcome for outcome in outcomes)
        parts = [f"{len(outcomes)} dead letters", *(f"{n} {name}" for name, n in counts.items())]
        new = sum(outcome.new_dead_letters for outcome in outcomes)
        logger.info("%s", ", ".join([*parts, f"{new} new for bad records"] if new else parts))
    return _exit_code(outcomes)


def run_drop(args: argparse.Namespace) -> int:
    """Drop the selected letters that are open."""
    selected = _selected(args, any_state=bool(args.ids))
    engine = open_database(args)
    dead_letter_ids(engine, selected)  # an unknown id is an error
    dropped = drop_dead_letters(engine, selected, datetime.now(UTC))
    not_open = len(set(args.ids)) - dropped if args.ids else 0
    if args.json:
        print_json({"dropped": dropped, "not_open": not_open})
    else:
        skipped = f", {not_open} were not open" if not_open else ""
        print_lines(f"dropped {dropped} dead letters{skipped}")
    return OK


def _selected(args: argparse.Namespace, any_state: bool, by_default: bool = False) -> LetterFilter:
    filters = (args.reason, args.message_class, args.older_than, args.everything)
    if args.ids and any(filters):
        args.usage_error(
            "select letters by ID or by --reason, --class, --older-than, --all, but not both"
        )
    if not by_default and not args.ids and not any(filters):
        args.usage_error("select letters by ID, or by --reason, --class, --older-than, --all")
    age = timedelta(days=args.older_than) if args.older_than else None
    return LetterFilter(
        ids=args.ids or None,
        reason=args.reason,
        message_class=args.message_class,
        received_before=datetime.now(UTC) - age if age else None,
        any_state=any_state,
    )


def _replayed(engine: Engine, ids: Sequence[int], limits: Limits) -> Iterator[Replayed]:
    progress = Progress("replayed", total=len(ids), unit="dead letters")
    try:
        outcomes = replay_dead_letters(engine, ids, lambda: datetime.now(UTC), limits)
        for number, outcome in enumerate(outcomes, 1):
            progress.show(number)
            yield outcome
    finally:
        progress.end()
    fold_all(engine)


def _exit_code(outcomes: Sequence[Replayed]) -> int:
    return OK if all(outcome.all_loaded for outcome in outcomes) else BAD_DATA


def _header(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, not {text!r}")
    return name, value or None
