"""Dead letters as tables, text and JSON."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from sam_pipeline.schema.identity.identity import known_identity
from sam_pipeline.schema.program.command import text_table
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.loading.letters.dead_letter import OPEN, DeadLetter, DeadLetterContent
from sam_pipeline.sql.loading.letters.quota import Sender
from sam_pipeline.sql.loading.replay import FAILED, LOADED, REPLACED, Replayed

LONGEST_ERROR = 200
"""Characters of an error in a list."""
SHOWN_BYTES = 16 * 1024
"""Bytes of a body that are shown as text."""


def letter_table(letters: Sequence[DeadLetter]) -> list[str]:
    """A line per letter; with columns for states and publishers if any needs them."""
    states = any(letter.state != OPEN for letter in letters)
    publishers = any(known_identity(letter.publisher or "") for letter in letters)
    rows = [
        (
            letter.dead_letter_id,
            format_time(letter.received_at),
            letter.message_class,
            letter.reason,
            *([letter.state] if states else []),
            str(Sender(letter.broker or "", letter.login or "")),
            *[known_identity(letter.publisher or "")] * publishers,
            _first_line(letter.error),
        )
        for letter in letters
    ]
    columns = ["id", "time", "class", "reason", *["state"] * states, "sender"]
    return text_table([*columns, *["publisher"] * publishers, "error"], rows)


def outcome_table(outcomes: Iterable[Replayed]) -> list[str]:
    """A line per replayed letter."""
    rows = []
    for outcome in outcomes:
        reason, error = "", ""
        if outcome.outcome == FAILED:
            reason, error = outcome.reason, _first_line(outcome.error)
        elif outcome.outcome == REPLACED:
            ids = ", ".join(map(str, outcome.dead_letters))
            error = f"its bad records are dead letters now: {ids}"
        elif outcome.outcome != LOADED:
            reason = f"already {outcome.state}"
        rows.append((outcome.dead_letter_id, outcome.outcome, reason, error))
    return text_table(("id", "outcome", "reason", "error"), rows)


def letter_lines(content: DeadLetterContent, full: bool = False) -> list[str]:
    """Facts, headers and the body or its beginning; bytes that are not UTF-8 are escaped."""
    facts = asdict(content.letter) | {"edited_as": content.edited_as}
    for name in ("received_at", "changed_at"):
        facts[name] = format_time(facts[name])
    lines: list[str] = []
    for name, value in facts.items():
        if value is not None:
            first, *more = str(value).split("\n") if name == "error" else [str(value)]
            lines += [f"{name}: {first}", *(f"  {line}" for line in more)]
    headers = [f"{key}: {content.headers[key]}" for key in sorted(content.headers)]
    shown = content.body if full else content.body[:SHOWN_BYTES]
    hidden = len(content.body) - len(shown)
    body = shown.decode(errors="backslashreplace").rstrip("\n").split("\n")
    if hidden:
        body += ["", f"({hidden} more bytes; --full prints all)"]
    return [*lines, "", *headers, "", *body]


def documents(letters: Iterable[DeadLetter | DeadLetterContent]) -> list[dict[str, object]]:
    """The letters for JSON; a body that is not UTF-8 is added in base64."""
    result: list[dict[str, object]] = []
    for letter in letters:
        if isinstance(letter, DeadLetter):
            result.append(asdict(letter))
            continue
        document = asdict(letter.letter)
        document |= {"edited_as": letter.edited_as, "headers": dict(letter.headers)}
        document["body"] = letter.body.decode(errors="replace")
        if document["body"].encode() != letter.body:
            document["body_base64"] = base64.b64encode(letter.body).decode()
        result.append(document)
    return result


def _first_line(error: str) -> str:
    """The beginning of an error that may list the records of its message."""
    return error.partition("\n")[0][:LONGEST_ERROR]
