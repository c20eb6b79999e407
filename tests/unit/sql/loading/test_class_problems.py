"""Which views can be message classes, and what is said of the others."""

from __future__ import annotations

import pytest

from sam_pipeline.sql.loading.class_problems import TEXT_FILLS, TIMES, Column, View, problem_of

SCHEMAS_OWN = {"metricoutput", "site_availability"}


def problem(
    name: str = "note",
    columns: tuple[Column, ...] = (Column("text", "text", "text"),),
    enabled: tuple[bool, ...] = (True,),
    rivals: tuple[str, ...] = (),
) -> str | None:
    return problem_of(View(name, columns, enabled), {name, *rivals}, SCHEMAS_OWN)


@pytest.mark.parametrize(
    "name", ["note", "Note", "org.wlcg.metricEnvironment", "ü", "metricoutput"]
)
def test_a_view_with_a_trigger_and_columns_of_text_is_a_class(name: str) -> None:
    assert problem(name) is None


@pytest.mark.parametrize("base", [None, *sorted(TEXT_FILLS)])
def test_a_column_of_a_plain_type_is_filled_by_text(base: str | None) -> None:
    assert problem(columns=(Column("x", base, "whatever"),)) is None


def test_every_type_of_time_is_one_that_text_fills() -> None:
    assert TIMES.keys() < TEXT_FILLS


@pytest.mark.parametrize(
    ("base", "type_name"),
    [("_text", "text[]"), ("", "int4range"), ("point", "point"), ("bytea", "bytea")],
)
def test_a_column_of_another_type_is_named_with_it(base: str, type_name: str) -> None:
    assert problem(columns=(Column("x", base, type_name),)) == (
        f"column x has type {type_name}, which no text can fill"
    )


def test_columns_must_differ_in_more_than_case() -> None:
    columns = tuple(Column(name, "text", "text") for name in ("hostname", "b", "hostName"))

    assert problem(columns=columns) == (
        'columns "hostName" and "hostname" differ only in upper and lower case'
    )


@pytest.mark.parametrize(
    ("enabled", "text"),
    [((), "view note has no INSTEAD OF INSERT trigger"), ((False,), "of view note is disabled")],
)
def test_a_view_needs_a_trigger_that_works(enabled: tuple[bool, ...], text: str) -> None:
    assert text in str(problem(enabled=enabled))


def test_of_two_triggers_one_may_be_disabled() -> None:
    assert problem(enabled=(False, True)) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("MetricOutput", 'a view named "metricoutput"'),
        ("site_availability", 'a view named "site_availability"'),
        ("Sam-Check", "never loaded"),
        (" note", "no message header can carry the name ' note'"),
        ("no\nte", "no message header"),
        ("note\u202e", "no message header"),
    ],
)
def test_a_name_that_is_taken_or_cannot_travel_is_refused(name: str, text: str) -> None:
    assert text in str(problem(name))


def test_two_classes_must_differ_in_more_than_case() -> None:
    assert problem("Note", rivals=("note",)) == (
        'differs from view "note" only in upper and lower case'
    )
    assert problem("Note", rivals=("notes", "\u212aote")) is None


def test_all_problems_are_reported_at_once() -> None:
    text = str(problem("sam-check", (Column("x", "_text", "text[]"),), enabled=()))

    assert text.count("; ") == 2
