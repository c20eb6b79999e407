"""Custom classes, created as an administrator would; all names as quoted in SQL."""

from __future__ import annotations

from sqlalchemy import Engine

from sam_pipeline.sql.database.engine import writing
from tests.support.database.sql_rows import query


def run(engine: Engine, *statements: str) -> None:
    with writing(engine) as connection:
        for statement in statements:
            # Without parameters a % needs no escape.
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def make_class(engine: Engine, view: str, **columns: str) -> None:
    """A table, its view, and a trigger that stores every row."""
    columns = columns or {"words": "text"}
    table = f'"kept {view.strip(chr(34))}"'
    types = ", ".join(f"{name} {type_name}" for name, type_name in columns.items())
    values = ", ".join(f"NEW.{name}" for name in columns)
    run(engine, f"CREATE TABLE {table} ({types})", f"CREATE VIEW {view} AS SELECT * FROM {table}")
    add_trigger(engine, view, f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values});")


def add_trigger(engine: Engine, view: str, into: str) -> None:
    """An INSTEAD OF INSERT trigger that runs one statement, in place of an earlier one."""
    name = f'"{view.strip(chr(34))} insert"'
    instead = f"CREATE TRIGGER {name} INSTEAD OF INSERT ON {view}"
    if engine.dialect.name == "sqlite":
        run(engine, f"DROP TRIGGER IF EXISTS {name}", f"{instead} BEGIN {into} END")
        return
    run(
        engine,
        f"DROP TRIGGER IF EXISTS {name} ON {view}",
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
        f" AS $$ BEGIN {into} RETURN NEW; END $$",
        f"{instead} FOR EACH ROW EXECUTE FUNCTION {name}()",
        f"GRANT INSERT ON {view} TO sam_loader",
    )


def drop_trigger(engine: Engine, view: str) -> str:
    """Break a built-in class; return the statement that repairs it."""
    name = f"{view}_insert"
    if engine.dialect.name == "sqlite":
        [(definition,)] = query(engine, f"SELECT sql FROM sqlite_schema WHERE name = '{name}'")
        run(engine, f"DROP TRIGGER {name}")
    else:
        of_name = f"tgname = lower('{name}')"
        [(definition,)] = query(
            engine, f"SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE {of_name}"
        )
        run(engine, f"DROP TRIGGER {name} ON {view}")
    return str(definition)
