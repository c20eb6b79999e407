"""Bad input at the views, by INSERT and by messages.

Errors name class, column and value, and no bad row is stored. Odd but valid values are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.errors import message_of as database_error
from tests.support.builders import metric_result
from tests.support.database.letters import list_dead_letters, load_now
from tests.support.database.own_class import add_trigger, run
from tests.support.database.sql_rows import (
    EXAMPLES,
    Values,
    downtime,
    insert,
    message_of,
    service_endpoint,
    site_contact,
    site_group,
    stored,
)

ROWS: Mapping[str, Callable[..., Values]] = {
    "metricOutput": metric_result,
    "serviceEndpoint": service_endpoint,
    "siteGroup": site_group,
    "siteContact": site_contact,
    "downtime": downtime,
}
BAD_NUMBERS = (
    "many", "1e400", "1e3", "NaN", "Infinity", str(2**70), "3000000000", "1_000", "\u0663", "+5",
    "-1", "3.5", "0x10", "5 000",
)  # fmt: skip
BAD_TIMES = (
    "now", "today", "epoch", "infinity", "soon", "2026-11-20T24:00:00Z", "2026-02-30T00:00:00Z",
    "2026-12-31T23:59:60Z", "10000-01-01T00:00:00Z", "1763640000000", "20/11/2026 12:00",
    "11-20-2026", "2026-11-20", "\u0662\u0660\u0662\u0666-11-20T12:00:00Z", "2026-11-20T12:00:00X",
)  # fmt: skip
BAD_HOSTS = (
    "x" * 254, "<script>alert(1)</script>", "=cmd()", "ce01\u202e.example.org", "b\xfccher.example",
    "ce01 example", "'; DROP TABLE host; --",
)  # fmt: skip
BAD_VALUES: Mapping[tuple[str, str], tuple[str | None, ...]] = {
    ("siteGroup", "weight"): BAD_NUMBERS,
    ("metricOutput", "timestamp"): (*BAD_TIMES, None),
    ("serviceEndpoint", "validTo"): BAD_TIMES[:3],
    ("downtime", "endTime"): (*BAD_TIMES[:3], "2026-11-20T07:00:00Z"),
    ("siteContact", "timestamp"): BAD_TIMES[:3],
    ("siteContact", "contact"): ("x" * 256,),
    ("metricOutput", "hostName"): (*BAD_HOSTS, None),
    ("metricOutput", "metricStatus"): ("FINE", "7", None),
    ("metricOutput", "metricName"): (None,),
    ("metricOutput", "siteName"): ("a\x1fb",),
}


def counts(engine: Engine) -> dict[str, int]:
    """The number of rows of every table that has any, without dead letters and their senders."""
    with reading(engine) as connection:
        rows_of = {
            name: connection.execute(text(f'SELECT count(*) FROM "{name}"')).scalar_one()
            for name in _tables(connection)
        }
    of_letters = ("dead_letter", "publisher")
    return {name: rows for name, rows in rows_of.items() if rows and name not in of_letters}


def _tables(connection: Connection) -> Iterator[str]:
    if connection.dialect.name == "sqlite":
        listed = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    else:
        listed = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    yield from connection.execute(text(listed)).scalars()


@pytest.mark.parametrize(("view", "column"), BAD_VALUES)
def test_a_bad_record_is_a_dead_letter_that_names_class_column_and_value(
    engine: Engine, view: str, column: str
) -> None:
    before = counts(engine)
    values = BAD_VALUES[view, column]

    loaded = load_now(engine, *(message_of(view, ROWS[view](**{column: v})) for v in values))

    assert (loaded.rows, loaded.dead_letters.total()) == (0, len(values))
    assert counts(engine) == before
    for value, letter in zip(values, list_dead_letters(engine), strict=True):
        assert letter.message_class == view
        assert column in letter.error
        shown = (value or "")[:40]
        assert shown in letter.error or repr(shown)[1:-1] in letter.error
        assert (letter.reason == "missing-key") == (value is None)


INSERTS: Sequence[tuple[str, Values, str]] = (
    ("metricOutput", {"metricStatus": "FINE"}, "metricStatus"),
    ("metricOutput", {"metricStatus": None}, "metricStatus"),
    ("metricOutput", {"metricName": ""}, "metricName"),
    ("metricOutput", {"metricName": "a\x1fb"}, "unit separator"),
    ("metricOutput", {"siteName": "a\\\x1fb"}, "unit separator"),
    ("metricOutput", {"hostName": ""}, "hostName"),
    ("metricOutput", {"serviceFlavour": None}, "serviceFlavour"),
    *(
        ("metricOutput", {"timestamp": time}, "timestamp")
        for time in (None, "infinity", "soon", "", "2026-02-30T00:00:00Z", "2026-11-20T12:00:00.5Z")
    ),
    ("serviceEndpoint", {"siteName": None}, "siteName"),
    ("serviceEndpoint", {"hostName": ""}, "hostName"),
    ("serviceEndpoint", {"validFrom": None}, "validFrom"),
    ("serviceEndpoint", {"validTo": "-infinity"}, "validTo"),
    ("siteGroup", {"groupName": ""}, "groupName"),
    ("siteGroup", {"groupType": None}, "groupType"),
    ("siteGroup", {"validFrom": "NaN"}, "validFrom"),
    *(("siteGroup", {"weight": weight}, "weight") for weight in (-1, "many", "1.5", "", " ")),
    ("siteContact", {"siteName": ""}, "siteName"),
    ("siteContact", {"timestamp": None}, "timestamp"),
    ("siteContact", {"timestamp": "infinity"}, "timestamp"),
    ("siteContact", {"contact": "x" * 256}, "contact"),
    ("downtime", {"siteName": "", "hostName": None}, "hostName"),
    ("downtime", {"endTime": "2026-11-20T07:59:59Z"}, "endTime"),
    ("downtime", {"classification": ""}, "classification"),
    ("downtime", {"severity": None}, "severity"),
)
"""Rows that the trigger refuses: class, changes of a good row, and a word of the error."""


@pytest.mark.parametrize(("view", "changes", "word"), INSERTS)
def test_a_refused_insert_names_the_column_and_stores_nothing(
    engine: Engine, view: str, changes: Values, word: str
) -> None:
    """Even if the transaction goes on and is committed."""
    row = {**EXAMPLES[view], **changes}
    before = counts(engine)

    error = insert_error(engine, view, row)

    assert counts(engine) == before
    value = changes.get(word)
    # PostgreSQL's own cast of a malformed text names only the value.
    assert word in error or (value and str(value) in error) or "invalid input syntax" in error
    if engine.dialect.name == "postgresql" and value in ("FINE", "many", "1.5", -1):
        assert str(value) in error  # SQLite's RAISE takes only a constant text


def insert_error(engine: Engine, view: str, row: Values) -> str:
    names, marks = ", ".join(row), ", ".join(f":{name}" for name in row)
    statement = text(f"INSERT INTO {view} ({names}) VALUES ({marks})")
    with writing(engine) as connection:
        # SQLite rolls back a failed statement by itself; PostgreSQL needs a savepoint before it.
        is_sqlite = connection.dialect.name == "sqlite"
        with (
            pytest.raises(DBAPIError) as caught,
            nullcontext() if is_sqlite else connection.begin_nested(),
        ):
            connection.execute(statement, dict(row))
    return database_error(caught.value)


@pytest.mark.parametrize("value", BAD_NUMBERS)
def test_an_insert_of_an_odd_weight_is_refused_or_stored_as_that_number(
    engine: Engine, value: str
) -> None:
    try:
        insert(engine, "siteGroup", site_group(weight=value))
    except Exception as error:
        assert value in str(error) or "weight" in str(error)
        assert stored(engine, "siteGroup") == []
    else:  # a database that accepts the text as a number stores that number
        [row] = stored(engine, "siteGroup")
        assert row["weight"] == int(value)


def test_times_after_2038_and_before_1970_are_stored(engine: Engine) -> None:
    row = service_endpoint(validFrom="1969-07-20T20:17:40Z", validTo="2106-02-07T06:28:16Z")

    load_now(engine, message_of("serviceEndpoint", row))

    [endpoint] = stored(engine, "serviceEndpoint")
    assert (endpoint["validFrom"], endpoint["validTo"]) == (row["validFrom"], row["validTo"])


ODD_NAMES = (
    "O'Brien", 'say "x"', "a;b", "select", '"; DROP TABLE site; --', "'; DELETE FROM host; --",
    "\u202egnissim", "\u200fmark", "<script>alert(1)</script>", "=cmd()|' /C calc'!A0", "n" * 500,
    "b\xfccher.example", "\u4e2d\u6587", "\U0001f600", "trailing.dot.", "back\\slash", "\\N", "\\.",
    "%s %(x)s :name ?", "NULL", "null", "0", "a: b", "EOT", "{}", "../..", "$$", "E'\\x00'",
    "tab\tin", "ä\\n\\N", "no unit\\u001fseparator",
)  # fmt: skip
NAMES = {
    "metricOutput": ("siteName", "metricName", "voName", "voFqan", "gatheredAt", "role"),
    "serviceEndpoint": ("siteName", "serviceFlavour", "voName", "production"),
    "siteGroup": ("siteName", "groupName", "groupType"),
    "siteContact": ("siteName",),
    "downtime": ("downtimeId", "siteName", "classification", "severity", "description"),
}


@pytest.mark.parametrize("way", ["insert", "load"])
@pytest.mark.parametrize("view", NAMES)
def test_odd_names_are_stored_unchanged(engine: Engine, view: str, way: str) -> None:
    rows = [ROWS[view](**dict.fromkeys(NAMES[view], name)) for name in ODD_NAMES]

    if way == "insert":
        insert(engine, view, *rows)
    else:
        assert load_now(engine, message_of(view, *rows)).dead_letters == {}

    for column in NAMES[view]:
        assert sorted(row[column] for row in stored(engine, view)) == sorted(ODD_NAMES)


@pytest.mark.parametrize(
    ("sent", "host"),
    [
        ("CE01.Example.ORG.", "ce01.example.org"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("2001:db8::1", "2001:db8::1"),
        ("x" * 253, "x" * 253),
    ],
)
def test_a_host_name_is_normalised(engine: Engine, sent: str, host: str) -> None:
    load_now(engine, message_of("metricOutput", metric_result(hostName=sent)))

    [row] = stored(engine, "metricOutput")
    assert row["hostName"] == host


# Records of a site's own class that its table refuses ---------------------------------------------

TABLES = (
    "CREATE TABLE author (name text PRIMARY KEY)",
    """
    CREATE TABLE kept_note (
        word_count integer NOT NULL CHECK (word_count > 0),
        author text REFERENCES author,
        title text UNIQUE
    )
    """,
    "CREATE VIEW note AS SELECT word_count AS wordCount, author, title FROM kept_note",
    "INSERT INTO author VALUES ('me')",
    "INSERT INTO kept_note VALUES (1, 'me', 'taken')",
)
REFUSED: Mapping[str, tuple[str, str, str, str]] = {
    "not null": ("wordCount", "", "23502", "SQLITE_CONSTRAINT_NOTNULL"),
    "check": ("wordCount", "-1", "23514", "SQLITE_CONSTRAINT_CHECK"),
    "unique": ("title", "taken", "23505", "SQLITE_CONSTRAINT_UNIQUE"),
    "foreign key": ("author", "you", "23503", "SQLITE_CONSTRAINT_FOREIGNKEY"),
    "raised by the trigger": ("title", "x" * 300, "P0001", "SQLITE_CONSTRAINT_TRIGGER"),
    "type": ("wordCount", "several", "22P02", ""),
}


def test_the_error_of_a_refused_record_names_class_column_code_and_value(
    own_engine: Engine,
) -> None:
    run(own_engine, *TABLES)
    into = "INSERT INTO kept_note VALUES (CAST(NEW.wordCount AS integer), NEW.author, NEW.title);"
    if is_sqlite := own_engine.dialect.name == "sqlite":
        refuse = "SELECT RAISE(ABORT, 'title: no letter') WHERE NEW.title LIKE 'x%';"
    else:
        refuse = "IF NEW.title LIKE 'x%' THEN RAISE 'title: no letter'; END IF;"
    add_trigger(own_engine, "note", f"{refuse} {into}")
    good: Any = {"wordCount": "3", "author": "me", "title": "a"}
    cases = [case for case in REFUSED.values() if case[3] or not is_sqlite]

    load_now(
        own_engine, *(message_of("note", {**good, column: value}) for column, value, *_ in cases)
    )

    letters = list_dead_letters(own_engine)
    for letter, (column, value, sqlstate, sqlite_name) in zip(letters, cases, strict=True):
        assert (letter.message_class, letter.reason) == ("note", "refused-by-database")
        code = sqlite_name if is_sqlite else sqlstate
        assert letter.error.startswith("note: ") and f" {code}: " in letter.error
        assert column.lower() in letter.error.lower().replace("_", "")
        assert value[:80] in letter.error
