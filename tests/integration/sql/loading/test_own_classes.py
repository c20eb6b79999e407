"""A site's own classes: which views are classes, and the problems of those that cannot be."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.messages.message import Message
from sam_pipeline.sql.checks.check import find_problems
from sam_pipeline.sql.loading.catalogue import Catalogue, class_views
from sam_pipeline.sql.loading.load import load
from tests.support.builders import NOW, metric_message
from tests.support.database.dialects import only_on
from tests.support.database.letters import load_now, only_letter
from tests.support.database.own_class import add_trigger, drop_trigger, make_class, run
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import message_of, query, stored
from tests.support.database.with_schema import with_schema

NO_TRIGGER = "has no INSTEAD OF INSERT trigger"


@pytest.fixture
def postgresql(postgres_url: str) -> Iterator[Engine]:
    """A PostgreSQL database: only it has strict types and quoted names."""
    engine = with_schema(postgres_url)
    yield engine
    engine.dispose()


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


@only_on("sqlite", "own_url")
def test_records_that_the_trigger_does_not_store_are_duplicates(own_engine: Engine) -> None:
    """PostgreSQL does not report what the trigger of a view did with the rows of a COPY."""
    make_class(own_engine, "note", words="text PRIMARY KEY")
    add_trigger(
        own_engine, "note", 'INSERT INTO "kept note" VALUES (NEW.words) ON CONFLICT DO NOTHING;'
    )

    first = load_now(own_engine, note(words="a"), note(words="b"))
    second = load_now(own_engine, note(words="a"), note(words="c"), note(words="c"))

    assert (first.rows, first.duplicates) == (2, 0)
    assert (second.rows_by_class, second.duplicates_by_class) == ({"note": 1}, {"note": 2})


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


def test_text_fills_every_plain_type_and_a_column_of_another_one_breaks_its_class(
    postgresql: Engine,
) -> None:
    run(
        postgresql,
        "CREATE TYPE mood AS ENUM ('good', 'bad')",
        "CREATE DOMAIN short AS varchar(9)",
        "CREATE DOMAIN shorter AS short CHECK (length(VALUE) < 5)",
        "CREATE DOMAIN moods AS mood",
        "CREATE DOMAIN moment AS timestamptz",
        "CREATE TYPE made AS (a integer, b text)",
        "CREATE DOMAIN texts AS text[]",
    )
    columns = {f"c{number}": type_name for number, type_name in enumerate(PLAIN)}
    make_class(postgresql, "note", **columns)
    for number, type_name in enumerate(OTHERS):
        make_class(postgresql, f"bad{number}", words="text", odd=type_name)

    loaded = load_now(
        postgresql,
        note(**dict(zip(columns, PLAIN.values(), strict=True))),
        *(note(f"bad{number}") for number in range(len(OTHERS))),
    )

    assert (loaded.rows, loaded.dead_letters) == (1, {"class-broken": len(OTHERS)})
    assert query(postgresql, "SELECT c13::text, c14 FROM note") == [
        ("2026-11-20 12:00:00", "2026-11-20T12:00:00Z")
    ]
    assert [*problems(postgresql)] == [f"bad{number}" for number in range(len(OTHERS))]
    assert sum("column odd has type" in text for text, _ in find_problems(postgresql)) == len(
        OTHERS
    )
    view = Catalogue(postgresql).find("note")
    assert view and view.times == {
        "c11": "day", "c12": "clock", "c13": "moment", "c14": "moment", "c23": "moment",
    }  # fmt: skip
