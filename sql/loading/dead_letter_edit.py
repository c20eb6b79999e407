"""Editing a dead letter: a new one, whose key extends that of the old one, takes its place.

The old one stays as it is, and is dropped. So a loader needs no right to change bytes or headers,
and nothing that anybody sent is ever lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Engine, text

from sam_pipeline.schema.messages.message import CLASS, COUNT, Message
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.errors import EditRefused
from sam_pipeline.sql.loading.dead_letter import (
    COLUMNS,
    OPEN,
    VALUES,
    DeadLetterContent,
    edition_id,
    lock_dead_letters,
    printable,
    stored_time,
    the_only,
)

_DROP = text("""
    UPDATE dead_letter SET state = 'dropped', changed_at = :now WHERE dead_letter_id = :id
""")
_INSERT = text(f"INSERT INTO dead_letter ({COLUMNS}) VALUES ({VALUES}) RETURNING dead_letter_id")


def edit_dead_letter(
    engine: Engine,
    dead_letter_id: int,
    now: datetime,
    body: bytes | None = None,
    headers: Mapping[str, str | None] | None = None,
) -> int:
    """Replace an open letter by one with another body, other headers, or both; its number.

    Without a class in `headers` it stays in its class; None removes a header. The `recordCount` of
    the old body does not apply to a new one.

    Raises:
        NoSuchDeadLetter
        EditRefused: it is not open, or nothing would change.
    """
    with writing(engine) as connection:
        locked = lock_dead_letters(connection, [dead_letter_id])
        old = the_only(connection, dead_letter_id, locked)
        refuse_settled(old)
        merged = {**old.headers, **(headers or {})}
        if body not in (None, old.body) and COUNT not in (headers or {}):
            merged.pop(COUNT, None)
        left = {name: value for name, value in merged.items() if value is not None}
        new = Message(left, old.body if body is None else body)
        if (new.headers, new.body) == (old.headers, old.body):
            raise EditRefused(f"dead letter {dead_letter_id}: nothing changed, it stays as it is")
        moment = stored_time(connection, now)
        connection.execute(_DROP, {"id": dead_letter_id, "now": moment})
        values = {
            "message_id": edition_id(old.letter),
            "record_number": old.letter.record_number,
            "message_class": printable(new.headers.get(CLASS) or old.letter.message_class),
            "reason": old.letter.reason,  # nobody has tried to load the new one yet
            "error": old.letter.error,
            "headers": json.dumps(dict(new.headers)),
            "body": new.body,
            "received_at": stored_time(connection, old.letter.received_at),
            "now": moment,
        }
        return int(connection.execute(_INSERT, values).scalar_one())


def refuse_settled(content: DeadLetterContent) -> None:
    """Raise EditRefused unless the letter is open."""
    letter, edition = content.letter, content.edited_as
    if letter.state == OPEN:
        return
    state = f"was edited: it is dead letter {edition} now" if edition else f"is {letter.state}"
    raise EditRefused(f"dead letter {letter.dead_letter_id} {state}; only open ones can be edited")
