"""`sam-consume dead-letter`: list, show, edit, replay, drop and restore records not loaded."""

from __future__ import annotations

import argparse
import base64
import logging
import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from sqlalchemy import Engine

from sam_pipeline.consumer.errors import EditorFailed
from sam_pipeline.consumer.settings.config import ConsumerConfig, examine_consumer
from sam_pipeline.schema.identity.identity import sender_name
from sam_pipeline.schema.identity.policy import usable_policy
from sam_pipeline.schema.messages.message import Message, Origin
from sam_pipeline.schema.program.command import (
    BAD_DATA,
    NO_INPUT,
    OK,
    add_action,
    print_done,
    print_json,
    print_json_array,
    print_lines,
    print_table,
    text_table,
    whole_number,
)
from sam_pipeline.schema.program.moments import moment_argument
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.program.wording import did_you_mean, did_you_mean_or_list, plural
from sam_pipeline.schema.records import reasons as schema_reasons
from sam_pipeline.schema.records.classes import folded
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.config import open_database
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.loading import batch
from sam_pipeline.sql.loading.authorise import Authority
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.fold import fold_all
from sam_pipeline.sql.loading.letters import dead_letter as letters
from sam_pipeline.sql.loading.letters.dead_letter import DeadLetter, DeadLetterContent, LetterFilter
from sam_pipeline.sql.loading.letters.quota import Sender
from sam_pipeline.sql.loading.letters.store import edit_dead_letter, refuse_settled
from sam_pipeline.sql.loading.replay import FAILED, LOADED, REPLACED, Replayed, replay_dead_letters

EXAMPLES = """\
examples:
  sam-consume dead-letter list --reason unknown-class
  sam-consume dead-letter list --state any --limit 20      the newest ones in any state
  sam-consume dead-letter list --by sender           who sent how many, and an example
  sam-consume dead-letter show 17
  sam-consume dead-letter edit 17 --replay           in $VISUAL or $EDITOR, then load it
  sam-consume dead-letter edit 17 --header messageClass=metricOutput
  sam-consume dead-letter edit 17 --body fixed.txt
  sam-consume dead-letter replay --class metricOutput
  sam-consume dead-letter drop --reason too-old --older-than 30d
  sam-consume dead-letter list --dropped             what can be restored
  sam-consume dead-letter restore 17                 after a drop by mistake

Select letters either by ID or by filters; several filters narrow the selection, and --all selects
every letter. Editing creates a new letter and drops the old one, which keeps its bytes. A letter
that was replayed or dropped is never loaded again, unless it is restored. The daemon replays
letters with the reason class-broken by itself once the view works.
"""

ANY = "any"
NONE = "no dead letters"
LISTED = 50
"""The newest letters that `list` prints without --limit or --all."""
SHOWN_BYTES = 64 * 1024
"""`show` begins no further letter after this much text without --all."""

_OF_REPLAY = (
    *("max_message_bytes", "max_records", "max_age_days", "max_future_s"),
    *("policy_file", "signature_age_days"),
)
"""The keys that a replay needs: limits and policy, but no brokers."""
LONGEST_ERROR = 200
SHOWN_BODY_BYTES = 16 * 1024
SHOWN_HEADERS, SHOWN_HEADER = 100, 500
"""The number of headers that are shown, and the characters of each."""

logger = logging.getLogger(__name__)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    add = partial(add_action, parser.add_subparsers(), epilog=EXAMPLES)
    action = add("list", run_list, "list open letters: id, time, class, reason, sender, error")
    _add_selection(action, letters.OPEN, f"print all, not only the newest {LISTED}")
    _add_state(action)
    action.add_argument(
        "--by",
        choices=letters.BY,
        help="count the letters by sender (as established, else as claimed), reason or class",
    )
    action.add_argument(
        "--limit",
        metavar="N",
        type=whole_number(),
        help=f"list only the newest N (default: {LISTED}; with --json all); after --after the "
        "first N",
    )
    action.add_argument(
        "--after",
        metavar="ID",
        type=whole_number(0),
        help="list only letters with a higher id, the oldest first",
    )
    action = add("show", run_show, "show body, headers and error")
    _add_selection(action, letters.OPEN, "print everything, however long or many")
    _add_state(action)
    action = add("edit", run_edit, "replace a letter by one with a new body or new headers")
    action.add_argument("id", metavar="ID", type=whole_number(), help="id of the letter")
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
        help="set a header, or remove it with K=, without opening an editor",
    )
    action.add_argument("--replay", action="store_true", help="load the new letter afterwards")
    drop = partial(run_change, letters.drop_dead_letters, "dropped", "not open")
    restore = partial(run_change, letters.restore_dead_letters, "restored", "not to be restored")
    for name, handler, state, text in (
        ("replay", run_replay, letters.OPEN, "load letters again; those that fail stay open"),
        ("drop", drop, letters.OPEN, "mark letters as dropped: they are not loaded"),
        ("restore", restore, letters.DROPPED, "reopen dropped letters"),
    ):
        _add_selection(add(name, handler, text), state)


def _add_selection(action: argparse.ArgumentParser, state: str, all_of_them: str = "") -> None:
    """The options that select letters; without ids only those in a state.

    `all_of_them`: what else --all does.
    """
    action.set_defaults(state=state)
    action.add_argument(
        "ids", metavar="ID", type=whole_number(), nargs="*", help="select letters by their ids"
    )
    action.add_argument(
        "--reason", metavar="R", type=_reason, help="select letters with this reason"
    )
    action.add_argument(
        "--class", dest="message_class", metavar="C", help="select letters of this class"
    )
    action.add_argument(
        "--older-than",
        metavar="TIME",
        type=moment_argument,
        help="select letters received before TIME, for example 30d",
    )
    action.add_argument(
        "--all",
        dest="everything",
        action="store_true",
        help="; ".join(filter(None, [f"select all {state} letters", all_of_them])),
    )


def _add_state(action: argparse.ArgumentParser) -> None:
    states = action.add_mutually_exclusive_group()
    states.add_argument(
        "--state",
        choices=[letters.OPEN, letters.REPLAYED, letters.DROPPED, ANY],
        help=f"select letters in this state (default: {letters.OPEN})",
    )
    states.add_argument(
        "--dropped",
        dest="state",
        action="store_const",
        const=letters.DROPPED,
        help="the same as --state dropped: letters that can be restored",
    )


def run_list(args: argparse.Namespace) -> int:
    """Print the selected letters as a table, or all open letters without a selection."""
    selected = _selected(args, by_default=True)
    engine = _opened(args)
    if args.ids:
        letters.dead_letter_ids(engine, selected)  # an unknown id is an error
    limit = args.limit or (letters.NO_LIMIT if args.everything or args.json else LISTED)
    if args.by:
        groups = letters.count_dead_letters(engine, selected, args.by, limit)
        if args.json:
            documents = []
            for group in map(asdict, groups):
                name, known_by = group.pop("name"), group.pop("known_by")
                more = {"known_by": known_by} if args.by == "sender" else {}
                documents.append({args.by: name, **more, **group})
            print_json(documents)
        else:
            rows = [
                (
                    group.letters,
                    f"{group.name} (claimed)"
                    if group.known_by == letters.CLAIMED
                    else group.name or f"no {args.by}",
                    format_time(group.first_received_at),
                    format_time(group.last_received_at),
                    group.example_id,
                )
                for group in groups
            ]
            print_table(("letters", args.by, "first", "last", "example"), rows, NONE)
        return OK
    after = args.after
    if after is None:
        after = 0 if limit == letters.NO_LIMIT else letters.before_newest(engine, selected, limit)
    pages = letters.dead_letter_pages(engine, selected, after, limit)
    if args.json:
        print_json_array(asdict(letter) for page in pages for letter in page)
        return OK
    for lines in letter_tables(pages, states=selected.state != letters.OPEN):
        print_lines(*lines)
    total = letters.number_of_dead_letters(engine, selected) if limit < letters.NO_LIMIT else 0
    if total > limit:
        which = "newest" if args.after is None else "next"
        text = "showing the %s %d of %d dead letters; --all lists all, --after ID the next ones"
        logger.info(text, which, limit, total)
    return OK


def run_show(args: argparse.Namespace) -> int:
    """Print the selected letters with headers and body."""
    selected = _selected(args)
    engine = _opened(args)
    ids = letters.dead_letter_ids(engine, selected)
    contents = (letters.show_dead_letter(engine, number) for number in ids)
    if args.json:
        if len(args.ids) == 1:
            print_json(letter_document(next(contents)))
        else:
            print_json_array(map(letter_document, contents))
        return OK
    printed = 0
    for index, content in enumerate(contents):
        if printed >= SHOWN_BYTES and not args.everything:
            shown = "showing the first %d of %d dead letters; --all shows all"
            logger.info(shown, index, len(ids))
            break
        lines = letter_lines(content, args.everything)
        print_lines(*["", ""] * bool(index), *lines)
        printed += sum(map(len, lines))
    return OK


def run_edit(args: argparse.Namespace) -> int:
    """Replace a letter by an edited one, and with --replay load that."""
    engine, config = open_database(args), examine_consumer(args).only(*_OF_REPLAY)
    content = letters.show_dead_letter(engine, args.id)
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
            command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
            editor = command or (["vi"] if sys.stdin.isatty() else [])
            if not editor:
                args.usage_error("no $VISUAL, $EDITOR or terminal: use --body FILE")
            suffix = ".json" if Message(content.headers, content.body).is_json else ".txt"
            body = stack.enter_context(edited_by_hand(content.body, editor, suffix))
        edited = edit_dead_letter(engine, args.id, datetime.now(UTC), body, dict(args.headers))
    outcomes = list(_replayed(engine, [edited], config)) if args.replay else []
    if args.json:
        replayed = asdict(outcomes[0]) if outcomes else None
        print_json({"dead_letter_id": edited, "edited_from": args.id, "replayed": replayed})
    else:
        print_done(args, f"dead letter {args.id} was replaced by dead letter {edited}")
        for lines in outcome_tables([outcomes] if outcomes else ()):
            print_done(args, *lines, success=_exit_code(outcomes) == OK)
    return _exit_code(outcomes)


def run_replay(args: argparse.Namespace) -> int:
    """Load the selected letters again, and print the outcome of each."""
    selected = _selected(args)
    engine, config = _opened(args), examine_consumer(args).only(*_OF_REPLAY)
    ids = letters.dead_letter_ids(engine, selected)
    counts: Counter[str] = Counter()
    code = OK

    def counted() -> Iterator[Replayed]:
        nonlocal code
        for outcome in _replayed(engine, ids, config):
            counts[outcome.outcome] += 1
            code = code or _exit_code([outcome])
            yield outcome

    try:  # commits are printed, even before an error
        if args.json:
            print_json_array(map(asdict, counted()))
        else:
            for lines in outcome_tables(_pages(counted())):
                print_done(args, *lines, success=code == OK)
    finally:
        parts = [plural(counts.total(), "dead letter")]
        logger.info("%s", ", ".join([*parts, *(f"{n} {name}" for name, n in counts.items())]))
    return code


def run_change(
    change: Callable[[Engine, LetterFilter, datetime], int],
    done: str,
    not_done: str,
    args: argparse.Namespace,
) -> int:
    """Change the state of letters, and print how many were changed, and how many ids were not."""
    selected = _selected(args)
    engine = _opened(args)
    letters.dead_letter_ids(engine, selected)  # an unknown id is an error
    changed = change(engine, selected, datetime.now(UTC))
    others = len(set(args.ids)) - changed if args.ids else 0
    if args.json:
        print_json({done: changed, not_done.replace(" ", "_"): others})
    else:
        skipped = f", {others} {'was' if others == 1 else 'were'} {not_done}" if others else ""
        print_done(args, f"{done} {plural(changed, 'dead letter')}{skipped}")
    return OK


def _selected(args: argparse.Namespace, by_default: bool = False) -> LetterFilter:
    filters = (args.reason, args.message_class, args.older_than)
    is_filtered = any(value is not None for value in filters)
    if args.ids and (is_filtered or (args.everything and args.handler not in (run_list, run_show))):
        args.usage_error(
            "select letters by ID or by --reason, --class, --older-than, --all, but not both"
        )
    if not (by_default or args.ids or is_filtered or args.everything):
        args.usage_error("select letters by ID, or by --reason, --class, --older-than, --all")
    return LetterFilter(
        ids=args.ids or None,
        reason=args.reason,
        message_class=args.message_class,
        received_before=args.older_than,
        state=None if args.ids or args.state == ANY else args.state,
    )


def _opened(args: argparse.Namespace) -> Engine:
    """The database; a class that neither it nor a dead letter has is a usage error."""
    engine = open_database(args)
    if args.message_class is not None:
        names = {*letters.classes_of_letters(engine), *Catalogue(engine).names()}
        if folded(args.message_class) not in map(folded, names):
            hint = did_you_mean_or_list(args.message_class, names)
            args.usage_error(f"--class {args.message_class}: no dead letter has this class; {hint}")
    return engine


def _pages(outcomes: Iterable[Replayed]) -> Iterator[list[Replayed]]:
    """The outcomes in pages; the last one also if an error follows."""
    page: list[Replayed] = []
    try:
        for outcome in outcomes:
            page.append(outcome)
            if len(page) == letters.PAGE:
                yield page
                page = []
    except Exception:
        if page:
            yield page
        raise
    if page:
        yield page


def _replayed(engine: Engine, ids: Sequence[int], config: ConsumerConfig) -> Iterator[Replayed]:
    policy = usable_policy(config.policy_file)
    authority = Authority(policy, timedelta(days=config.signature_age_days)) if policy else None
    progress = Progress("replayed", total=len(ids), unit="dead letters")
    try:
        outcomes = replay_dead_letters(
            engine, ids, lambda: datetime.now(UTC), config.limits(), authority
        )
        for number, outcome in enumerate(outcomes, 1):
            progress.show(number)
            yield outcome
    finally:
        progress.end()
    fold_all(engine)


def _exit_code(outcomes: Sequence[Replayed]) -> int:
    return OK if all(outcome.all_loaded for outcome in outcomes) else BAD_DATA


def _reason(text: str) -> str:
    known = sorted({**schema_reasons.REASONS, **batch.REASONS})
    if text in known:
        return text
    near = did_you_mean(text, known)
    hint = f" ({near})" if near else ""
    message = f"{text!r} is not a reason{hint}; the reasons are {', '.join(known)}"
    raise argparse.ArgumentTypeError(message)


def _header(text: str) -> tuple[str, str | None]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, not {text!r}")
    return name, value or None


def letter_tables(pages: Iterable[Sequence[DeadLetter]], states: bool) -> Iterator[list[str]]:
    """The lines of each page of a table, with a line per letter; `states`: it has their states."""

    def row(letter: DeadLetter) -> tuple[object, ...]:
        origin = Origin(letter.claimed_host or "", "", letter.claimed_user or "")
        return (
            letter.dead_letter_id,
            format_time(letter.received_at),
            letter.message_class,
            letter.reason,
            *[letter.state] * states,
            sender_name(letter.publisher or "", origin),
            str(Sender(letter.broker or "", letter.login or "")),
            _first_line(letter.error),
        )

    columns = ["id", "time", "class", "reason", *["state"] * states, "sender", "broker", "error"]
    return _tables(columns, (map(row, page) for page in pages))


def outcome_tables(pages: Iterable[Sequence[Replayed]]) -> Iterator[list[str]]:
    """The lines of each page of a table, with a line per replayed letter."""

    def row(outcome: Replayed) -> tuple[object, ...]:
        reason, error = "", ""
        if outcome.outcome == FAILED:
            reason, error = outcome.reason, _first_line(outcome.error)
        elif outcome.outcome == REPLACED:
            ids = ", ".join(map(str, outcome.dead_letters))
            error = f"its bad records are dead letters now: {ids}"
        elif outcome.outcome != LOADED:
            reason = f"already {outcome.state}"
        return outcome.dead_letter_id, outcome.outcome, reason, error

    return _tables(("id", "outcome", "reason", "error"), (map(row, page) for page in pages))


def _tables(
    columns: Sequence[str], pages: Iterable[Iterable[Sequence[object]]]
) -> Iterator[list[str]]:
    """The lines of one table that is too long to be in memory; only the first page has titles."""
    is_first = True
    for page in pages:
        yield text_table(columns, page)[0 if is_first else 2 :]
        is_first = False
    if is_first:
        yield [NONE]


def letter_lines(content: DeadLetterContent, everything: bool) -> list[str]:
    """Facts, headers and body, of which long ones are cut unless `everything` is wanted.

    Bytes that are not UTF-8 are escaped.
    """
    facts = asdict(content.letter) | {"edited_as": content.edited_as}
    for name in ("received_at", "changed_at"):
        facts[name] = format_time(facts[name])
    lines: list[str] = []
    for name, value in facts.items():
        if value is not None:
            first, *more = str(value).split("\n") if name == "error" else [str(value)]
            lines += [f"{name}: {first}", *(f"  {line}" for line in more)]
    headers = [f"{key}: {content.headers[key]}" for key in sorted(content.headers)]
    if not everything:
        headers = [
            f"{header[:SHOWN_HEADER]} ({hidden} more characters)" if hidden > 0 else header
            for header in headers[:SHOWN_HEADERS]
            for hidden in [len(header) - SHOWN_HEADER]
        ]
        if hidden := len(content.headers) - len(headers):
            headers.append(f"({plural(hidden, 'more header')}; --all prints everything)")
    shown = content.body if everything else content.body[:SHOWN_BODY_BYTES]
    hidden = len(content.body) - len(shown)
    body = shown.decode(errors="backslashreplace").rstrip("\n").split("\n")
    if hidden:
        body += ["", f"({hidden} more bytes; --all prints everything)"]
    return [*lines, "", *headers, "", *body]


def letter_document(content: DeadLetterContent) -> dict[str, object]:
    """The letter for JSON; a body that is not UTF-8 is added in base64."""
    result = asdict(content.letter)
    result |= {"edited_as": content.edited_as, "headers": dict(content.headers)}
    result["body"] = content.body.decode(errors="replace")
    if result["body"].encode() != content.body:
        result["body_base64"] = base64.b64encode(content.body).decode()
    return result


def _first_line(error: str) -> str:
    """The beginning of an error that may list the records of its message."""
    return error.partition("\n")[0][:LONGEST_ERROR]


@contextmanager
def edited_by_hand(body: bytes, editor: Sequence[str], suffix: str) -> Iterator[bytes]:
    """The edited body; if the block fails, it is kept in a file whose name is logged.

    Raises:
        EditorFailed: the editor was not found, or failed.
    """
    handle, name = tempfile.mkstemp(suffix, "sam-dead-letter-")  # with mode 0600
    os.close(handle)
    file = Path(name)
    edited = body
    try:
        file.write_bytes(body)
        try:
            code = subprocess.run([*editor, name]).returncode
        except OSError as error:
            raise EditorFailed(f"editor {editor[0]}: {error.strerror}; nothing changed") from error
        if code:
            raise EditorFailed(f"editor {editor[0]} failed with status {code}; nothing changed")
        edited = file.read_bytes()
        yield edited
    except BaseException:
        if edited == body:
            file.unlink()
        else:
            logger.error("your text is in %s (use it with: edit ID --body FILE)", file)
        raise
    file.unlink()
