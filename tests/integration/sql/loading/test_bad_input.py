"""Bad input at the views, by INSERT and by messages.

Errors name class, column and value, and no bad row is stored. Odd but valid values are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.errors import message_of as database_error
from tests.support.builders import metric_result
from tests.support.database.letters import load_now
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


INSERTS: Sequence[tuple[str, Values, str]] = (
    ("metricOutput", {"metricStatus": "FINE"}, "metricStatus"),
    ("metricOutput", {"metricStatus": None}, "metricStatus"),
    ("metricOutput", {"metricName": ""}, "metricName"),
    ("metricOutput", {"siteName": "a\\\x1fb"}, "unit separator"),
    ("metricOutput", {"hostName": ""}, "hostName"),
    ("metricOutput", {"serviceFlavour": None}, "serviceFlavour"),
    *(
        ("metricOutput", {"timestamp": time}, "timestamp")
        for time in (None, "infinity", "soon", "2026-02-30T00:00:00Z", "2026-11-20T12:00:00.5Z")
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


def test_times_after_2038_and_before_1970_are_stored(engine: Engine) -> None:
    row = service_endpoint(validFrom="1969-07-20T20:17:40Z", validTo="2106-02-07T06:28:16Z")

    load_now(engine, message_of("serviceEndpoint", row))

    [endpoint] = stored(engine, "serviceEndpoint")
    assert (endpoint["validFrom"], endpoint["validTo"]) == (row["validFrom"], row["validTo"])


ODD_NAMES = (
    "O'Brien", 'say "x"', "a;b", "select", '"; DROP TABLE site; --', "'; DELETE FROM host; --",
    "\u202egnissim", "\u200fmark", "<script>alert(1)</script>", "=cmd()|' /C calc'!A0", "n" * 500,
    "\u4e2d\u6587", "\U0001f600", "back\\slash", "\\N", "\\.", "%s %(x)s :name ?", "NULL", "EOT",
    "{}", "$$", "E'\\x00'", "tab\tin", "ä\\n\\N", "no unit\\u001fseparator",
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
