"""Editing a dead letter: a new letter, whose key extends that of the old one, replaces it.

The old letter is dropped but keeps its bytes. So a loader needs no right to change bytes or
headers, and no data that was sent is ever lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import Engine, text

from sam_pipeline.schema.identity.identity import (
    IDENTITY,
    identity_of,
    operator_identity,
    with_identity,
)
from sam_pipeline.schema.login import login_name
from sam_pipeline.schema.messages.message import CLASS, COUNT, Message
from sam_pipeline.schema.messages.refused import MARKS, REFUSED, TOO_LARGE
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.errors import EditRefused
from sam_pipeline.sql.loading.batch import FLOOD
from sam_pipeline.sql.loading.letters.dead_letter import (
    OPEN,
    SUMMARY_ONLY,
    DeadLetterContent,
    edition_id,
    lock_dead_letters,
    single_letter,
    storable,
    stored_time,
)
from sam_pipeline.sql.loading.letters.store import digest_of, insert_letter
from sam_pipeline.sql.operations.record import record_operation

_DROP = text("""
    UPDATE dead_letter SET state = 'dropped', changed_at = :now WHERE dead_letter_id = :id
""")


def edit_dead_letter(
    engine: Engine,
    dead_letter_id: int,
    now: datetime,
    body: bytes | None = None,
    headers: Mapping[str, str | None] | None = None,
) -> int:
    """Replace an open letter by one with a new body, new headers, or both; returns the new id.

    In `headers`, None removes a header; without a class in them the letter keeps its class. The
    `recordCount` of the old body is removed when the body changes. The marks of a message that a
    source refused are removed, unless only the beginning of its body is known. The identity of the
    new letter is that of the operator who edits, whoever sent the old one.

    Raises:
        NoSuchDeadLetter
        EditRefused: the letter is not open or a summary, nothing would change, or the identity.
    """
    if IDENTITY in (headers or {}):
        text = f"dead letter {dead_letter_id}: {IDENTITY} can't be set: it names who edits"
        raise EditRefused(text)
    with writing(engine) as connection:
        locked = lock_dead_letters(connection, [dead_letter_id])
        old = single_letter(connection, dead_letter_id, locked)
        refuse_settled(old)
        changes = headers or {}
        merged = {**old.headers, **changes}
        is_new_body = body not in (None, old.body)
        if is_new_body and COUNT not in changes:
            merged.pop(COUNT, None)
        # The body of a large message is not whole, so it is not loaded as it is.
        if is_new_body or old.headers.get(REFUSED) != TOO_LARGE:
            merged = {k: value for k, value in merged.items() if k in changes or k not in MARKS}
        new_headers = {name: value for name, value in merged.items() if value is not None}
        new = Message(new_headers, old.body if body is None else body)
        if (new.headers, new.body) == (old.headers, old.body):
            raise EditRefused(f"dead letter {dead_letter_id}: nothing changed")
        new = with_identity(new, operator_identity(login_name()))
        moment = stored_time(connection, now)
        connection.execute(_DROP, {"id": dead_letter_id, "now": moment})
        values = {
            "message_id": edition_id(old.letter),
            "record_number": old.letter.record_number,
            "body_digest": digest_of(new.body, new.headers),
            "message_class": storable(new.headers.get(CLASS) or old.letter.message_class),
            "reason": old.letter.reason,  # until someone tries to load the new one
            "error": old.letter.error,
            "broker": old.letter.broker,
            "login": old.letter.login,
            "claimed_host": old.letter.claimed_host,
            "claimed_program": old.letter.claimed_program,
            "claimed_user": old.letter.claimed_user,
            "publisher": storable(identity_of(new)),
            "headers": json.dumps(dict(new.headers)),
            "body": new.body,
            "received_at": stored_time(connection, old.letter.received_at),
            "changed_at": moment,
        }
        edited = insert_letter(connection, values)
        arguments = {"id": str(dead_letter_id), "edited_as": str(edited)}
        record_operation(connection, "dead-letter edit", arguments)
    return edited


def refuse_settled(content: DeadLetterContent) -> None:
    """Raise EditRefused unless the letter is open and has a message or a record."""
    letter, edition = content.letter, content.edited_as
    if letter.reason == FLOOD:
        raise EditRefused(f"dead letter {letter.dead_letter_id} {SUMMARY_ONLY}")
    if letter.state == OPEN:
        return
    state = f"was replaced by dead letter {edition}" if edition else f"is {letter.state}"
    raise EditRefused(
        f"dead letter {letter.dead_letter_id} {state}; only open letters can be edited"
    )
