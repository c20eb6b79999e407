"""Dead letters: records that could not be loaded, kept whole to be read, edited and replayed.

Bytes and headers of a letter never change: an edited one is a new letter, the old one is dropped.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sqlalchemy import BindParameter, Connection, Engine, RowMapping, bindparam, text

from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.errors import NoSuchDeadLetter
from sam_pipeline.sql.loading.batch import Failure

OPEN, REPLAYED, DROPPED = "open", "replayed", "dropped"

LONGEST_ID = 255
"""A longer message id, from whomever, is replaced by its hash: it must fit into an index."""

EDITED = "#edited-"
"""In the table, between the message id of an edited letter and the number of the one it
replaces: so its key is its own, and whose edition it is needs no column."""

NO_LIMIT = 2**63 - 1

_NEVER = datetime(9999, 1, 1, tzinfo=UTC)
_EDITION = re.compile(rf"(.*){EDITED}(\d{{1,19}})", re.ASCII | re.DOTALL)

_FACTS = """
    dead_letter_id, message_id, record_number, message_class, reason, error, received_at, state,
    changed_at
"""
# Of a new row.
COLUMNS = """
    message_id, record_number, message_class, reason, error, headers, body, received_at, changed_at
"""
VALUES = """
    :message_id, :record_number, :message_class, :reason, :error, :headers, :body, :received_at,
    :now
"""
_INSERT = text(f"""
    INSERT INTO dead_letter ({COLUMNS}) VALUES ({VALUES})
    ON CONFLICT (message_id, record_number) DO NOTHING
""")
_WANTED = """
    (:any_state OR state = 'open')
    AND (:any_id OR dead_letter_id IN :ids)
    AND (CAST(:reason AS text) IS NULL OR reason = :reason)
    AND (CAST(:class AS text) IS NULL OR lower(message_class) = lower(:class))
    AND received_at < :before
"""
_IDS: BindParameter[int] = bindparam("ids", expanding=True)
_LIST = text(f"""
    SELECT {_FACTS}
    FROM (
        SELECT {_FACTS} FROM dead_letter WHERE {_WANTED}
        ORDER BY dead_letter_id DESC LIMIT :limit
    ) AS newest
    ORDER BY dead_letter_id
""").bindparams(_IDS)
_NUMBERS = text(f"""
    SELECT dead_letter_id FROM dead_letter WHERE {_WANTED} ORDER BY dead_letter_id
""").bindparams(_IDS)
_DROP = text(f"""
    UPDATE dead_letter SET state = 'dropped', changed_at = :now WHERE state = 'open' AND {_WANTED}
""").bindparams(_IDS)
_CONTENT = f"""
    SELECT {_FACTS}, headers, body FROM dead_letter WHERE dead_letter_id IN :ids
    ORDER BY dead_letter_id
"""
_SHOW = text(_CONTENT).bindparams(_IDS)
_LOCK = {
    # One writer at a time, and the transaction says at its beginning that it writes.
    ("sqlite", False): _SHOW,
    ("sqlite", True): _SHOW,
    ("postgresql", False): text(f"{_CONTENT} FOR UPDATE").bindparams(_IDS),
    ("postgresql", True): text(f"{_CONTENT} FOR UPDATE SKIP LOCKED").bindparams(_IDS),
}
_EDITION_OF = text("""
    SELECT dead_letter_id FROM dead_letter
    WHERE message_id = :message_id AND record_number = :record_number
""")
_BY_REASON = text("""
    SELECT reason, count(*) AS letters FROM dead_letter WHERE state = 'open'
    GROUP BY reason ORDER BY reason
""")


@dataclass(frozen=True)
class DeadLetter:
    """A record that could not be loaded; record 0 is the whole message.

    `edited_from` is the letter whose edition it is.
    """

    dead_letter_id: int
    message_id: str
    record_number: int
    message_class: str
    reason: str
    error: str
    received_at: datetime
    state: str
    changed_at: datetime
    edited_from: int | None = None


@dataclass(frozen=True)
class DeadLetterContent:
    """The bytes that could not be loaded, and the headers of the message they came in.

    `edited_as` is the letter that has replaced it, once it was edited.
    """

    letter: DeadLetter
    headers: Mapping[str, str]
    body: bytes
    edited_as: int | None = None


@dataclass(frozen=True)
class Wanted:
    """Which letters: all that are open, unless told; each field narrows it, `any_state` widens."""

    ids: Sequence[int] | None = None
    reason: str | None = None
    message_class: str | None = None
    received_before: datetime | None = None
    any_state: bool = False


ALL_OPEN = Wanted()


def keep(connection: Connection, failures: Sequence[Failure], now: datetime) -> dict[str, int]:
    """Write dead letters in the caller's transaction; how many are new, by reason."""
    kept: Counter[str] = Counter()
    # In one order: loaders that keep each other's messages wait, and do not deadlock.
    for failure in sorted(failures, key=lambda one: (one.message.message_id, one.number)):
        moment = stored_time(connection, now)
        values = {**_values(failure), "received_at": moment, "now": moment}
        kept[failure.reason] += connection.execute(_INSERT, values).rowcount
    return {reason: count for reason, count in kept.items() if count}


def list_dead_letters(
    engine: Engine, wanted: Wanted = ALL_OPEN, limit: int = NO_LIMIT
) -> list[DeadLetter]:
    """Oldest first; of more than `limit` the newest."""
    with reading(engine) as connection:
        rows = connection.execute(_LIST, {**_bound(connection, wanted), "limit": limit})
        return [_letter(row) for row in rows.mappings()]


def dead_letter_ids(engine: Engine, wanted: Wanted = ALL_OPEN) -> list[int]:
    """Their numbers, oldest first.

    Raises:
        NoSuchDeadLetter: one of the numbers asked for, in any state, is none.
    """
    with reading(engine) as connection:
        found = list(connection.execute(_NUMBERS, _bound(connection, wanted)).scalars())
    _require_all(wanted, found)
    return found


def show_dead_letter(engine: Engine, dead_letter_id: int) -> DeadLetterContent:
    """One with its bytes.

    Raises:
        NoSuchDeadLetter
    """
    with reading(engine) as connection:
        rows = connection.execute(_SHOW, {"ids": [dead_letter_id]}).mappings().all()
        return the_only(connection, dead_letter_id, [_content(row) for row in rows])


def open_by_reason(engine: Engine) -> dict[str, int]:
    """How many are open, by reason."""
    with reading(engine) as connection:
        return {row.reason: row.letters for row in connection.execute(_BY_REASON)}


def drop_dead_letters(engine: Engine, wanted: Wanted, now: datetime) -> int:
    """Give the open ones up for good; how many these were. Their rows stay."""
    with writing(engine) as connection:
        bound = {**_bound(connection, wanted), "now": stored_time(connection, now)}
        return connection.execute(_DROP, bound).rowcount


def lock_dead_letters(
    connection: Connection, ids: Sequence[int], skip_locked: bool = False
) -> list[DeadLetterContent]:
    """Those that are there, nobody else's until the transaction ends; in order of their numbers.

    `skip_locked`: without those that somebody else has just now, instead of waiting.
    """
    rows = connection.execute(_LOCK[connection.dialect.name, skip_locked], {"ids": list(ids)})
    return [_content(row) for row in rows.mappings()]


def the_only(
    connection: Connection, dead_letter_id: int, found: Sequence[DeadLetterContent]
) -> DeadLetterContent:
    """The one that was found, with the edition that has replaced it.

    Raises:
        NoSuchDeadLetter: none was.
    """
    if not found:
        raise NoSuchDeadLetter(dead_letter_id)
    letter = found[0].letter
    if letter.state != DROPPED:
        return found[0]
    key = {"message_id": edition_id(letter), "record_number": letter.record_number}
    return replace(found[0], edited_as=connection.execute(_EDITION_OF, key).scalar())


def edition_id(letter: DeadLetter) -> str:
    """What stands in the table as the message id of the letter's edition."""
    return f"{letter.message_id}{EDITED}{letter.dead_letter_id}"


def stored_time(connection: Connection, moment: datetime) -> datetime | int:
    return int(moment.timestamp()) if connection.dialect.name == "sqlite" else moment


def printable(value: str) -> str:
    """What any database stores as text: a dead letter must never be one itself."""
    return value.encode("utf-8", "backslashreplace").decode().replace("\0", r"\x00")


def _bound(connection: Connection, wanted: Wanted) -> dict[str, object]:
    return {
        "any_state": wanted.any_state,
        "any_id": wanted.ids is None,
        "ids": list(wanted.ids or ()),
        "reason": wanted.reason,
        "class": wanted.message_class,
        "before": stored_time(connection, wanted.received_before or _NEVER),
    }


def _require_all(wanted: Wanted, found: Sequence[int]) -> None:
    """Raise NoSuchDeadLetter for the first number asked for that is none."""
    missing = set(wanted.ids or ()) - set(found)
    if missing and wanted.any_state:
        raise NoSuchDeadLetter(min(missing))


def _content(row: RowMapping) -> DeadLetterContent:
    return DeadLetterContent(_letter(row), json.loads(row["headers"]), bytes(row["body"]))


def _letter(row: RowMapping) -> DeadLetter:
    names = DeadLetter.__dataclass_fields__.keys() - {"edited_from"}
    facts = {name: row[name] for name in names}
    for name in ("received_at", "changed_at"):
        facts[name] = _time(facts[name])
    edition = _EDITION.fullmatch(row["message_id"])
    if edition:
        facts |= {"message_id": edition[1], "edited_from": int(edition[2])}
    return DeadLetter(**facts)


def _values(failure: Failure) -> dict[str, object]:
    message = failure.message
    return {
        "message_id": printable(_short(message.message_id)),
        "record_number": failure.number,
        "message_class": printable(message.message_class or ""),
        "reason": failure.reason,
        "error": printable(failure.text),
        "headers": json.dumps(dict(message.headers)),
        "body": failure.body,
    }


def _short(message_id: str) -> str:
    """The id, if it fits and is not taken for one of an edition."""
    if len(message_id) <= LONGEST_ID and not _EDITION.fullmatch(message_id):
        return message_id
    return f"sha256:{hashlib.sha256(message_id.encode('utf-8', 'replace')).hexdigest()}"


def _time(stored: datetime | int) -> datetime:
    if isinstance(stored, int):
        return datetime.fromtimestamp(stored, UTC)
    return stored.astimezone(UTC)
