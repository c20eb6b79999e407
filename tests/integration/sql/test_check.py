"""`check` finds all damage at once, and what it says to run mends it."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, text

from sam_pipeline.sql.checks.check import find_problems
from sam_pipeline.sql.checks.difference import Problem
from sam_pipeline.sql.database.engine import make_engine, writing
from sam_pipeline.sql.database.script import run_present_state, run_script
from sam_pipeline.sql.database.version import upgrade
from tests.services.postgres import PostgresServer, as_role, fresh_database, running_postgres
from tests.services.psql import run_psql
from tests.support.database.dialects import only_on
from tests.support.database.sql_rows import query

Damage = tuple[str | Sequence[str], Sequence[str]]
"""Statements, and what is found."""

ON_BOTH: Mapping[str, Damage] = {
    "an index is gone": ("DROP INDEX run_report_day", ["index run_report_day is missing"]),
}
ON_SQLITE: Mapping[str, Damage] = {
    "a view is gone": ("DROP VIEW report_change", ["view report_change is missing"]),
    "a trigger is gone": (
        "DROP TRIGGER downtime_insert",
        ["trigger downtime_insert is missing"],
    ),
    "a table is gone": ("DROP TABLE group_site", ["table group_site is missing"]),
    "a view was changed, which loses its trigger": (
        ["DROP VIEW downtime", "CREATE VIEW downtime AS SELECT host_id AS hostName FROM host"],
        ["view downtime was changed", "trigger downtime_insert is missing"],
    ),
    "a trigger was changed": (
        [
            "DROP TRIGGER downtime_insert",
            "CREATE TRIGGER downtime_insert INSTEAD OF INSERT ON downtime BEGIN SELECT 1; END",
        ],
        ["trigger downtime_insert was changed"],
    ),
    "a column is gone": (
        ["DROP VIEW report_run", "ALTER TABLE run DROP COLUMN who"],
        ["table run was changed", "view report_run is missing"],
    ),
    "an index was changed": (
        ["DROP INDEX run_report_day", "CREATE INDEX run_report_day ON run (day)"],
        ["index run_report_day was changed"],
    ),
}
ON_POSTGRESQL: Mapping[str, Damage] = {
    "a trigger is gone": (
        "DROP TRIGGER downtime_insert ON downtime",
        ["trigger downtime_insert on downtime is missing"],
    ),
    "a trigger is disabled": (
        "UPDATE pg_trigger SET tgenabled = 'D' WHERE tgname = 'downtime_insert'",
        ["trigger downtime_insert on downtime was changed"],
    ),
    "a trigger was changed": (
        [
            "DROP TRIGGER downtime_insert ON downtime",
            (
                "CREATE TRIGGER downtime_insert INSTEAD OF INSERT ON downtime"
                " FOR EACH ROW EXECUTE FUNCTION siteGroup_stage()"
            ),
        ],
        ["trigger downtime_insert on downtime was changed"],
    ),
    "a view shows a column more": (
        (
            "CREATE OR REPLACE VIEW downtime AS SELECT *, 1 AS more"
            " FROM (SELECT a.downtime_id AS downtimeId, a.downtime_id AS siteName,"
            " a.downtime_id AS hostName, a.downtime_id AS serviceFlavour,"
            " a.start_time AS startTime, a.end_time AS endTime, a.classification, a.severity,"
            " a.description,"
            " a.announced_at AS timestamp, a.message_id AS messageId"
            " FROM announced_downtime AS a) AS x"
        ),
        ["view downtime was changed"],
    ),
    "a view that others need shows a column more": (
        (
            "CREATE OR REPLACE VIEW metric_instance_name AS SELECT i.instance_id, i.endpoint_id,"
            " CAST('' AS text) COLLATE \"C\" AS host_name,"
            " CAST('' AS text) COLLATE \"C\" AS service_flavour,"
            " CAST('' AS text) COLLATE \"C\" AS metric_name, CAST('' AS text) COLLATE \"C\" AS vo,"
            " CAST('' AS text) COLLATE \"C\" AS fqan, 1 AS more FROM metric_instance AS i"
        ),
        ["view metric_instance_name was changed"],
    ),
    "a view shows other rows": (
        (
            "CREATE OR REPLACE VIEW report_change AS SELECT c.run_id, r.report, r.day, c.level,"
            " c.names, c.old, c.new, c.reason"
            " FROM report_change_row AS c JOIN run AS r ON r.run_id = c.run_id"
            " WHERE c.level = 'site'"
        ),
        ["view report_change was changed"],
    ),
    "a view looks with its reader's rights": (
        "ALTER VIEW report_run SET (security_barrier = true)",
        ["view report_run was changed"],
    ),
    "a function was changed": (
        (
            "CREATE OR REPLACE FUNCTION is_time(value timestamptz) RETURNS boolean"
            " LANGUAGE sql STABLE AS 'SELECT true'"
        ),
        ["function is_time(timestamp with time zone) was changed"],
    ),
    "a function gives another type": (
        [
            "DROP FUNCTION is_time(timestamptz)",
            (
                "CREATE FUNCTION is_time(value timestamptz) RETURNS text"
                " LANGUAGE sql STABLE AS $$ SELECT 'yes' $$"
            ),
        ],
        [
            "function is_time(timestamp with time zone) was changed",
            "grant EXECUTE ON is_time(timestamp with time zone) TO PUBLIC is too much",
        ],
    ),
    "a function takes the rights of the caller": (
        "ALTER FUNCTION downtime_stage SECURITY INVOKER",
        ["function downtime_stage() was changed"],
    ),
    "a function is gone, and its trigger": (
        "DROP FUNCTION downtime_stage CASCADE",
        ["function downtime_stage() is missing", "trigger downtime_insert on downtime is missing"],
    ),
    "a table is gone": (
        "DROP TABLE report_change_row CASCADE",
        [
            "table report_change_row is missing",
            "constraint report_change_row.report_change_row_pkey is missing",
            "constraint report_change_row.report_change_row_run_id_fkey is missing",
            "index report_change_row_run is missing",
            "view report_change is missing",
            "grant INSERT ON report_change_row TO sam_reporter is missing",
            "grant SELECT ON report_change TO sam_reader is missing",
            "grant SELECT ON report_change TO sam_reporter is missing",
        ],
    ),
    "a column is gone": (
        "ALTER TABLE dead_letter DROP COLUMN error",
        [
            "column dead_letter.error is missing",
            "grant UPDATE (error) ON dead_letter TO sam_loader is missing",
        ],
    ),
    "columns were changed": (
        [
            "ALTER TABLE dead_letter ALTER COLUMN error DROP NOT NULL",
            "ALTER TABLE dead_letter ALTER COLUMN state SET DEFAULT 'dropped'",
            "ALTER TABLE dead_letter ALTER COLUMN reason TYPE varchar(50)",
            "ALTER TABLE dead_letter ALTER COLUMN headers SET NOT NULL",
            "ALTER TABLE dead_letter ALTER COLUMN dead_letter_id DROP IDENTITY",
        ],
        [
            "column dead_letter.dead_letter_id was changed",
            "column dead_letter.reason was changed",
            "column dead_letter.error was changed",
            "column dead_letter.state was changed",
        ],
    ),
    "a constraint is gone": (
        "ALTER TABLE dead_letter DROP CONSTRAINT dead_letter_message_id_record_number_key",
        ["constraint dead_letter.dead_letter_message_id_record_number_key is missing"],
    ),
    "a constraint was changed": (
        [
            "ALTER TABLE dead_letter DROP CONSTRAINT dead_letter_state_check",
            "ALTER TABLE dead_letter ADD CONSTRAINT dead_letter_state_check CHECK (state <> '')",
        ],
        ["constraint dead_letter.dead_letter_state_check was changed"],
    ),
    "an index is invalid": (
        (
            "UPDATE pg_index SET indisvalid = false"
            " WHERE indexrelid = CAST('run_report_day' AS regclass)"
        ),
        ["index run_report_day was changed"],
    ),
    "a grant is gone": (
        "REVOKE INSERT ON downtime FROM sam_loader",
        ["grant INSERT ON downtime TO sam_loader is missing"],
    ),
    "a grant of a column is gone": (
        "REVOKE UPDATE (state) ON run FROM sam_reporter",
        ["grant UPDATE (state) ON run TO sam_reporter is missing"],
    ),
    "the loader may read and delete": (
        "GRANT SELECT, DELETE ON metric_result TO sam_loader",
        [
            "grant DELETE ON metric_result TO sam_loader is too much",
            "grant SELECT ON metric_result TO sam_loader is too much",
        ],
    ),
    "the loader may read a column": (
        "GRANT SELECT (name) ON site TO sam_loader",
        ["grant SELECT (name) ON site TO sam_loader is too much"],
    ),
    "the loader may pass on what it may": (
        "GRANT INSERT ON downtime TO sam_loader WITH GRANT OPTION",
        ["grant INSERT ON downtime TO sam_loader was changed"],
    ),
    "all may read": (
        "GRANT SELECT ON site_availability TO PUBLIC",
        ["grant SELECT ON site_availability TO PUBLIC is too much"],
    ),
    "all may run a function": (
        "GRANT EXECUTE ON FUNCTION lock_names TO PUBLIC",
        ["grant EXECUTE ON lock_names() TO PUBLIC is too much"],
    ),
    "all may make tables": (
        "GRANT CREATE ON SCHEMA public TO PUBLIC",
        ["grant CREATE ON SCHEMA public TO PUBLIC is too much"],
    ),
    "the loader may make tables": (
        "GRANT CREATE ON SCHEMA public TO sam_loader",
        ["grant CREATE ON SCHEMA public TO sam_loader is too much"],
    ),
    "the owner may not make tables": (
        "REVOKE CREATE ON SCHEMA public FROM sam_owner",
        ["grant CREATE ON SCHEMA public TO sam_owner is missing"],
    ),
    "somebody else owns tables": (
        ["ALTER TABLE site OWNER TO sam", "ALTER VIEW downtime OWNER TO reader_login"],
        ["2 of our objects belong to reader_login, sam, not to sam_owner"],
    ),
}
OWNER_TOO = "1 of our objects belong to sam, not to sam_owner"
"""Who damages a database makes objects of his own."""


def execute(engine: Engine, *statements: str) -> None:
    for statement in statements:
        with writing(engine) as connection:
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def words(problems: Sequence[Problem]) -> list[str]:
    return [problem.words.rpartition(": ")[2] for problem in problems]


def mend(engine: Engine, problems: Sequence[Problem]) -> None:
    """Run what `check` says, as an administrator would."""
    script = "\n".join(problem.mend or "" for problem in problems)
    if engine.dialect.name == "postgresql":
        run_psql(engine.url.render_as_string(hide_password=False), script)
        engine.dispose()
        return
    file = engine.get_execution_options()["sam_file"]
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.executescript(script)


@pytest.fixture(scope="module")
def mended_url(postgres: PostgresServer) -> str:
    """A database that every test leaves as it should be."""
    url = fresh_database(postgres)
    engine = make_engine(url)
    upgrade(engine)
    engine.dispose()
    return url


@pytest.mark.parametrize("name", [*ON_BOTH, *ON_POSTGRESQL])
def test_damage_to_postgresql_is_found_and_mended(mended_url: str, name: str) -> None:
    engine = make_engine(mended_url)

    find_and_mend(engine, *{**ON_BOTH, **ON_POSTGRESQL}[name])

    engine.dispose()


@pytest.mark.parametrize("name", [*ON_BOTH, *ON_SQLITE])
def test_damage_to_sqlite_is_found_and_mended(tmp_path: Path, name: str) -> None:
    engine = make_engine(f"sqlite:///{tmp_path}/sam.db", create=True)
    upgrade(engine)

    find_and_mend(engine, *{**ON_BOTH, **ON_SQLITE}[name])

    engine.dispose()


def find_and_mend(engine: Engine, damage: str | Sequence[str], expected: Sequence[str]) -> None:
    execute(engine, *([damage] if isinstance(damage, str) else damage))

    found = find_problems(engine)

    assert [one for one in words(found) if one != OWNER_TOO] == list(expected)
    mend(engine, found)
    assert find_problems(engine) == []


def test_all_is_found_and_mended_at_once(own_engine: Engine) -> None:
    assert find_problems(own_engine) == []
    on_view = "" if own_engine.dialect.name == "sqlite" else " ON downtime"
    execute(
        own_engine,
        f"DROP TRIGGER downtime_insert{on_view}",
        "DROP VIEW report_change",
        "DROP VIEW report_run",
        "CREATE VIEW report_run AS SELECT run_id FROM run",
        "DROP INDEX run_report_day",
    )

    found = find_problems(own_engine)

    assert [one for one in words(found) if not one.startswith("grant") and one != OWNER_TOO] == [
        "index run_report_day is missing",
        "view report_run was changed",
        "view report_change is missing",
        f"trigger downtime_insert{on_view.lower()} is missing",
    ]
    mend(own_engine, found)
    assert find_problems(own_engine) == []


@only_on("sqlite", "bare_engine")
def test_rows_survive_the_mending_of_an_sqlite_table(own_engine: Engine) -> None:
    execute(
        own_engine,
        "INSERT INTO site (name) VALUES ('S'), ('T')",
        "DROP VIEW report_run",
        "INSERT INTO run (report, day, started_at, state) VALUES ('r', 'day', 1, 'failed')",
        "INSERT INTO report_change_row (run_id, level, names, reason) VALUES (1, 'x', '', '')",
        "ALTER TABLE run DROP COLUMN who",
    )

    mend(own_engine, find_problems(own_engine))

    assert query(own_engine, "SELECT report, who FROM run") == [("r", None)]
    assert query(own_engine, "SELECT run_id, level FROM report_change_row") == [(1, "x")]


def test_what_is_made_again_has_its_comment(postgres_url: str) -> None:
    engine = make_engine(postgres_url)
    upgrade(engine)
    comments = "SELECT description FROM pg_description WHERE objoid >= 16384 ORDER BY 1"
    before = query(engine, comments)
    execute(
        engine,
        "DROP VIEW report_change",
        "DROP INDEX run_report_day",
        "DROP FUNCTION downtime_stage CASCADE",
    )

    mend(engine, find_problems(engine))

    assert query(engine, comments) == before
    engine.dispose()


def test_a_sites_own_objects_and_roles_are_its_own_business(own_engine: Engine) -> None:
    execute(
        own_engine,
        "CREATE VIEW of_my_own AS SELECT run_id FROM run",
        "CREATE INDEX of_mine ON run (who)",
    )
    if own_engine.dialect.name == "postgresql":
        execute(
            own_engine,
            "CREATE ROLE grafana LOGIN",
            "GRANT SELECT ON site_availability, of_my_own TO grafana",
            "GRANT SELECT ON of_my_own TO sam_reader, PUBLIC",
            "CREATE AGGREGATE mine (integer) (SFUNC = int4pl, STYPE = integer)",
        )

    assert find_problems(own_engine) == []

    if own_engine.dialect.name == "postgresql":
        execute(own_engine, "DROP OWNED BY grafana", "DROP ROLE grafana")


PARTITIONED = """
    CREATE TABLE by_day (
        number bigint GENERATED ALWAYS AS IDENTITY,
        day date NOT NULL,
        note text,
        PRIMARY KEY (number, day)
    ) PARTITION BY RANGE (day);
    CREATE INDEX by_day_note ON by_day (note);
"""
A_PARTITION = """
    SET LOCAL ROLE sam_owner;
    CREATE TABLE by_day_20261121 PARTITION OF by_day
        FOR VALUES FROM ('2026-11-21') TO ('2026-11-22');
    CREATE INDEX of_this_day_only ON by_day_20261121 (day);
"""


def test_partitions_are_as_their_table_says(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_all(connection: Connection) -> None:
        run_present_state(connection)
        run_script(connection, PARTITIONED)

    monkeypatch.setattr("sam_pipeline.sql.checks.schema_objects.run_present_state", make_all)
    engine = make_engine(postgres_url)
    upgrade(engine)
    execute(engine, f"SET LOCAL ROLE sam_owner; {PARTITIONED}")
    execute(engine, A_PARTITION)
    assert find_problems(engine) == []

    for damage, expected in (
        ("DROP INDEX by_day_note", "index by_day_note is missing"),
        ("ALTER TABLE by_day DROP CONSTRAINT by_day_pkey", "by_day.by_day_pkey is missing"),
        ("ALTER TABLE by_day_20261121 OWNER TO sam", "objects belong to sam, not to sam_owner"),
    ):
        execute(engine, damage)
        [problem] = find_problems(engine)
        assert problem.words.endswith(expected)
        mend(engine, [problem])
        assert find_problems(engine) == []
    execute(engine, "DROP TABLE by_day")
    mend(engine, find_problems(engine))
    execute(engine, A_PARTITION)
    assert find_problems(engine) == []
    engine.dispose()


HARM = r"is (off|false): a crash can lose|fsync is off|session_replication_role is (replica|local)"
SETTINGS = {
    "of the database": ("ALTER DATABASE {database} SET synchronous_commit = off", 1),
    "of the loader": ("ALTER ROLE loader_login SET synchronous_commit = off", 1),
    "of the loader in this database": (
        "ALTER ROLE loader_login IN DATABASE {database} SET synchronous_commit = off",
        1,
    ),
    "of the server": ("ALTER SYSTEM SET synchronous_commit = off", 1),
    "of the disk": ("ALTER SYSTEM SET fsync = off", 1),
    "in other words": ("ALTER DATABASE {database} SET synchronous_commit = FALSE", 1),
    "of the triggers": ("ALTER DATABASE {database} SET session_replication_role = replica", 1),
    "of the loader's triggers": ("ALTER ROLE loader_login SET session_replication_role = local", 1),
    "of all triggers": ("ALTER SYSTEM SET session_replication_role = replica", 1),
    "of the loader elsewhere": (
        "ALTER ROLE loader_login IN DATABASE postgres SET synchronous_commit = off",
        0,
    ),
    "of somebody else": ("ALTER ROLE reader_login SET synchronous_commit = off", 0),
}


@pytest.mark.parametrize("where", SETTINGS)
def test_a_setting_that_loses_data_is_found_wherever_it_is_made(
    postgres: PostgresServer, postgres_url: str, where: str
) -> None:
    engine = make_engine(postgres_url)
    upgrade(engine)
    statement, expected = SETTINGS[where]
    try:
        postgres.execute(statement.format(database=engine.url.database))
        postgres.execute("SELECT pg_reload_conf()")
        engine.dispose()

        found = find_problems(engine)

        assert len(found) == expected
        assert all(re.search(HARM, problem.words) for problem in found)
        mend(engine, found)
        assert find_problems(engine) == []
    finally:
        for role in ("loader_login", "reader_login"):
            postgres.execute(f"ALTER ROLE {role} RESET ALL")
            postgres.execute(f"ALTER ROLE {role} IN DATABASE postgres RESET ALL")
        postgres.execute("ALTER SYSTEM RESET ALL")
        postgres.execute("SELECT pg_reload_conf()")
        engine.dispose()


ROLE_DAMAGES: Mapping[str, Damage] = {
    "a role is gone": (
        ["DROP OWNED BY sam_reader", "DROP ROLE sam_reader"],
        ["no role sam_reader"],
    ),
    "all roles are gone": (
        [
            "REASSIGN OWNED BY sam_owner TO sam",
            *(
                f"DROP {what} sam_{role}"
                for role in ("owner", "loader", "reporter", "reader")
                for what in ("OWNED BY", "ROLE")
            ),
        ],
        [
            "no role sam_owner, sam_loader, sam_reporter, sam_reader",
            "functions run with the rights of their owner",
        ],
    ),
    "a role is more than it should be": (
        "ALTER ROLE sam_loader SUPERUSER",
        ["role sam_loader has powers over the whole server"],
    ),
    "a role has the rights of another": (
        "GRANT sam_owner TO sam_reader",
        ["role sam_reader is a member of sam_owner"],
    ),
    "all may make temporary tables": (
        "GRANT TEMPORARY ON DATABASE {database} TO PUBLIC",
        ["grant TEMPORARY ON DATABASE {database} TO PUBLIC is too much"],
    ),
}


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """Roles belong to the server: who damages them needs one."""
    with running_postgres() as server:
        yield server


@pytest.mark.parametrize("name", ROLE_DAMAGES)
def test_damage_to_roles_is_found_and_mended(own_server: PostgresServer, name: str) -> None:
    engine = make_engine(fresh_database(own_server))
    upgrade(engine)
    statements, expected = ROLE_DAMAGES[name]
    try:
        for statement in [statements] if isinstance(statements, str) else statements:
            execute(engine, statement.format(database=engine.url.database))

        found = find_problems(engine)

        assert words(found) == [one.format(database=engine.url.database) for one in expected]
        mend(engine, found)
        assert find_problems(engine) == []
    finally:
        engine.dispose()
        own_server.execute(f"DROP DATABASE {engine.url.database}")


def test_a_schema_of_a_superuser_is_handed_over(postgres_url: str) -> None:
    engine = make_engine(postgres_url)
    upgrade(engine)
    execute(engine, "REASSIGN OWNED BY sam_owner TO sam")

    [problem] = find_problems(engine)

    assert "belong to sam, not to sam_owner: functions run" in problem.words
    mend(engine, [problem])
    assert find_problems(engine) == []
    engine.dispose()


@pytest.mark.parametrize("role", ["loader", "reporter", "reader"])
def test_whoever_may_not_compare_is_told_so(postgres_url: str, role: str) -> None:
    engine = make_engine(postgres_url)
    upgrade(engine)
    execute(engine, "GRANT CREATE ON SCHEMA public TO PUBLIC")
    engine.dispose()
    other = make_engine(as_role(postgres_url, role))

    found = [problem.words for problem in find_problems(other)]

    assert "grant CREATE ON SCHEMA public TO PUBLIC is too much" in found[0]
    assert "can't be compared (run as their owner)" in found[1]
    assert len(found) == 2
    other.dispose()


def test_another_schema_is_refused(postgres: PostgresServer, postgres_url: str) -> None:
    engine = make_engine(postgres_url)
    upgrade(engine)
    name = engine.url.database
    execute(engine, "CREATE SCHEMA elsewhere")
    postgres.execute(f"ALTER DATABASE {name} SET search_path = elsewhere, public")
    engine.dispose()

    [problem] = find_problems(engine)

    assert problem.words.endswith("the user's schema is elsewhere; wanted public")
    mend(engine, [problem])
    assert find_problems(engine) == []
    engine.dispose()
    with make_engine(postgres_url).connect() as connection:
        connection.execute(text("ALTER ROLE sam RESET search_path"))
