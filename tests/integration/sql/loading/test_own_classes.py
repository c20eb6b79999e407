"""A site's own classes: which views are classes, and the problems of those that cannot be."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from sqlalchemy import Engine, event

from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.sql.checks.check import find_problems
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.database.version import upgrade
from sam_pipeline.sql.loading.catalogue import Catalogue, ClassView, class_views
from sam_pipeline.sql.loading.load import Loaded, load
from tests.support.builders import NOW, metric_message
from tests.support.database.dialects import only_on
from tests.support.database.letters import list_dead_letters
from tests.support.database.own_class import add_trigger, make_class, run
from tests.support.database.sql_rows import query

NO_TRIGGER = "has no INSTEAD OF INSERT trigger"


@pytest.fixture
def postgresql(postgres_url: str) -> Iterator[Engine]:
    """A PostgreSQL database: only it has strict types and quoted names."""
    engine = make_engine(postgres_url)
    upgrade(engine)
    yield engine
    engine.dispose()


def note(class_name: str = "note", **values: str) -> Message:
    body = json.dumps(values or {"words": "hello"})
    return new_message(class_name, body, content_type="application/json")


def load_now(engine: Engine, *messages: Message) -> Loaded:
    return load(engine, Catalogue(engine), messages, NOW)


def problems(engine: Engine) -> dict[str, str]:
    return {view.name: view.problem for view in class_views(engine) if view.problem}


def only_error(engine: Engine) -> str:
    [letter] = list_dead_letters(engine)
    return letter.error


def find_view(engine: Engine, name: str) -> ClassView:
    view = Catalogue(engine).find(name)
    assert view is not None
    return view


@only_on("sqlite", "own_url")
def test_records_that_the_trigger_does_not_store_are_duplicates(own_engine: Engine) -> None:
    """PostgreSQL does not report what the trigger of a view did with the rows of a COPY."""
    run(
        own_engine,
        "CREATE TABLE kept (words text PRIMARY KEY)",
        "CREATE VIEW note AS SELECT * FROM kept",
    )
    into = "INSERT INTO kept (words) VALUES (NEW.words) ON CONFLICT DO NOTHING;"
    add_trigger(own_engine, "note", into)

    first = load_now(own_engine, note(words="a"), note(words="b"))
    second = load_now(own_engine, note(words="a"), note(words="c"), note(words="c"))

    assert (first.rows, first.duplicates) == (2, 0)
    assert (second.rows_by_class, second.duplicates_by_class) == ({"note": 1}, {"note": 2})


def test_a_dotted_class_name_is_a_quoted_view_and_found_in_any_case(own_engine: Engine) -> None:
    make_class(own_engine, '"org.wlcg.Note"')

    load_now(own_engine, note("org.wlcg.note"), note("ORG.WLCG.NOTE", words="again"))

    assert problems(own_engine) == {}
    assert query(own_engine, 'SELECT words FROM "org.wlcg.Note"') == [("hello",), ("again",)]


@pytest.mark.parametrize(
    "name", ["select", "no te", 'no""te', "no;te", "drop table host --", "ß", "no%te", "no:te"]
)
def test_odd_class_and_column_names_work(own_engine: Engine, name: str) -> None:
    columns = dict.fromkeys(['"order"', '"na""me"', '"a b"'], "text")
    make_class(own_engine, f'"{name}"', **columns)

    loaded = load_now(own_engine, note(name.replace('""', '"'), order="1", **{'na"me': "2"}))

    assert (loaded.rows, problems(own_engine)) == (1, {})
    assert query(own_engine, f'SELECT * FROM "{name}"') == [("1", "2", None)]


def test_a_look_alike_of_a_class_name_is_another_class(own_engine: Engine) -> None:
    make_class(own_engine, "kernel")

    loaded = load_now(own_engine, note("\u212aernel"), note("sam-chec\u212a"), note("Kernel"))

    assert (loaded.rows, loaded.checks, loaded.dead_letters) == (1, 0, {"unknown-class": 2})


def test_many_unknown_names_are_looked_up_in_one_query(engine: Engine) -> None:
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *call: statements.append(str(call[2])))

    Catalogue(engine).find_all({f"unknown{number}" for number in range(1000)})
    for_many = len(statements)
    Catalogue(engine).find("unknown")

    assert len(statements) == 2 * for_many


def test_a_view_without_a_trigger_is_named_when_its_first_message_arrives(
    own_engine: Engine,
) -> None:
    catalogue = Catalogue(own_engine)
    run(own_engine, "CREATE TABLE kept (words text)", "CREATE VIEW note AS SELECT * FROM kept")

    loaded = load(own_engine, catalogue, [note()], NOW)

    assert loaded.dead_letters == {"class-broken": 1}
    assert only_error(own_engine) == f"note: view note {NO_TRIGGER}"
    add_trigger(own_engine, "note", "INSERT INTO kept VALUES (NEW.words);")
    assert load(own_engine, catalogue, [note()], NOW).rows == 1


def test_the_error_of_a_refused_record_shows_values_by_column_of_the_view(
    own_engine: Engine,
) -> None:
    make_class(own_engine, "note", author="text", words="text CHECK (length(words) < 3)")

    load_now(own_engine, note(author="me", words="hello" * 100))

    assert f"words '{('hello' * 100)[:80]}'" in only_error(own_engine)
    assert only_error(own_engine).startswith("note: ")


def test_a_view_that_is_not_a_class_needs_no_trigger(own_engine: Engine) -> None:
    run(own_engine, "CREATE VIEW of_grafana AS SELECT name FROM site")

    assert find_problems(own_engine) == []
    assert "of_grafana" not in [view.name for view in class_views(own_engine)]


def test_a_built_in_view_without_a_trigger_is_a_problem(own_engine: Engine) -> None:
    on_view = "" if own_engine.dialect.name == "sqlite" else " ON downtime"
    run(own_engine, f"DROP TRIGGER downtime_insert{on_view}")

    assert problems(own_engine) == {"downtime": f"view downtime {NO_TRIGGER}"}


def test_a_report_view_is_not_a_class_even_with_a_trigger(own_engine: Engine) -> None:
    add_trigger(own_engine, "site_availability", "INSERT INTO site (name) VALUES (NEW.site);")

    loaded = load_now(own_engine, note("site_availability", site="S"), metric_message())

    assert (loaded.rows, loaded.dead_letters) == (1, {"class-broken": 1})
    assert 'view named "site_availability"' in only_error(own_engine)
    assert query(own_engine, "SELECT name FROM site WHERE name = 'S'") == []


def test_a_class_with_the_name_of_check_messages_is_a_problem(own_engine: Engine) -> None:
    make_class(own_engine, '"SAM-check"')

    assert load_now(own_engine, note("sam-check")).checks == 1
    assert "never loaded" in problems(own_engine)["SAM-check"]


def test_every_plain_type_is_filled_from_text(postgresql: Engine) -> None:
    run(
        postgresql,
        "CREATE TYPE mood AS ENUM ('good', 'bad')",
        "CREATE DOMAIN short AS varchar(9)",
        "CREATE DOMAIN shorter AS short CHECK (length(VALUE) < 5)",
        "CREATE DOMAIN moods AS mood",
    )
    values = {
        "text": "a",
        "varchar(3)": "abc",
        "char(3)": "abc",
        "name": "n",
        "smallint": "1",
        "integer": "-2",
        "bigint": "9007199254740993",
        "numeric(6,2)": "3.14",
        "real": "0.5",
        "double precision": "1e300",
        "boolean": "true",
        "date": "2026-11-20",
        "time": "12:00:00",
        "timestamp": "2026-11-20T13:00:00+01:00",
        "timestamptz": "2026-11-20T13:00:00+01:00",
        "interval": "3 days",
        "uuid": "6f9619ff-8b86-d011-b42d-00c04fc964ff",
        "inet": "2001:db8::1",
        "json": '{"a": [1]}',
        "jsonb": '{"a": [1]}',
        "mood": "good",
        "shorter": "abcd",
        "moods": "bad",
    }
    columns = {f"c{number}": type_name for number, type_name in enumerate(values)}
    make_class(postgresql, "note", **columns)

    loaded = load_now(postgresql, note(**dict(zip(columns, values.values(), strict=True))))

    assert (problems(postgresql), loaded.rows) == ({}, 1)
    assert query(postgresql, "SELECT c13::text, c14 FROM note") == [
        ("2026-11-20 12:00:00", "2026-11-20T12:00:00Z")
    ]


@pytest.mark.parametrize(
    "type_name", ["text[]", "integer[]", "point", "int4range", "bytea", "made", "texts", "regclass"]
)
def test_a_column_of_a_type_that_text_cannot_fill_breaks_its_class(
    postgresql: Engine, type_name: str
) -> None:
    run(
        postgresql,
        "CREATE TYPE made AS (a integer, b text)",
        "CREATE DOMAIN texts AS text[]",
    )
    make_class(postgresql, "note", words="text", odd=type_name)

    loaded = load_now(postgresql, note(), metric_message())

    assert (loaded.rows, loaded.dead_letters) == (1, {"class-broken": 1})
    [(name, problem)] = problems(postgresql).items()
    assert name == "note"
    assert problem.startswith(f"column odd has type {type_name}")
    assert only_error(postgresql) == f"note: {problem}"
    [found] = find_problems(postgresql)
    assert found.text.endswith(f"class note: {problem}")


@pytest.mark.parametrize(
    ("type_name", "value"),
    [
        ("timestamptz", "now"),
        ("timestamptz", "infinity"),
        ("timestamp", "2026-11-20T24:00:00Z"),
        ("timestamptz", "20/11/2026 12:00"),
        ("date", "today"),
        ("date", "11/12/2026"),
        ("date", "2026-02-30"),
        ("time", "now"),
        ("time", "allballs"),
        ("time", "24:00"),
    ],
)
def test_a_time_column_takes_only_iso_times(postgresql: Engine, type_name: str, value: str) -> None:
    make_class(postgresql, "note", words="text", seenAt=type_name)

    loaded = load_now(postgresql, note(words="a", seenAt=value))

    assert (loaded.rows, loaded.dead_letters) == (0, {"bad-time": 1})
    assert value in only_error(postgresql)
    assert "seenAt" in only_error(postgresql)


def test_columns_that_differ_only_in_case_break_their_class(postgresql: Engine) -> None:
    make_class(postgresql, "note", **{'"hostName"': "text", "hostName": "text"})

    assert load_now(postgresql, note()).dead_letters == {"class-broken": 1}
    assert '"hostName" and "hostname"' in only_error(postgresql)


def test_a_view_named_like_a_built_in_class_gets_none_of_its_messages(postgresql: Engine) -> None:
    make_class(postgresql, '"MetricOutput"')

    loaded = load_now(postgresql, metric_message())

    assert (loaded.rows, loaded.dead_letters) == (1, {})
    [(name, text)] = problems(postgresql).items()
    assert name == "MetricOutput"
    assert 'view named "metricoutput"' in text
    [problem] = find_problems(postgresql)
    assert f"class MetricOutput: {text}" in problem.text


def test_classes_that_differ_only_in_case_are_both_broken(postgresql: Engine) -> None:
    make_class(postgresql, "note")
    make_class(postgresql, '"Note"')

    assert load_now(postgresql, note()).dead_letters == {"class-broken": 1}
    assert problems(postgresql).keys() == {"note", "Note"}


def test_messages_of_a_class_with_a_disabled_trigger_become_dead_letters(
    postgresql: Engine,
) -> None:
    make_class(postgresql, "note")
    run(postgresql, "UPDATE pg_trigger SET tgenabled = 'D' WHERE tgname = 'note insert'")

    assert load_now(postgresql, note()).dead_letters == {"class-broken": 1}
    assert only_error(postgresql).startswith("note: ")
    assert "trigger of view note is disabled" in only_error(postgresql)


def test_time_columns_are_known_by_their_types(postgresql: Engine) -> None:
    run(postgresql, "CREATE DOMAIN moment AS timestamptz")
    make_class(postgresql, "note", **{'"seenAt"': "moment", "day": "date", "words": "text"})

    assert find_view(postgresql, "note").times == {"seenat": "moment", "day": "day"}
