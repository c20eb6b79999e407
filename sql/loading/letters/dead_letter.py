"""Dead letters: records that could not be loaded, stored in full to be read, edited and replayed.

The bytes and headers of a letter never change. Editing creates a new letter and drops the old one.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import BindParameter, Connection, CursorResult, Engine, RowMapping, bindparam, text

from sam_pipeline.schema.identity.identity import ANONYMOUS
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.database.operations import record_operation
from sam_pipeline.sql.errors import NoSuchDeadLetter

OPEN, REPLAYED, DROPPED = "open", "replayed", "dropped"

EDITED = "#edited-"
"""Separates the message id of an edited letter from the number of the letter it replaces.

So the key in the table is unique, and the table needs no column for the replaced letter.
"""

SUMMARY_ONLY = "only counts letters that were not stored: it can be dropped, not edited or replayed"
"""Why a summary of the letters beyond a limit is not like other letters."""

NO_LIMIT = 2**63 - 1
PAGE = 500
"""Letters that are read at a time."""

_NEVER = datetime(9999, 1, 1, tzinfo=UTC)
EDITION = re.compile(rf"(.*){EDITED}(\d{{1,19}})", re.ASCII | re.DOTALL)

_LETTER = """
    dead_letter_id, message_id, record_number, message_class, reason, error, broker, login,
    (SELECT p.identity FROM publisher AS p WHERE p.publisher_id = dead_letter.publisher_id)
        AS publisher,
    claimed_host, claimed_program, claimed_user, body_bytes, received_at, state, changed_at
"""
SELECTED = """
    (CAST(:state AS text) IS NULL OR state = :state)
    AND (:any_id OR dead_letter_id IN :ids)
    AND (CAST(:reason AS text) IS NULL OR reason = :reason)
    AND (CAST(:class AS text) IS NULL OR lower(message_class) = lower(:class))
    AND received_at < :before
"""
IDS: BindParameter[int] = bindparam("ids", expanding=True)
_DROP = f"""
    UPDATE dead_letter SET state = 'dropped', changed_at = :now WHERE state = 'open' AND {SELECTED}
"""
_RESTORE = text("""
    UPDATE dead_letter SET state = 'open', changed_at = :now
    WHERE dead_letter_id IN :ids AND state = 'dropped'
""").bindparams(IDS)
_CONTENT = f"""
    SELECT {_LETTER}, headers, body, compressed FROM dead_letter WHERE dead_letter_id IN :ids
    ORDER BY dead_letter_id
"""
_SHOW = text(_CONTENT).bindparams(IDS)
_LOCK = {
    # SQLite has one writer at a time: the whole database is locked since the transaction began.
    ("sqlite", False): _SHOW,
    ("sqlite", True): _SHOW,
    ("postgresql", False): text(f"{_CONTENT} FOR UPDATE").bindparams(IDS),
    ("postgresql", True): text(f"{_CONTENT} FOR UPDATE SKIP LOCKED").bindparams(IDS),
}
_EDITION_OF = text("""
    SELECT dead_letter_id FROM dead_letter
    WHERE message_id = :message_id AND record_number = :record_number
""")
_BY_REASON = text("""
    SELECT reason, count(*) AS letters FROM dead_letter WHERE state = 'open'
    GROUP BY reason ORDER BY reason
""")

COMPRESSED_FROM = 1024
"""A shorter body is stored as it is: its row has as many bytes of other columns."""

ESTABLISHED, CLAIMED, LOGIN, SOURCE = "established", "claimed", "login", "source"
"""What names a sender: its identity, its headers, the login that the broker names, the broker."""

_IDENTIFIED = f"identity <> '{ANONYMOUS}'"
_CLAIMS = "coalesce(claimed_user, claimed_host) IS NOT NULL"
_GROUPS = {
    "sender": (
        f"""
        CASE
            WHEN {_IDENTIFIED} THEN '{ESTABLISHED}'
            WHEN {_CLAIMS} THEN '{CLAIMED}'
            WHEN login IS NOT NULL THEN '{LOGIN}'
            ELSE '{SOURCE}'
        END
        """,
        f"""
        CASE
            WHEN {_IDENTIFIED} THEN identity
            WHEN {_CLAIMS} THEN coalesce(claimed_user, '?') || '@' || coalesce(claimed_host, '?')
            WHEN login IS NOT NULL THEN login || ' at ' || coalesce(broker, '?')
            ELSE coalesce(broker, '')
        END
        """,
    ),
    "reason": ("''", "reason"),
    "class": ("''", "message_class"),
}
BY = tuple(_GROUPS)


@dataclass(frozen=True)
class DeadLetter:
    """A record that could not be loaded; record 0 is the whole message.

    `broker` (or a spool, or a file) delivered it, and named `login` as its sender; None: unknown.
    `publisher` is the identity of the sender; None for a summary of several letters. The `claimed_`
    values are those of the sender, which nothing has verified. `edited_from` is the letter that
    this one replaces.
    """

    dead_letter_id: int
    message_id: str
    record_number: int
    message_class: str
    reason: str
    error: str
    broker: str | None
    login: str | None
    publisher: str | None
    claimed_host: str | None
    claimed_program: str | None
    claimed_user: str | None
    body_bytes: int
    received_at: datetime
    state: str
    changed_at: datetime
    edited_from: int | None = None


@dataclass(frozen=True)
class DeadLetterContent:
    """The bytes that could not be loaded, and the headers of the message they came in.

    `edited_as` is the letter that replaced this one.
    """

    letter: DeadLetter
    headers: Mapping[str, str]
    body: bytes
    edited_as: int | None = None


@dataclass(frozen=True)
class LetterFilter:
    """Selects the letters in a state (None: any); the other fields narrow the selection."""

    ids: Sequence[int] | None = None
    reason: str | None = None
    message_class: str | None = None
    received_before: datetime | None = None
    state: str | None = OPEN


ALL_OPEN = LetterFilter()


def dead_letter_pages(
    engine: Engine, selected: LetterFilter, after: int = 0, limit: int = NO_LIMIT
) -> Iterator[list[DeadLetter]]:
    """The first `limit` letters that match and have an id above `after`, in pages, oldest first.

    Each page is read when it is needed, so any number of letters takes the memory of one page.
    """
    query = f"""
        SELECT {_LETTER} FROM dead_letter WHERE dead_letter_id > :after AND {SELECTED}
        ORDER BY dead_letter_id LIMIT :limit
    """
    while limit > 0:
        with reading(engine) as connection:
            found = _rows(connection, query, selected, after=after, limit=min(limit, PAGE))
            page = [_letter(row) for row in found.mappings()]
        if page:
            yield page
        if len(page) < PAGE:
            return
        after, limit = page[-1].dead_letter_id, limit - len(page)


def letters_where(
    connection: Connection, condition: str, values: Mapping[str, object]
) -> list[DeadLetter]:
    """The letters that satisfy a condition of ours, oldest first, at most a page of them."""
    statement = f"""
        SELECT {_LETTER} FROM dead_letter WHERE {condition} ORDER BY dead_letter_id LIMIT {PAGE}
    """
    return [_letter(row) for row in connection.execute(text(statement), values).mappings()]


def before_newest(engine: Engine, selected: LetterFilter, limit: int) -> int:
    """The id of the letter before the newest `limit` that match; 0 if fewer match."""
    query = f"""
        SELECT dead_letter_id FROM dead_letter WHERE {SELECTED}
        ORDER BY dead_letter_id DESC LIMIT 1 OFFSET :limit
    """
    with reading(engine) as connection:
        return _rows(connection, query, selected, limit=limit).scalar() or 0


def number_of_dead_letters(engine: Engine, selected: LetterFilter) -> int:
    """How many letters match."""
    query = f"SELECT count(*) FROM dead_letter WHERE {SELECTED}"
    with reading(engine) as connection:
        return int(_rows(connection, query, selected).scalar_one())


def dead_letter_ids(engine: Engine, selected: LetterFilter = ALL_OPEN) -> list[int]:
    """The ids of the letters that match, oldest first.

    Raises:
        NoSuchDeadLetter: in any state, one of the ids does not exist.
    """
    query = f"SELECT dead_letter_id FROM dead_letter WHERE {SELECTED} ORDER BY dead_letter_id"
    with reading(engine) as connection:
        numbers = list(_rows(connection, query, selected).scalars())
    missing = {*(selected.ids or ())} - {*numbers}
    if missing and selected.state is None:
        raise NoSuchDeadLetter(min(missing))
    return numbers


def show_dead_letter(engine: Engine, dead_letter_id: int) -> DeadLetterContent:
    """One letter with its bytes; raises NoSuchDeadLetter."""
    with reading(engine) as connection:
        rows = connection.execute(_SHOW, {"ids": [dead_letter_id]}).mappings().all()
        return single_letter(connection, dead_letter_id, [_content(row) for row in rows])


def open_by_reason(engine: Engine) -> dict[str, int]:
    """The number of open letters by reason."""
    with reading(engine) as connection:
        return {row.reason: row.letters for row in connection.execute(_BY_REASON)}


def drop_dead_letters(engine: Engine, selected: LetterFilter, now: datetime) -> int:
    """Mark the open letters that match as dropped; returns their number."""
    with writing(engine) as connection:
        moment = stored_time(connection, now)
        dropped = _rows(connection, _DROP, selected, now=moment).rowcount
        _record(connection, "dead-letter drop", selected, dropped)
    return dropped


def restore_dead_letters(engine: Engine, selected: LetterFilter, now: datetime) -> int:
    """Open the dropped letters that match; returns their number.

    A letter that was replaced by an edited one stays dropped.
    """
    restored = 0
    with writing(engine) as connection:
        query = f"""
            SELECT dead_letter_id, message_id, record_number FROM dead_letter
            WHERE state = 'dropped' AND {SELECTED} ORDER BY dead_letter_id
        """
        for row in _rows(connection, query, selected).all():
            key = {
                "message_id": edition_id(row.message_id, row.dead_letter_id),
                "record_number": row.record_number,
            }
            if connection.execute(_EDITION_OF, key).scalar() is None:
                bound = {"ids": [row.dead_letter_id], "now": stored_time(connection, now)}
                restored += connection.execute(_RESTORE, bound).rowcount
        _record(connection, "dead-letter restore", selected, restored)
    return restored


def _record(connection: Connection, command: str, selected: LetterFilter, changed: int) -> None:
    """Record an operation with the selection, and the number of letters that it changed."""
    if changed:
        given = {
            "ids": ", ".join(map(str, selected.ids or ())),
            "reason": selected.reason,
            "class": selected.message_class,
            "received_before": selected.received_before and format_time(selected.received_before),
            "letters": str(changed),
        }
        arguments = {name: value for name, value in given.items() if value}
        record_operation(connection, command, arguments)


def classes_of_letters(engine: Engine) -> list[str]:
    """The classes of all letters, as their senders wrote them."""
    with reading(engine) as connection:
        query = "SELECT DISTINCT message_class FROM dead_letter ORDER BY message_class"
        return list(connection.execute(text(query)).scalars())


def lock_dead_letters(
    connection: Connection, ids: Sequence[int], skip_locked: bool = False
) -> list[DeadLetterContent]:
    """The existing letters in the order of their ids, locked until the transaction ends.

    `skip_locked`: leave out letters locked by others, instead of waiting for them.
    """
    rows = connection.execute(_LOCK[connection.dialect.name, skip_locked], {"ids": list(ids)})
    return [_content(row) for row in rows.mappings()]


def single_letter(
    connection: Connection, dead_letter_id: int, contents: Sequence[DeadLetterContent]
) -> DeadLetterContent:
    """The only item of `contents`, with the id of the letter that replaced it.

    Raises:
        NoSuchDeadLetter: `contents` is empty.
    """
    if not contents:
        raise NoSuchDeadLetter(dead_letter_id)
    [content] = contents
    letter = content.letter
    if letter.state != DROPPED:
        return content
    message_id = edition_id(letter.message_id, dead_letter_id)
    key = {"message_id": message_id, "record_number": letter.record_number}
    return replace(content, edited_as=connection.execute(_EDITION_OF, key).scalar())


def edition_id(message_id: str, dead_letter_id: int) -> str:
    """The message id, in the table, of the letter that replaces this one."""
    edition = EDITION.fullmatch(message_id)
    return f"{edition[1] if edition else message_id}{EDITED}{dead_letter_id}"


def stored_time(connection: Connection, moment: datetime) -> datetime | int:
    """The moment as a column of the database: SQLite has seconds since the epoch."""
    return int(moment.timestamp()) if connection.dialect.name == "sqlite" else moment


def time_of(stored: datetime | int) -> datetime:
    """The moment in a column of the database."""
    if isinstance(stored, int):
        return datetime.fromtimestamp(stored, UTC)
    return stored.astimezone(UTC)


def storable(value: str) -> str:
    """The text with escapes for characters that a database can't store."""
    return value.encode("utf-8", "backslashreplace").decode().replace("\0", r"\x00")


def _rows(
    connection: Connection, query: str, selected: LetterFilter, **more: object
) -> CursorResult[Any]:
    """Execute a statement with SELECTED."""
    values = {
        "state": selected.state,
        "any_id": selected.ids is None,
        "ids": list(selected.ids or ()),
        "reason": selected.reason,
        "class": selected.message_class,
        "before": stored_time(connection, selected.received_before or _NEVER),
        **more,
    }
    return connection.execute(text(query).bindparams(IDS), values)


def _content(row: RowMapping) -> DeadLetterContent:
    body = original_body(StoredBody(bytes(row["body"]), row["body_bytes"], bool(row["compressed"])))
    return DeadLetterContent(_letter(row), json.loads(row["headers"]), body)


def _letter(row: RowMapping) -> DeadLetter:
    facts = {name: row[name] for name in DeadLetter.__dataclass_fields__ if name != "edited_from"}
    for name in ("received_at", "changed_at"):
        facts[name] = time_of(row[name])
    edition = EDITION.fullmatch(row["message_id"])
    if edition:
        facts |= {"message_id": edition[1], "edited_from": int(edition[2])}
    return DeadLetter(**facts)


class StoredBody(NamedTuple):
    """The columns of a body; `body_bytes` is its size before compression."""

    body: bytes
    body_bytes: int
    compressed: bool


def stored_body(body: bytes) -> StoredBody:
    """The columns for a body; one that compression would not shorten stays as it is."""
    if len(body) >= COMPRESSED_FROM:
        compressed = zlib.compress(body)
        if len(compressed) < len(body):
            return StoredBody(compressed, len(body), True)
    return StoredBody(body, len(body), False)


def original_body(stored: StoredBody) -> bytes:
    """The bytes that were received."""
    if not stored.compressed:
        return stored.body
    # Never more than expected, whatever the table has.
    return zlib.decompressobj().decompress(stored.body, stored.body_bytes)


@dataclass(frozen=True)
class LetterGroup:
    """How many letters have a sender, reason or class in common, and the id of the newest."""

    name: str
    letters: int
    first_received_at: datetime
    last_received_at: datetime
    example_id: int
    known_by: str | None = None
    """For a sender: ESTABLISHED, CLAIMED, LOGIN or SOURCE."""


def count_dead_letters(
    engine: Engine, selected: LetterFilter, by: str, limit: int = NO_LIMIT
) -> list[LetterGroup]:
    """The letters that match, counted `by` one of BY; the largest `limit` groups first."""
    kind, name = _GROUPS[by]
    query = f"""
        SELECT {kind} AS kind, {name} AS name, count(*) AS letters,
            min(received_at) AS first_at, max(received_at) AS last_at, max(dead_letter_id) AS newest
        FROM dead_letter LEFT JOIN publisher AS p USING (publisher_id)
        WHERE {SELECTED}
        GROUP BY 1, 2
        ORDER BY 3 DESC, 2, 1
        LIMIT :limit
    """
    with reading(engine) as connection:
        return [
            LetterGroup(
                row.name,
                row.letters,
                time_of(row.first_at),
                time_of(row.last_at),
                row.newest,
                row.kind or None,
            )
            for row in _rows(connection, query, selected, limit=limit)
        ]
