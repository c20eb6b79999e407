"""Dead letters as tables, text and JSON."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from sam_pipeline.schema.identity.identity import sender_name
from sam_pipeline.schema.messages.message import Origin
from sam_pipeline.schema.program.command import text_table
from sam_pipeline.schema.program.wording import plural
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.loading.letters.dead_letter import (
    CLAIMED,
    DeadLetter,
    DeadLetterContent,
    LetterGroup,
)
from sam_pipeline.sql.loading.letters.quota import Sender
from sam_pipeline.sql.loading.replay import FAILED, LOADED, REPLACED, Replayed

LONGEST_ERROR = 200
"""Characters of an error in a list."""
SHOWN_BYTES = 16 * 1024
"""Bytes of a body that are shown as text."""
SHOWN_HEADERS, SHOWN_HEADER = 100, 500
"""Headers that are shown, and the characters of one."""


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


def group_table(groups: Iterable[LetterGroup], by: str) -> list[str]:
    """A line per sender, reason or class."""

    def name(group: LetterGroup) -> str:
        return f"{group.name} (claimed)" if group.known_by == CLAIMED else group.name

    rows = [
        (
            group.letters,
            name(group) or f"no {by}",
            format_time(group.first_received_at),
            format_time(group.last_received_at),
            group.example_id,
        )
        for group in groups
    ]
    return text_table(("letters", by, "first", "last", "example"), rows)


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
        yield text_table(columns, ())


def letter_lines(content: DeadLetterContent, everything: bool = False) -> list[str]:
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
        headers = [*map(_cut, headers[:SHOWN_HEADERS])]
        if hidden := len(content.headers) - len(headers):
            headers.append(f"({plural(hidden, 'more header')}; --all prints everything)")
    shown = content.body if everything else content.body[:SHOWN_BYTES]
    hidden = len(content.body) - len(shown)
    body = shown.decode(errors="backslashreplace").rstrip("\n").split("\n")
    if hidden:
        body += ["", f"({hidden} more bytes; --all prints everything)"]
    return [*lines, "", *headers, "", *body]


def document(content: DeadLetterContent) -> dict[str, object]:
    """The letter for JSON; a body that is not UTF-8 is added in base64."""
    result = asdict(content.letter)
    result |= {"edited_as": content.edited_as, "headers": dict(content.headers)}
    result["body"] = content.body.decode(errors="replace")
    if result["body"].encode() != content.body:
        result["body_base64"] = base64.b64encode(content.body).decode()
    return result


def _cut(header: str) -> str:
    hidden = len(header) - SHOWN_HEADER
    return f"{header[:SHOWN_HEADER]} ({hidden} more characters)" if hidden > 0 else header


def _first_line(error: str) -> str:
    """The beginning of an error that may list the records of its message."""
    return error.partition("\n")[0][:LONGEST_ERROR]
