"""Classes: which views are classes, and what they refuse or store unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext

import pytest
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError

from sam_pipeline.schema.messages.message import Message
from sam_pipeline.sql.checks.check import find_problems
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.errors import message_of as database_error
from sam_pipeline.sql.loading.catalogue import Catalogue, class_views
from sam_pipeline.sql.loading.load import load
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.database.dialects import only_on
from tests.support.database.letters import load_now, only_letter
from tests.support.database.own_class import add_trigger, drop_trigger, make_class, run
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import (
    EXAMPLES,
    Values,
    downtime,
    insert,
    message_of,
    query,
    service_endpoint,
    site_contact,
    site_group,
    stored,
)

NO_TRIGGER = "has no INSTEAD OF INSERT trigger"


def note(class_name: str = "note", **values: str) -> Message:
    return message_of(class_name, values or {"words": "hello"})


def problems(engine: Engine) -> dict[str, str]:
    return {view.name: view.problem for view in class_views(engine) if view.problem}


def test_a_class_is_found_and_repaired_while_the_loader_runs(own_engine: Engine) -> None:
    with acting_as("loader", own_engine) as loader:
        catalogue = Catalogue(loader)

        unknown = load(loader, catalogue, [note()], NOW)
        run(own_engine, "CREATE TABLE kept (words text)", "CREATE VIEW note AS SELECT * FROM kept")
        broken = load(loader, catalogue, [note(words="again")], NOW)
        add_trigger(own_engine, "note", "INSERT INTO kept VALUES (NEW.words);")
        loaded = load(loader, catalogue, [note(words="more", colour="red")], NOW)

    assert [one.dead_letters for one in (unknown, broken, loaded)] == [
        {"unknown-class": 1},
        {"class-broken": 1},
        {},
    ]
    assert (loaded.rows, loaded.ignored_keys) == (1, {"colour": 1})
    assert stored(own_engine, "note") == [{"words": "more"}]


def test_odd_names_of_classes_and_columns_work(own_engine: Engine) -> None:
    names = ["select", "no te", 'no""te', "no;te", "drop table host --", "ß", "no%te", "no:te"]
    for name in (*names, "org.wlcg.Note"):
        make_class(
            own_engine, f'"{name}"', **dict.fromkeys(['"order"', '"na""me"', '"a b"'], "text")
        )

    values = {"order": "1", 'na"me': "2"}
    dotted = [message_of(name, values) for name in ("org.wlcg.note", "ORG.WLCG.NOTE")]
    loaded = load_now(
        own_engine, *(message_of(name.replace('""', '"'), values) for name in names), *dotted
    )

    assert (loaded.rows, problems(own_engine)) == (len(names) + 2, {})
    for name in names:
        assert query(own_engine, f'SELECT * FROM "{name}"') == [("1", "2", None)]


def test_a_look_alike_of_a_class_name_is_another_class(own_engine: Engine) -> None:
    make_class(own_engine, "kernel")
    make_class(own_engine, '"SAM-check"')

    loaded = load_now(own_engine, note("\u212aernel"), note("sam-chec\u212a"), note("Kernel"))

    assert (loaded.rows, loaded.checks, loaded.dead_letters) == (1, 0, {"unknown-class": 2})
    assert load_now(own_engine, note("sam-check")).checks == 1
    assert "never loaded" in problems(own_engine)["SAM-check"]


def test_only_views_with_a_trigger_that_are_not_the_schemas_own_are_classes(
    own_engine: Engine,
) -> None:
    run(own_engine, "CREATE VIEW of_grafana AS SELECT name FROM site")
    add_trigger(own_engine, "site_availability", "INSERT INTO site (name) VALUES (NEW.site);")
    drop_trigger(own_engine, "downtime")

    loaded = load_now(own_engine, note("site_availability", site="S"), metric_message())

    assert (loaded.rows, loaded.dead_letters) == (1, {"class-broken": 1})
    assert 'view named "site_availability"' in only_letter(own_engine).error
    assert query(own_engine, "SELECT name FROM site WHERE name = 'S'") == []
    assert problems(own_engine)["downtime"] == f"view downtime {NO_TRIGGER}"
    assert "of_grafana" not in [view.name for view in class_views(own_engine)]
    assert not any("of_grafana" in text for text, _ in find_problems(own_engine))


PLAIN = {
    "text": "a", "varchar(3)": "abc", "char(3)": "abc", "name": "n", "smallint": "1",
    "integer": "-2", "bigint": "9007199254740993", "numeric(6,2)": "3.14", "real": "0.5",
    "double precision": "1e300", "boolean": "true", "date": "2026-11-20", "time": "12:00:00",
    "timestamp": "2026-11-20T13:00:00+01:00", "timestamptz": "2026-11-20T13:00:00+01:00",
    "interval": "3 days", "uuid": "6f9619ff-8b86-d011-b42d-00c04fc964ff", "inet": "2001:db8::1",
    "json": '{"a": [1]}', "jsonb": '{"a": [1]}', "mood": "good", "shorter": "abcd", "moods": "bad",
    "moment": "2026-11-20T13:00:00+01:00",
}  # fmt: skip
"""Types that text fills, with values."""
OTHERS = ("text[]", "int4range", "made", "texts")


@only_on("postgresql", "own_url")  # only it has strict types
def test_text_fills_every_plain_type_and_a_column_of_another_one_breaks_its_class(
    own_engine: Engine,
) -> None:
    run(
        own_engine,
        "CREATE TYPE mood AS ENUM ('good', 'bad')",
        "CREATE DOMAIN shorter AS varchar(9) CHECK (length(VALUE) < 5)",
        "CREATE DOMAIN moods AS mood",
        "CREATE DOMAIN moment AS timestamptz",
        "CREATE TYPE made AS (a integer, b text)",
        "CREATE DOMAIN texts AS text[]",
    )
    columns = {f"c{number}": type_name for number, type_name in enumerate(PLAIN)}
    make_class(own_engine, "note", **columns)
    for number, type_name in enumerate(OTHERS):
        make_class(own_engine, f"bad{number}", words="text", odd=type_name)

    loaded = load_now(
        own_engine,
        note(**dict(zip(columns, PLAIN.values(), strict=True))),
        *(note(f"bad{number}") for number in range(len(OTHERS))),
    )

    assert (loaded.rows, loaded.dead_letters) == (1, {"class-broken": len(OTHERS)})
    assert query(own_engine, "SELECT c13::text, c14 FROM note") == [
        ("2026-11-20 12:00:00", "2026-11-20T12:00:00Z")
    ]
    assert [*problems(own_engine)] == [f"bad{number}" for number in range(len(OTHERS))]
    assert sum("column odd has type" in text for text, _ in find_problems(own_engine)) == len(
        OTHERS
    )
    view = Catalogue(own_engine).find("note")
    assert view and view.times == {
        "c11": "day", "c12": "clock", "c13": "moment", "c14": "moment", "c23": "moment",
    }  # fmt: skip


# Bad and odd input at the views -------------------------------------------------------------------

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
