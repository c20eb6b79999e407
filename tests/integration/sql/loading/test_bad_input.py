"""Bad input at the views, by INSERT and by messages.

Errors name class, column and value, and no bad row is stored. Odd but valid values are stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from datetime import timedelta

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.engine import make_engine, reading, writing
from sam_pipeline.sql.database.version import upgrade
from sam_pipeline.sql.errors import message_of
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.load import Loaded, load
from tests.support.builders import NOW, metric_result
from tests.support.database.letters import list_dead_letters
from tests.support.database.own_class import add_trigger, make_class, run
from tests.support.database.sql_rows import (
    EXAMPLES,
    Values,
    downtime,
    insert,
    name_too_long_for,
    query,
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

MESSAGES: list[tuple[str, Values, str]] = [
    *(("siteGroup", site_group(weight=value), "weight") for value in BAD_NUMBERS),
    *(("metricOutput", metric_result(timestamp=value), "timestamp") for value in BAD_TIMES),
    *(("serviceEndpoint", service_endpoint(validTo=value), "validTo") for value in BAD_TIMES[:3]),
    *(("downtime", downtime(endTime=value), "endTime") for value in BAD_TIMES[:3]),
    *(("siteContact", site_contact(timestamp=value), "timestamp") for value in BAD_TIMES[:3]),
    ("siteContact", site_contact(contact="x" * 256), "contact"),
    *(("metricOutput", metric_result(hostName=value), "hostName") for value in BAD_HOSTS),
    ("metricOutput", metric_result(metricStatus="FINE"), "metricStatus"),
    ("metricOutput", metric_result(metricStatus="7"), "metricStatus"),
    ("metricOutput", metric_result(siteName="a\x1fb"), "siteName"),
    ("downtime", downtime(endTime="2026-11-20T07:00:00Z"), "endTime"),
]
"""Class, row, and the column whose value is bad."""


def message(class_name: str, *rows: Values) -> Message:
    body = json.dumps(
        [{key: value for key, value in row.items() if value is not None} for row in rows]
    )
    return new_message(class_name, body, content_type="application/json")


def load_now(engine: Engine, *messages: Message) -> Loaded:
    return load(engine, Catalogue(engine), messages, NOW)


def only_error(engine: Engine) -> str:
    [letter] = list_dead_letters(engine)
    return letter.error


def insert_error(engine: Engine, view: str, row: Values) -> str:
    """The database's error for an INSERT, whose transaction goes on and is committed; or ''."""
    names, marks = ", ".join(row), ", ".join(f":{name}" for name in row)
    statement = text(f"INSERT INTO {view} ({names}) VALUES ({marks})")
    with writing(engine) as connection:
        # SQLite rolls back a failed statement by itself; PostgreSQL needs a savepoint before it.
        is_sqlite = connection.dialect.name == "sqlite"
        try:
            with nullcontext() if is_sqlite else connection.begin_nested():
                connection.execute(statement, dict(row))
        except DBAPIError as error:
            return message_of(error)
    return ""


def counts(engine: Engine) -> dict[str, int]:
    """The number of rows of every table that has any, without dead letters and their senders."""
    with reading(engine) as connection:
        rows_of = {
            name: connection.execute(text(f'SELECT count(*) FROM "{name}"')).scalar_one()
            for name in _tables(connection)
        }
    of_letters = ("dead_letter", "publisher")
    return {name: rows for name, rows in rows_of.items() if rows and name not in of_letters}


def _tables(connection: Connection) -> list[str]:
    if connection.dialect.name == "sqlite":
        listed = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    else:
        listed = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    return list(connection.execute(text(listed)).scalars())


@pytest.mark.parametrize(
    ("class_name", "row", "column"),
    MESSAGES,
    ids=lambda value: str(value)[:40] if isinstance(value, str) else "",
)
def test_a_bad_record_is_a_dead_letter_that_names_class_column_and_value(
    engine: Engine, class_name: str, row: Values, column: str
) -> None:
    before = counts(engine)

    loaded = load_now(engine, message(class_name, row))

    assert (loaded.rows, sum(loaded.dead_letters.values())) == (0, 1)
    assert counts(engine) == before
    [letter] = list_dead_letters(engine)
    assert letter.message_class == class_name
    assert column in letter.error
    bad_value = str(row[column])[:40]
    assert bad_value in letter.error or repr(bad_value)[1:-1] in letter.error


INSERTS: list[tuple[str, Values, str]] = [
    ("metricOutput", metric_result(metricStatus="FINE"), "metricStatus"),
    ("metricOutput", metric_result(metricName=""), "metricName"),
    ("metricOutput", metric_result(hostName=""), "hostName"),
    ("metricOutput", metric_result(serviceFlavour=""), "serviceFlavour"),
    ("serviceEndpoint", service_endpoint(siteName=None), "siteName"),
    ("serviceEndpoint", service_endpoint(hostName=""), "hostName"),
    ("siteGroup", site_group(groupName=""), "groupName"),
    ("siteGroup", site_group(groupType=None), "groupType"),
    ("siteGroup", site_group(weight=-1), "weight"),
    ("siteContact", site_contact(siteName=""), "siteName"),
    ("siteContact", site_contact(timestamp=None), "timestamp"),
    ("downtime", downtime(siteName="", hostName=None), "hostName"),
    ("downtime", downtime(endTime="2026-11-20T07:00:00Z"), "endTime"),
    ("downtime", downtime(classification=""), "classification"),
    ("downtime", downtime(severity=None), "severity"),
]
"""Rows that the trigger refuses: class, row, and the column whose value is bad."""


VALUE = {"": "''", None: "NULL", -1: "-1", "FINE": "FINE", "2026-11-20T07:00:00Z": "07:00:00+00"}
"""The bad value as PostgreSQL's error shows it."""


@pytest.mark.parametrize(("view", "row", "column"), INSERTS)
def test_a_refused_insert_names_the_column_and_stores_nothing(
    engine: Engine, view: str, row: Values, column: str
) -> None:
    before = counts(engine)

    error = insert_error(engine, view, row)

    assert column in error
    assert counts(engine) == before
    if engine.dialect.name == "postgresql":  # SQLite's RAISE takes only a constant text
        assert VALUE[row[column]] in error


@pytest.mark.parametrize(
    "value", ["soon", "infinity", "-infinity", "NaN", "", "2026-02-30T00:00:00Z"]
)
def test_an_insert_of_a_malformed_time_is_refused(engine: Engine, value: str) -> None:
    before = counts(engine)

    for view, column in (("metricOutput", "timestamp"), ("siteGroup", "validFrom")):
        error = insert_error(engine, view, {**ROWS[view](), column: value})
        assert value in error or column in error

    assert counts(engine) == before


@pytest.mark.parametrize("value", BAD_NUMBERS)
def test_an_insert_of_an_odd_weight_is_refused_or_stored_as_that_number(
    engine: Engine, value: str
) -> None:
    before = counts(engine)

    error = insert_error(engine, "siteGroup", site_group(weight=value))

    if error:
        assert counts(engine) == before
        assert value in error or "weight" in error
    else:  # a database that accepts the text as a number stores that number
        [row] = stored(engine, "siteGroup")
        assert row["weight"] == int(value)


def test_one_bad_row_of_a_thousand_is_one_dead_letter(engine: Engine) -> None:
    rows = [downtime(downtimeId=f"D{number}") for number in range(1000)]
    rows[617] = downtime(downtimeId="D617", siteName=name_too_long_for("site", engine))

    loaded = load_now(
        engine, *(message("downtime", *rows[at : at + 100]) for at in range(0, 1000, 100))
    )

    assert (loaded.rows, loaded.dead_letters) == (999, {"refused-by-database": 1})
    assert len(stored(engine, "downtime")) == 999
    [letter] = list_dead_letters(engine)
    assert letter.record_number == 18
    state = "SQLITE_CONSTRAINT" if engine.dialect.name == "sqlite" else "54000"
    for fact in (state, "downtime: "):
        assert fact in letter.error


@pytest.mark.parametrize("column", ["hostName", "metricName", "metricStatus", "timestamp"])
def test_a_missing_key_is_named(engine: Engine, column: str) -> None:
    before = counts(engine)

    loaded = load_now(engine, message("metricOutput", {**metric_result(), column: None}))

    assert loaded.dead_letters == {"missing-key": 1}
    assert only_error(engine).startswith("metricOutput ")
    assert column in only_error(engine)
    assert counts(engine) == before


def test_unknown_keys_of_any_name_are_ignored(engine: Engine) -> None:
    odd = ["__proto__", "select", "metric_status; DROP TABLE host", "", "'", "messageId"]
    many = {f"key{number}": "x" for number in range(5000)}

    loaded = load_now(
        engine, message("metricOutput", {**metric_result(), **dict.fromkeys(odd, "x"), **many})
    )

    assert (loaded.rows, loaded.dead_letters) == (1, {})
    assert loaded.ignored_keys == dict.fromkeys([*odd, *many], 1)
    [row] = stored(engine, "metricOutput")
    assert row["messageId"] != "x"


@pytest.mark.parametrize(
    "name",
    [
        'metricOutput"; DROP TABLE host; --', "..", "../metricOutput", "m" * 10_000,
        "metricOutput ", "metric\u043eutput", "\u212aernel", "public.metricOutput",
        '"metricOutput"', "host", "select", "pg_class", "sqlite_schema", "%s", "\x00",
    ],
)  # fmt: skip
def test_a_message_of_an_unknown_class_is_only_kept_as_a_dead_letter(
    engine: Engine, name: str
) -> None:
    before = counts(engine)

    loaded = load_now(engine, message(name, metric_result()))

    assert (loaded.rows, loaded.dead_letters) == (0, {"unknown-class": 1})
    assert counts(engine) == before


@pytest.mark.parametrize(
    ("when", "reason"),
    [
        (timedelta(days=3), "in-the-future"),
        (timedelta(days=-3700), "too-old"),
        (timedelta(days=-730), None),
        (timedelta(hours=23), None),
    ],
)
def test_results_of_the_last_ten_years_are_loaded(
    engine: Engine, when: timedelta, reason: str | None
) -> None:
    time = format_time(NOW + when)

    loaded = load_now(engine, message("metricOutput", metric_result(timestamp=time)))

    assert loaded.dead_letters == ({reason: 1} if reason else {})
    assert [row["timestamp"] for row in stored(engine, "metricOutput")] == (
        [] if reason else [time]
    )
    if reason:
        assert time in only_error(engine)


def test_times_after_2038_and_before_1970_are_stored(engine: Engine) -> None:
    row = service_endpoint(validFrom="1969-07-20T20:17:40Z", validTo="2106-02-07T06:28:16Z")

    load_now(engine, message("serviceEndpoint", row))

    [endpoint] = stored(engine, "serviceEndpoint")
    assert (endpoint["validFrom"], endpoint["validTo"]) == (row["validFrom"], row["validTo"])


ODD_NAMES = (
    "O'Brien", 'say "x"', "a;b", "select", '"; DROP TABLE site; --', "'; DELETE FROM host; --",
    "\u202egnissim", "\u200fmark", "<script>alert(1)</script>", "=cmd()|' /C calc'!A0", "n" * 256,
    "b\xfccher.example", "\u4e2d\u6587", "\U0001f600", "trailing.dot.", "back\\slash", "\\N", "\\.",
    "%s %(x)s :name ?", "NULL", "null", "0", "a: b", "EOT", "{}", "../..", "$$", "E'\\x00'",
    "tab\tin",
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
        assert load_now(engine, message(view, *rows)).dead_letters == {}

    for column in NAMES[view]:
        assert sorted(row[column] for row in stored(engine, view)) == sorted(ODD_NAMES)


@pytest.mark.parametrize(
    ("sent", "stored_as"),
    [
        ("CE01.Example.ORG.", "ce01.example.org"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("2001:db8::1", "2001:db8::1"),
        ("x" * 253, "x" * 253),
        ("select", "select"),
    ],
)
def test_a_host_name_is_normalised(engine: Engine, sent: str, stored_as: str) -> None:
    load_now(engine, message("metricOutput", metric_result(hostName=sent)))

    [row] = stored(engine, "metricOutput")
    assert row["hostName"] == stored_as


def drop_a_column_of_the_view(engine: Engine) -> None:
    run(engine, "DROP VIEW note", 'CREATE VIEW note AS SELECT author FROM "kept note"')
    add_trigger(engine, "note", 'INSERT INTO "kept note" (author) VALUES (NEW.author);')


def drop_a_column_of_the_table(engine: Engine) -> None:
    on_view = "" if engine.dialect.name == "sqlite" else " ON note"
    run(engine, f'DROP TRIGGER "note insert"{on_view}')
    add_trigger(engine, "note", 'INSERT INTO "kept note" (writer) VALUES (NEW.author);')


@pytest.mark.parametrize("change", [drop_a_column_of_the_view, drop_a_column_of_the_table])
def test_a_class_that_loses_a_column_is_parked_and_others_load(
    own_engine: Engine, change: Callable[[Engine], None]
) -> None:
    make_class(own_engine, "note", author="text", words="text")
    catalogue = Catalogue(own_engine)
    note = message("note", {"author": "me", "words": "hello"})
    assert load(own_engine, catalogue, [note], NOW).rows == 1
    change(own_engine)

    loaded = load(own_engine, catalogue, [note, message("siteGroup", site_group())], NOW)

    assert (loaded.rows, loaded.dead_letters) == (1, {"class-broken": 1})
    assert only_error(own_engine).startswith("note: ")
    assert query(own_engine, 'SELECT count(*) FROM "kept note"') == [(1,)]
    assert len(stored(own_engine, "siteGroup")) == 1


@pytest.fixture
def as_limited_role(postgres_url: str) -> Iterator[tuple[Engine, Engine]]:
    """A database with the class `note`: as its owner, and as a role that may load only that."""
    owner = make_engine(postgres_url)
    upgrade(owner)
    role = f"stranger_of_{owner.url.database}"
    make_class(owner, "note", author="text", words="text")
    run(
        owner,
        f"CREATE ROLE {role} LOGIN PASSWORD 'x'",
        f"GRANT SELECT, INSERT ON dead_letter TO {role}",
        f"GRANT SELECT ON publisher TO {role}",
        f"GRANT EXECUTE ON FUNCTION make_publishers TO {role}",
        f"GRANT INSERT ON note TO {role}",
    )
    stranger = make_engine(owner.url.set(username=role, password="x").render_as_string(False))
    yield owner, stranger
    stranger.dispose()
    run(owner, f"DROP OWNED BY {role}", f"DROP ROLE {role}")
    owner.dispose()


def test_a_class_without_privilege_is_parked_and_others_load(
    as_limited_role: tuple[Engine, Engine],
) -> None:
    owner, stranger = as_limited_role
    note = message("note", {"author": "me", "words": "hello"})

    loaded = load_now(stranger, note, message("siteGroup", site_group()))

    assert (loaded.rows, loaded.dead_letters) == (1, {"class-broken": 1})
    assert only_error(owner).startswith("sitegroup: 42501: ")
    assert query(owner, "SELECT * FROM note") == [("me", "hello")]


def test_the_examples_are_accepted(engine: Engine) -> None:
    for view, row in EXAMPLES.items():
        assert insert_error(engine, view, row) == ""
