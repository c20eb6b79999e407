"""Dead letters as tables, texts and documents; what others sent never reaches a terminal raw."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import asdict

from sam_pipeline.schema.program.command import text_table
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.loading.dead_letter import OPEN, DeadLetter, DeadLetterContent
from sam_pipeline.sql.loading.replay import FAILED, LOADED, Replayed


def letter_table(letters: Sequence[DeadLetter]) -> str:
    """The state is told where there are others than open ones."""
    columns = ["id", "time", "class", "reason", "error"]
    states = any(letter.state != OPEN for letter in letters)
    if states:
        columns.insert(4, "state")
    return text_table(columns, (_line(letter, states) for letter in letters))


def outcome_table(outcomes: Iterable[Replayed]) -> str:
    return text_table(("id", "outcome", "reason", "error"), map(_outcome, outcomes))


def letter_text(content: DeadLetterContent) -> str:
    """Facts, headers and body; bytes that no terminal shows are escaped."""
    facts = asdict(content.letter) | {"edited_as": content.edited_as}
    for name in ("received_at", "changed_at"):
        facts[name] = format_time(facts[name])
    known = {name: value for name, value in facts.items() if value is not None}
    lines = [_plain(f"{name}: {value}") for name, value in known.items()]
    lines += ["", *(_plain(f"{key}: {content.headers[key]}") for key in sorted(content.headers))]
    body = content.body.decode(errors="backslashreplace").rstrip("\n")
    return "\n".join([*lines, "", *map(_plain, body.split("\n"))])


def documents(found: Iterable[DeadLetter | DeadLetterContent]) -> list[dict[str, object]]:
    """For JSON; a body that is no UTF-8 is there in base64, too."""
    return [asdict(one) if isinstance(one, DeadLetter) else _document(one) for one in found]


def _document(content: DeadLetterContent) -> dict[str, object]:
    document = asdict(content.letter) | {"edited_as": content.edited_as}
    document |= {"headers": dict(content.headers)}
    try:
        document["body"] = content.body.decode()
    except UnicodeDecodeError:
        document["body"] = content.body.decode(errors="replace")
        document["body_base64"] = base64.b64encode(content.body).decode()
    return document


def _line(letter: DeadLetter, states: bool) -> list[object]:
    cells: list[object] = [letter.dead_letter_id, format_time(letter.received_at)]
    cells += [_plain(letter.message_class), _plain(letter.reason)]
    if states:
        cells.append(letter.state)
    return [*cells, _plain(letter.error)]


def _outcome(one: Replayed) -> tuple[object, ...]:
    if one.outcome == FAILED:
        return one.dead_letter_id, one.outcome, _plain(one.reason), _plain(one.error)
    if one.outcome == LOADED:
        new = f"{one.new_dead_letters} bad records are new dead letters"
        return one.dead_letter_id, one.outcome, "", new if one.new_dead_letters else ""
    return one.dead_letter_id, one.outcome, f"was {one.state} before", ""


def _plain(text: str) -> str:
    """In one line, without what moves a terminal's cursor."""
    return "".join(
        letter if letter.isprintable() or letter == "\t" else repr(letter)[1:-1] for letter in text
    )
