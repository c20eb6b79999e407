"""Which views can be message classes, and what is said of the others."""

from __future__ import annotations

import pytest

from sam_pipeline.sql.loading.class_problems import TEXT_FILLS, TIMES, Column, View, problem_of

SCHEMAS_OWN = {"metricoutput", "site_availability"}
TEXT = Column("text", "text", "text")


def problem(
    name: str = "note",
    columns: tuple[Column, ...] = (TEXT,),
    enabled: tuple[bool, ...] = (True,),
    rivals: tuple[str, ...] = (),
) -> str | None:
    return problem_of(View(name, columns, enabled), {name, *rivals}, SCHEMAS_OWN)


@pytest.mark.parametrize(
    "found",
    [
        *map(problem, ("note", "Note", "org.wlcg.metricEnvironment", "ü", "metricoutput")),
        *(problem(columns=(Column("x", base, "any"),)) for base in (None, *sorted(TEXT_FILLS))),
        problem(enabled=(False, True)),
        problem("Note", rivals=("notes", "\u212aote")),
    ],
)
def test_a_view_with_a_trigger_and_columns_of_plain_types_is_a_class(found: str | None) -> None:
    assert found is None
    assert TIMES.keys() < TEXT_FILLS


@pytest.mark.parametrize(
    ("found", "text"),
    [
        *(
            (problem(columns=(Column("x", base, name),)), f"column x has type {name}")
            for base, name in (("_text", "text[]"), ("", "int4range"), ("bytea", "bytea"))
        ),
        (
            problem(columns=(Column("hostname"), Column("b"), Column("hostName"))),
            'columns "hostName" and "hostname" differ only in upper and lower case',
        ),
        (problem(enabled=()), "view note has no INSTEAD OF INSERT trigger"),
        (problem(enabled=(False,)), "of view note is disabled"),
        (problem("MetricOutput"), 'a view named "metricoutput"'),
        (problem("site_availability"), 'a view named "site_availability"'),
        (problem("Sam-Check"), "never loaded"),
        *((problem(name), "no message header") for name in (" note", "no\nte", "note\u202e")),
        (problem("Note", rivals=("note",)), 'view "note" only in upper and lower case'),
    ],
)
def test_a_view_that_cannot_be_a_class_has_a_problem(found: str, text: str) -> None:
    assert text in found
    assert "; " not in found


def test_all_problems_are_reported_at_once() -> None:
    text = str(problem("sam-check", (Column("x", "_text", "text[]"),), enabled=()))

    assert text.count("; ") == 2
