"""Which parts of a table of SQLite differ."""

from __future__ import annotations

import pytest

from sam_pipeline.sql.checks.schema_objects import table_differences

TABLE = (
    "CREATE TABLE t(id integer PRIMARY KEY,state text NOT NULL DEFAULT 'a,(b'"
    " CHECK(state IN('a,(b','c')),size integer,UNIQUE(state,size)) STRICT"
)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (",size integer,", ",", ["column t.size is missing"]),
        (",size integer,", ",size integer,note text,", ["unexpected column t.note"]),
        ("size integer", "size text", ["column t.size was changed"]),
        ("size integer", "size", ["column t.size was changed"]),
        (",'c'", "", ["column t.state was changed"]),
        ("'a,(b'", "'a'", ["column t.state was changed"]),
        (
            "size integer",
            'extent integer,"else" text',
            ["column t.size is missing", "unexpected column t.extent", "unexpected column t.else"],
        ),
        (
            "UNIQUE(state,size)",
            "CHECK(size > 0)",
            [
                "constraint UNIQUE(state,size) on t is missing",
                "unexpected constraint CHECK(size > 0) on t",
            ],
        ),
        (" STRICT", "", ["table t was changed"]),
        (
            "size integer,UNIQUE(state,size)",
            "UNIQUE(state,size),size integer",
            ["table t was changed"],
        ),
    ],
)
def test_a_difference_names_column_or_constraint(old: str, new: str, expected: list[str]) -> None:
    assert old in TABLE

    differences = table_differences("t", TABLE.replace(old, new), TABLE)

    assert [str(difference) for difference in differences] == expected


def test_a_difference_has_the_wanted_definition() -> None:
    altered = TABLE.replace("size integer", "size text")

    assert [difference.wanted for difference in table_differences("t", altered, TABLE)] == [
        "integer"
    ]
