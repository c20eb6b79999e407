"""Dead letters: records that could not be loaded, kept whole to be read, and loaded after all."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, Engine, RowMapping, text

from schema.message import CLASS, COUNT, MESSAGE_ID, Message
from schema.normalise import Limits
from sql.batch import WHOLE, Batch, Failure, read_batch
from sql.catalogue import Catalogue
from sql.engine import reading
from sql.errors import NoSuchDeadLetter
from sql.insert import insert_batch
from sql.transaction import load_transaction

OPEN, REPLAYED = "open", "replayed"

LONGEST_ID = 255
"""A longer message id, from whomever, is replaced by its hash: it must fit into an index."""

_FACTS = """
    dead_letter_id, message_id, record_number, message_class, reason, error, received_at, state,
    changed_at
"""
_INSERT = text("""
    INSERT INTO dead_letter (
        message_id, record_number, message_class, reason, error, headers, body,
        received_at, changed_at
    )
    VALUES (
        :message_id, :record_number, :message_class, :reason, :error, :headers, :body, :now, :now
    )
    ON CONFLICT (message_id, record_number) DO NOTHING
""")
_LIST = text(f"""
    SELECT {_FACTS} FROM dead_letter
    WHERE (:any_state OR state = 'open')
        AND (CAST(:reason AS text) IS NULL OR reason = :reason)
        AND (CAST(:class AS text) IS NULL OR lower(message_class) = lower(:class))
    ORDER BY dead_letter_id
""")
_COUNT_OPEN = text("""
    SELECT reason, count(*) AS count FROM dead_letter WHERE state = 'open' GROUP BY reason
""")
_SHOW = text(f"SELECT {_FACTS}, headers, body FROM dead_letter WHERE dead_letter_id = :id")
_UPDATE = text("""
    UPDATE dead_letter SET state = :state, reason = :reason, error = :error, changed_at = :now
    WHERE dead_letter_id = :id
""")


@dataclass(frozen=True)
class DeadLetter:
    """A record that could not be loaded; record 0 is the whole message."""

    dead_letter_id: int
    message_id: str
    record_number: int
    message_class: str
    reason: str
    error: str
    received_at: datetime
    state: str
    changed_at: datetime


@dataclass(frozen=True)
class DeadLetterContent:
    """The bytes that could not be loaded, and the headers of the message they came in."""

    letter: DeadLetter
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Replayed:
    """What became of a dead letter: `state` replayed, or still open for `reason`."""

    dead_letter_id: int
    state: str
    reason: str
    error: str
    new_dead_letters: int = 0


def keep(connection: Connection, failures: Sequence[Failure], now: datetime) -> dict[str, int]:
    """Write dead letters in the caller's transaction; how many are new, by reason."""
    kept: Counter[str] = Counter()
    # In one order: loaders that keep each other's messages wait, and do not deadlock.
    for failure in sorted(failures, key=lambda one: (one.message.message_id, one.number)):
        values = {**_values(failure), "now": _stored_time(connection, now)}
        kept[failure.reason] += connection.execute(_INSERT, values).rowcount
    return {reason: count for reason, count in kept.items() if count}


def list_dead_letters(
    engine: Engine,
    *,
    reason: str | None = None,
    message_class: str | None = None,
    any_state: bool = False,
) -> list[DeadLetter]:
    """The open ones (or those in any state), oldest first."""
    wanted = {"reason": reason, "class": message_class, "any_state": any_state}
    with reading(engine) as connection:
        return [_letter(row) for row in connection.execute(_LIST, wanted).mappings()]


def count_open(engine: Engine) -> dict[str, int]:
    """How many wait for somebody, by reason."""
    with reading(engine) as connection:
        return {row["reason"]: row["count"] for row in connection.execute(_COUNT_OPEN).mappings()}


def show_dead_letter(engine: Engine, dead_letter_id: int) -> DeadLetterContent:
    """One with its bytes.

    Raises:
        NoSuchDeadLetter
    """
    with reading(engine) as connection:
        return _content(connection, dead_letter_id)


def replay_dead_letter(
    engine: Engine,
    catalogue: Catalogue,
    dead_letter_id: int,
    now: datetime,
    limits: Limits = Limits(),  # noqa: B008 - a frozen value
) -> Replayed:
    """Load it as it would be loaded now; one that fails again stays open, with the new reason.

    Of a whole message some records may fail: they become dead letters of their own, and the
    message counts as replayed.

    Raises:
        NoSuchDeadLetter
    """
    content = show_dead_letter(engine, dead_letter_id)
    letter = content.letter
    if letter.state != OPEN:
        return Replayed(dead_letter_id, letter.state, letter.reason, letter.error)
    catalogue.forget()  # the view may have been mended since
    batch = read_batch(catalogue, [_message(content)], now, limits)
    return load_transaction(engine, lambda connection: _replay(connection, letter, batch, now))


def _replay(connection: Connection, letter: DeadLetter, batch: Batch, now: datetime) -> Replayed:
    failures = insert_batch(connection, batch).failures
    new: Mapping[str, int] = {}
    if letter.record_number == WHOLE:
        new = keep(connection, [one for one in failures if one.number != WHOLE], now)
        failures = [one for one in failures if one.number == WHOLE]
    outcome = _outcome(letter, failures, sum(new.values()))
    _record(connection, outcome, now)
    return outcome


def _outcome(letter: DeadLetter, failures: Sequence[Failure], new: int) -> Replayed:
    if failures:
        first = failures[0]
        error = _printable(first.text)
        return Replayed(letter.dead_letter_id, OPEN, first.reason, error)
    return Replayed(letter.dead_letter_id, REPLAYED, letter.reason, letter.error, new)


def _record(connection: Connection, outcome: Replayed, now: datetime) -> None:
    values = {
        "id": outcome.dead_letter_id,
        "state": outcome.state,
        "reason": outcome.reason,
        "error": outcome.error,
        "now": _stored_time(connection, now),
    }
    connection.execute(_UPDATE, values)


def _message(content: DeadLetterContent) -> Message:
    """The message to load: a single record is not the `recordCount` of its message."""
    letter = content.letter
    headers = {**content.headers, MESSAGE_ID: letter.message_id}
    if letter.message_class:
        headers.setdefault(CLASS, letter.message_class)
    if letter.record_number != WHOLE:
        headers.pop(COUNT, None)
    return Message(headers, content.body)


def _content(connection: Connection, dead_letter_id: int) -> DeadLetterContent:
    row = connection.execute(_SHOW, {"id": dead_letter_id}).mappings().one_or_none()
    if row is None:
        raise NoSuchDeadLetter(dead_letter_id)
    return DeadLetterContent(_letter(row), json.loads(row["headers"]), bytes(row["body"]))


def _letter(row: RowMapping) -> DeadLetter:
    facts = {name: row[name] for name in DeadLetter.__dataclass_fields__}
    for name in ("received_at", "changed_at"):
        facts[name] = _time(facts[name])
    return DeadLetter(**facts)


def _values(failure: Failure) -> dict[str, object]:
    message = failure.message
    return {
        "message_id": _printable(_short(message.message_id)),
        "record_number": failure.number,
        "message_class": _printable(message.message_class or ""),
        "reason": failure.reason,
        "error": _printable(failure.text),
        "headers": json.dumps(dict(message.headers)),
        "body": failure.body,
    }


def _short(message_id: str) -> str:
    if len(message_id) <= LONGEST_ID:
        return message_id
    return f"sha256:{hashlib.sha256(message_id.encode('utf-8', 'replace')).hexdigest()}"


def _printable(value: str) -> str:
    """What any database stores as text: a dead letter must never be one itself."""
    return value.encode("utf-8", "backslashreplace").decode().replace("\0", r"\x00")


def _stored_time(connection: Connection, moment: datetime) -> datetime | int:
    return int(moment.timestamp()) if connection.dialect.name == "sqlite" else moment


def _time(stored: datetime | int) -> datetime:
    if isinstance(stored, int):
        return datetime.fromtimestamp(stored, UTC)
    return stored.astimezone(UTC)
