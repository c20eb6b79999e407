"""SQL scripts, statement by statement."""

from __future__ import annotations

from sam_pipeline.sql.database.script import present_state, statements

TRIGGER = """\
CREATE TRIGGER t INSTEAD OF INSERT ON v BEGIN
    SELECT CASE WHEN NEW.a = ';' THEN RAISE(ABORT, 'no; never') END;
    INSERT INTO a VALUES (1);
END;"""


def test_a_script_is_split_at_the_ends_of_its_statements() -> None:
    script = "-- first\nCREATE TABLE a (b text);\n\nCREATE INDEX i\n    ON a (b);\n"

    assert list(statements(script)) == [
        "-- first\nCREATE TABLE a (b text);",
        "CREATE INDEX i\n    ON a (b);",
    ]


def test_a_semicolon_in_a_string_comment_or_trigger_does_not_end_a_statement() -> None:
    insert = "INSERT INTO a VALUES ('x;\ny'); -- and; so; on"

    assert list(statements(f"-- one; two\n{insert}\n{TRIGGER}\n")) == [
        f"-- one; two\n{insert}",
        TRIGGER,
    ]


def test_the_last_statement_needs_no_semicolon_and_a_comment_at_the_end_is_not_a_statement() -> (
    None
):
    assert list(statements("SELECT 1;\nSELECT 2")) == ["SELECT 1;", "SELECT 2"]
    assert list(statements("SELECT 1;\n\n-- the end\n")) == ["SELECT 1;"]
    assert list(statements("\n\n")) == []


def test_no_statement_of_the_schema_is_lost() -> None:
    script = "".join(present_state("sqlite"))

    split = list(statements(script))

    assert "".join("".join(split).split()) == "".join(script.split())
