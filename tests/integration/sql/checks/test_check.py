"""`check` finds all damage at once, and the command it names repairs everything but tables."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, inspect, make_url, text

from sam_pipeline.sql.checks.check import find_problems
from sam_pipeline.sql.checks.problem import REPAIR_COMMAND, Problem
from sam_pipeline.sql.checks.repair import repair
from sam_pipeline.sql.cli import main
from sam_pipeline.sql.database.engine import make_engine, reading, writing
from sam_pipeline.sql.database.roles import ROLES_COMMAND
from sam_pipeline.sql.database.script import run_present_state, run_script
from sam_pipeline.sql.database.version import access_script, upgrade
from tests.services.postgres import (
    PASSWORD,
    PostgresServer,
    as_role,
    fresh_database,
    running_postgres,
)
from tests.services.psql import run_psql
from tests.support.database.sql_rows import query

Damage = tuple[str | Sequence[str], Sequence[str]]
"""Statements, and the text of each problem that they cause, or a stem of it."""

ON_SQLITE: Mapping[str, Damage] = {
    "a view is gone": ("DROP VIEW report_change", ["view report_change is missing"]),
    "a trigger is gone": (
        "DROP TRIGGER downtime_insert",
        ["trigger downtime_insert is missing"],
    ),
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
    "a view shows an additional column": (
        (
            "CREATE OR REPLACE VIEW downtime AS SELECT *, 1 AS more"
            " FROM (SELECT a.downtime_id AS downtimeId, a.downtime_id AS siteName,"
            " a.downtime_id AS hostName, a.downtime_id AS serviceFlavour,"
            " a.start_time AS startTime, a.end_time AS endTime, a.classification, a.severity,"
            " a.description,"
            " a.announced_at AS timestamp, a.message_id AS messageId,"
            " CAST('' AS text) COLLATE \"C\" AS publisher, a.received_at AS receivedAt"
            " FROM announced_downtime AS a) AS x"
        ),
        ["view downtime was changed"],
    ),
    "a view that others need shows an additional column": (
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
            " c.names, c.old, c.new, c.reason, c.old_run_id"
            " FROM report_change_row AS c JOIN run AS r ON r.run_id = c.run_id"
            " WHERE c.level = 'site'"
        ),
        ["view report_change was changed"],
    ),
    "a view has another option": (
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
    "a function returns another type": (
        [
            "DROP FUNCTION is_time(timestamptz)",
            (
                "CREATE FUNCTION is_time(value timestamptz) RETURNS text"
                " LANGUAGE sql STABLE AS $$ SELECT 'yes' $$"
            ),
        ],
        [
            "function is_time(timestamp with time zone) was changed",
            "unexpected grant EXECUTE ON FUNCTION is_time(timestamp with time zone) TO PUBLIC",
        ],
    ),
    "a function runs with the rights of its caller": (
        "ALTER FUNCTION downtime_stage SECURITY INVOKER",
        ["function downtime_stage() was changed"],
    ),
    "a function is gone, and its trigger": (
        "DROP FUNCTION downtime_stage CASCADE",
        ["function downtime_stage() is missing", "trigger downtime_insert on downtime is missing"],
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
            "unexpected grant DELETE ON metric_result TO sam_loader",
            "unexpected grant SELECT ON metric_result TO sam_loader",
        ],
    ),
    "the loader may read a column": (
        "GRANT SELECT (name) ON site TO sam_loader",
        ["unexpected grant SELECT (name) ON site TO sam_loader"],
    ),
    "the loader may pass on its rights": (
        "GRANT INSERT ON downtime TO sam_loader WITH GRANT OPTION",
        ["grant INSERT ON downtime TO sam_loader was changed"],
    ),
    "all may read": (
        "GRANT SELECT ON site_availability TO PUBLIC",
        ["unexpected grant SELECT ON site_availability TO PUBLIC"],
    ),
    "all may run a function": (
        "GRANT EXECUTE ON FUNCTION lock_names TO PUBLIC",
        ["unexpected grant EXECUTE ON FUNCTION lock_names() TO PUBLIC"],
    ),
    "all may make tables": (
        "GRANT CREATE ON SCHEMA public TO PUBLIC",
        ["unexpected grant CREATE ON SCHEMA public TO PUBLIC"],
    ),
    "the loader may make tables": (
        "GRANT CREATE ON SCHEMA public TO sam_loader",
        ["unexpected grant CREATE ON SCHEMA public TO sam_loader"],
    ),
    "the owner may not make tables": (
        "REVOKE CREATE ON SCHEMA public FROM sam_owner",
        ["grant CREATE ON SCHEMA public TO sam_owner is missing"],
    ),
    "somebody else owns tables": (
        ["ALTER TABLE site OWNER TO sam", "ALTER VIEW downtime OWNER TO reader_login"],
        ["to reader_login, sam, not to sam_owner"],
    ),
}
TABLES_ON_SQLITE: Mapping[str, Damage] = {
    "an index is gone": ("DROP INDEX run_report_day", ["index run_report_day is missing"]),
    "a table is gone": ("DROP TABLE group_site", ["table group_site is missing"]),
    "a column is gone": (
        ["DROP VIEW report_run", "ALTER TABLE run DROP COLUMN who"],
        ["column run.who is missing", "view report_run is missing"],
    ),
    "a column was added": (
        "ALTER TABLE run ADD COLUMN note text",
        ["unexpected column run.note"],
    ),
    "columns and a constraint were changed": (
        [
            "DROP TABLE group_site",
            (
                "CREATE TABLE group_site (run_id integer NOT NULL REFERENCES run ON DELETE CASCADE,"
                " group_type text, group_name text NOT NULL, weight real NOT NULL,"
                " PRIMARY KEY (run_id, group_type, group_name)) STRICT"
            ),
        ],
        [
            "column group_site.group_type was changed",
            "column group_site.site is missing",
            "column group_site.weight was changed",
            "constraint PRIMARY KEY(run_id,group_type,group_name,site) on group_site is missing",
            "unexpected constraint PRIMARY KEY(run_id,group_type,group_name) on group_site",
        ],
    ),
    "the options of a table were changed": (
        [
            "DROP TABLE horizon",
            "CREATE TABLE horizon (day text PRIMARY KEY)",
        ],
        ["table horizon was changed"],
    ),
    "an index was changed": (
        ["DROP INDEX run_report_day", "CREATE INDEX run_report_day ON run (day)"],
        ["index run_report_day was changed"],
    ),
}
KEY_OF_LETTERS = "dead_letter_message_id_record_number_body_digest_key"
TABLES_ON_POSTGRESQL: Mapping[str, Damage] = {
    "an index is gone": ("DROP INDEX run_report_day", ["index run_report_day is missing"]),
    "a table is gone": (
        "DROP TABLE report_change_row CASCADE",
        [
            "table report_change_row is missing",
            "constraint report_change_row.report_change_row_pkey is missing",
            "constraint report_change_row.report_change_row_run_id_fkey is missing",
            "index report_change_row_run is missing",
            "view report_change is missing",
            "view report_candidate is missing",
            "trigger report_change_row_insert on report_change_row is missing",
            "grant INSERT ON report_change_row TO sam_reporter is missing",
            "grant SELECT ON report_change TO sam_reader is missing",
            "grant SELECT ON report_change TO sam_reporter is missing",
            "grant SELECT ON report_candidate TO sam_reader is missing",
            "grant SELECT ON report_candidate TO sam_reporter is missing",
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
        f"ALTER TABLE dead_letter DROP CONSTRAINT {KEY_OF_LETTERS}",
        [f"constraint dead_letter.{KEY_OF_LETTERS} is missing"],
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
}
OF_TABLES = (
    "table ",
    "column ",
    "constraint ",
    "index ",
    "unexpected column ",
    "unexpected constr",
)
ROWS = (
    "INSERT INTO site (name) VALUES ('S'), ('T')",
    "INSERT INTO run (report, day, started_at, state) VALUES ('r', {day}, {now}, 'failed')",
    "INSERT INTO report_change_row (run_id, level, names, reason) VALUES (1, 'x', '', '')",
)
WRONG_OWNER = "to sam, not to sam_owner"
"""The administrator who damages a database owns the objects that the damage creates."""


@pytest.fixture(scope="module")
def repaired_url(postgres: PostgresServer) -> str:
    """A database that every test leaves repaired."""
    url = fresh_database(postgres)
    engine = make_engine(url)
    upgrade(engine)
    engine.dispose()
    return url


@pytest.mark.parametrize("name", ON_POSTGRESQL)
def test_damage_to_postgresql_is_found_and_repaired(repaired_url: str, name: str) -> None:
    engine = make_engine(repaired_url)

    find_and_solve(engine, *ON_POSTGRESQL[name])

    engine.dispose()


@pytest.mark.parametrize("name", ON_SQLITE)
def test_damage_to_sqlite_is_found_and_repaired(tmp_path: Path, name: str) -> None:
    engine = make_engine(f"sqlite:///{tmp_path}/sam.db", create=True)
    upgrade(engine)

    find_and_solve(engine, *ON_SQLITE[name])

    engine.dispose()


def find_and_solve(engine: Engine, damage: str | Sequence[str], expected: Sequence[str]) -> None:
    execute(engine, *([damage] if isinstance(damage, str) else damage))

    problems = find_problems(engine)

    of_damage = [text for text in texts(problems) if not text.endswith(WRONG_OWNER)]
    assert len(of_damage) == len(expected)
    assert all(text.endswith(stem) for text, stem in zip(of_damage, expected, strict=True))
    solve(engine, problems)
    assert find_problems(engine) == []


@pytest.mark.parametrize("name", TABLES_ON_POSTGRESQL)
def test_damage_to_a_table_of_postgresql_is_found_and_left_alone(
    postgres_url: str, name: str
) -> None:
    engine = make_engine(postgres_url)
    upgrade(engine)

    find_and_leave(engine, *TABLES_ON_POSTGRESQL[name])

    engine.dispose()


@pytest.mark.parametrize("name", TABLES_ON_SQLITE)
def test_damage_to_a_table_of_sqlite_is_found_and_left_alone(tmp_path: Path, name: str) -> None:
    engine = make_engine(f"sqlite:///{tmp_path}/sam.db", create=True)
    upgrade(engine)

    find_and_leave(engine, *TABLES_ON_SQLITE[name])

    engine.dispose()


def find_and_leave(engine: Engine, damage: str | Sequence[str], expected: Sequence[str]) -> None:
    is_sqlite = engine.dialect.name == "sqlite"
    day, now = ("'2026-11-20'", "1") if is_sqlite else ("DATE '2026-11-20'", "now()")
    execute(engine, *(statement.format(day=day, now=now) for statement in ROWS))
    execute(engine, *([damage] if isinstance(damage, str) else damage))
    before = rows(engine)

    problems = find_problems(engine)

    assert texts(problems) == list(expected)
    # A view or a grant on a missing table can't be repaired either.
    remaining = repair(engine).problems
    assert [problem for problem in problems if problem.repair is None] == [
        problem for problem in remaining if problem.repair is None
    ]
    for problem, problem_text in zip(problems, texts(problems), strict=True):
        assert problem_text.startswith(OF_TABLES) == (problem.repair is None)
    assert remaining == find_problems(engine)
    assert rows(engine) == before


def rows(engine: Engine) -> dict[str, list[tuple[object, ...]]]:
    tables = ["site", "run", "dead_letter", "report_change_row"]
    with reading(engine) as connection:
        present = inspect(connection).get_table_names()
    return {name: query(engine, f"SELECT * FROM {name}") for name in tables if name in present}


def execute(engine: Engine, *statements: str) -> None:
    for statement in statements:
        with writing(engine) as connection:
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def texts(problems: Sequence[Problem]) -> list[str]:
    """The problems without the database's name and without the expected definition."""
    return [problem.text.partition(" (expected: ")[0].rpartition(": ")[2] for problem in problems]


def solve(engine: Engine, problems: Sequence[Problem]) -> None:
    """Run the commands that `check` names, in its order, as an administrator would."""
    for command in dict.fromkeys(problem.repair for problem in problems if problem.repair):
        if command == REPAIR_COMMAND:
            repair(engine)
        elif engine.dialect.name == "sqlite":
            file = engine.get_execution_options()["sam_file"]
            with closing(sqlite3.connect(file, isolation_level=None)) as connection:
                connection.executescript(command)
        else:
            script = access_script() if command == ROLES_COMMAND else command
            run_psql(engine.url.render_as_string(hide_password=False), script)
    engine.dispose()


def test_all_problems_are_found_and_repaired_at_once(own_engine: Engine) -> None:
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

    problems = find_problems(own_engine)

    of_objects = [text for text in texts(problems) if not text.startswith("grant")]
    assert [text for text in of_objects if not text.endswith(WRONG_OWNER)] == [
        "index run_report_day is missing",
        "view report_run was changed",
        "view report_change is missing",
        f"trigger downtime_insert{on_view.lower()} is missing",
    ]
    solve(own_engine, problems)
    assert texts(find_problems(own_engine)) == ["index run_report_day is missing"]


def test_a_sites_own_objects_and_roles_are_no_problem(own_engine: Engine) -> None:
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


def test_partitions_are_compared_as_part_of_their_table(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_with_partitions(connection: Connection) -> None:
        run_present_state(connection)
        run_script(connection, PARTITIONED)

    monkeypatch.setattr(
        "sam_pipeline.sql.checks.schema_objects.run_present_state", make_with_partitions
    )
    engine = make_engine(postgres_url)
    upgrade(engine)
    execute(engine, f"SET LOCAL ROLE sam_owner; {PARTITIONED}")
    execute(engine, A_PARTITION)
    assert find_problems(engine) == []

    execute(engine, "ALTER TABLE by_day_20261121 OWNER TO sam")
    problems = find_problems(engine)
    [problem_text] = texts(problems)
    assert problem_text.startswith("1 ")
    assert problem_text.endswith(WRONG_OWNER)
    solve(engine, problems)
    assert find_problems(engine) == []

    for damage, expected, remedy in (
        (
            "DROP INDEX by_day_note",
            "index by_day_note is missing",
            "CREATE INDEX by_day_note ON by_day (note)",
        ),
        (
            "ALTER TABLE by_day DROP CONSTRAINT by_day_pkey",
            "constraint by_day.by_day_pkey is missing",
            "ALTER TABLE by_day ADD PRIMARY KEY (number, day)",
        ),
        ("DROP TABLE by_day", "table by_day is missing", PARTITIONED),
    ):
        execute(engine, damage)
        assert expected in texts(find_problems(engine))
        execute(engine, f"SET LOCAL ROLE sam_owner; {remedy}")
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
    "in another spelling": ("ALTER DATABASE {database} SET synchronous_commit = FALSE", 1),
    "of the triggers": ("ALTER DATABASE {database} SET session_replication_role = replica", 1),
    "of the loader's triggers": ("ALTER ROLE loader_login SET session_replication_role = local", 1),
    "of all triggers": ("ALTER SYSTEM SET session_replication_role = replica", 1),
    "of the loader elsewhere": (
        "ALTER ROLE loader_login IN DATABASE postgres SET synchronous_commit = off",
        0,
    ),
    "of another role": ("ALTER ROLE reader_login SET synchronous_commit = off", 0),
}


@pytest.mark.parametrize("where", SETTINGS)
def test_a_setting_that_can_lose_data_is_found_wherever_it_is_set(
    postgres: PostgresServer, postgres_url: str, where: str
) -> None:
    engine = make_engine(postgres_url)
    upgrade(engine)
    statement, expected = SETTINGS[where]
    try:
        postgres.execute(statement.format(database=engine.url.database))
        postgres.execute("SELECT pg_reload_conf()")
        engine.dispose()

        problems = find_problems(engine)

        assert len(problems) == expected
        assert all(re.search(HARM, problem.text) for problem in problems)
        solve(engine, problems)
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
        ["role sam_reader is missing"],
    ),
    "all roles are gone": (
        [
            "REASSIGN OWNED BY sam_owner TO sam",
            *(
                f"DROP {kind} sam_{role}"
                for role in ("owner", "loader", "topology", "reporter", "archiver", "reader")
                for kind in ("OWNED BY", "ROLE")
            ),
        ],
        [
            (
                "roles sam_owner, sam_loader, sam_topology, sam_reporter, sam_archiver, sam_reader"
                " are missing"
            ),
            "functions run with the rights of their owner",
        ],
    ),
    "a role is a superuser": (
        "ALTER ROLE sam_loader SUPERUSER",
        ["role sam_loader has server-wide privileges"],
    ),
    "a role has the rights of another": (
        "GRANT sam_owner TO sam_reader",
        ["role sam_reader is a member of sam_owner"],
    ),
    "all may make temporary tables": (
        "GRANT TEMPORARY ON DATABASE {database} TO PUBLIC",
        ["unexpected grant TEMPORARY ON DATABASE {database} TO PUBLIC"],
    ),
}


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server of its own: roles belong to the server, and these tests damage them."""
    with running_postgres() as server:
        yield server


@pytest.mark.parametrize("name", ROLE_DAMAGES)
def test_damage_to_roles_is_found_and_repaired(own_server: PostgresServer, name: str) -> None:
    engine = make_engine(fresh_database(own_server))
    upgrade(engine)
    statements, expected = ROLE_DAMAGES[name]
    try:
        for statement in [statements] if isinstance(statements, str) else statements:
            execute(engine, statement.format(database=engine.url.database))

        problems = find_problems(engine)

        assert texts(problems) == [text.format(database=engine.url.database) for text in expected]
        solve(engine, problems)
        assert find_problems(engine) == []
    finally:
        engine.dispose()
        own_server.execute(f"DROP DATABASE {engine.url.database}")


def test_a_schema_that_belongs_to_a_superuser_is_handed_over(postgres_url: str) -> None:
    engine = make_engine(postgres_url)
    upgrade(engine)
    execute(engine, "REASSIGN OWNED BY sam_owner TO sam")

    [problem] = find_problems(engine)

    assert f"{WRONG_OWNER}: " in problem.text
    solve(engine, [problem])
    assert find_problems(engine) == []
    engine.dispose()


@pytest.mark.parametrize("role", ["loader", "topology", "reporter", "reader"])
def test_a_role_without_the_right_to_compare_is_referred_to_the_owner(
    postgres_url: str, role: str
) -> None:
    engine = make_engine(postgres_url)
    upgrade(engine)
    execute(engine, "GRANT CREATE ON SCHEMA public TO PUBLIC")
    engine.dispose()
    as_other_role = make_engine(as_role(postgres_url, role))

    problems = [problem.text for problem in find_problems(as_other_role)]

    assert "unexpected grant CREATE ON SCHEMA public" in problems[0]
    assert "as their owner" in problems[1]
    assert len(problems) == 2
    as_other_role.dispose()


def test_another_default_schema_is_a_problem(postgres: PostgresServer, postgres_url: str) -> None:
    engine = make_engine(postgres_url)
    upgrade(engine)
    name = engine.url.database
    execute(engine, "CREATE SCHEMA elsewhere")
    postgres.execute(f"ALTER DATABASE {name} SET search_path = elsewhere, public")
    engine.dispose()

    [problem] = find_problems(engine)

    assert "schema is elsewhere, not public" in problem.text
    solve(engine, [problem])
    assert find_problems(engine) == []
    engine.dispose()
    with make_engine(postgres_url).connect() as connection:
        connection.execute(text("ALTER ROLE sam RESET search_path"))


def test_a_server_that_may_be_reached_in_plain_text_is_noted(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = make_url(postgres_url)
    login = f"postgresql://{url.username}:{url.password}@/{url.database}"
    hosts = f"host={url.host}:{url.port}&host=db.example.org:{url.port}"  # the second is not asked
    monkeypatch.setenv("SAM_DATABASE_URL", f"{login}?{hosts}")
    upgrade(make_engine(postgres_url))

    main(["check"])
    as_text = capsys.readouterr()
    main(["check", "--json"])
    (note,) = json.loads(capsys.readouterr().out)["notes"]

    assert f"note: {note}\n" in as_text.err
    assert "?sslmode=verify-full" in note
    assert PASSWORD not in as_text.out + as_text.err
