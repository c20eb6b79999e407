"""What each role may do and what is refused, and who makes the roles."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

import pytest
from sqlalchemy import Engine, make_url, text

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.sql.checks.check import find_problems
from sam_pipeline.sql.database.engine import make_engine, writing
from sam_pipeline.sql.database.roles import ROLES, ROLES_COMMAND
from sam_pipeline.sql.database.version import access_script, upgrade
from sam_pipeline.sql.errors import PERMISSION_DENIED, DatabaseRefused
from tests.services import postgres as services
from tests.services.postgres import PostgresServer, as_role, fresh_database, running_postgres
from tests.services.psql import run_psql
from tests.support.database.sql_rows import EXAMPLES, insert, query
from tests.support.database.upgrade_process import upgrade_at_once

AUDIT = "consumer, host, process_id, brokers, messages, rows, dead_letters, checks"
AUDITING = f"INSERT INTO loaded_batch ({AUDIT}) VALUES ('site-a', 'h', 1, '{{}}', 1, 1, 0, 0)"
LOADING = (
    AUDITING,
    "INSERT INTO metricOutput (hostName) VALUES ('h')",
    "UPDATE dead_letter SET state = 'dropped'",
    "SELECT lock_names()",
)
ANY_WRITE = (
    *LOADING,
    "INSERT INTO run (report, day, started_at, state) VALUES ('r', '2026-01-01', now(), 'failed')",
    "DELETE FROM metric_result",
    "TRUNCATE metric_result",
    "CREATE TABLE mine (number integer)",
    "CREATE TEMPORARY TABLE mine (number integer)",
    "DROP VIEW metricOutput",
    "ALTER TABLE metric_result ADD COLUMN mine integer",
    "CREATE FUNCTION mine() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
    "SELECT is_time(now())",
)
REFUSED: Mapping[str, tuple[str, ...]] = {
    "loader": (
        "SELECT * FROM metricOutput",
        "SELECT hostName FROM serviceEndpoint",
        "SELECT * FROM report_result",
        "SELECT * FROM metric_result",
        "SELECT * FROM site",
        "INSERT INTO host (name) VALUES ('h')",
        "INSERT INTO metricOutput (hostName) VALUES ('h') RETURNING hostName",
        "DELETE FROM dead_letter",
        "UPDATE dead_letter SET body = ''",
        "TRUNCATE dead_letter",
        "SELECT * FROM loaded_batch",
        "SELECT * FROM load_audit",
        "UPDATE loaded_batch SET rows = 0",
        "DELETE FROM loaded_batch",
        AUDITING.replace("(consumer", "(loaded_at, consumer").replace("('site", "(now(), 'site"),
        AUDITING.replace("(consumer", "(database_user, consumer").replace("('site", "('x', 'site"),
        "UPDATE alembic_version SET version_num = '1'",
        *(one for one in ANY_WRITE if one not in LOADING),
    ),
    "reporter": (
        "SELECT * FROM metricOutput",
        "SELECT * FROM metric_result",
        "SELECT * FROM dead_letter",
        "SELECT * FROM load_audit",
        "UPDATE run SET report = 'x'",
        "DELETE FROM run",
        "DELETE FROM report_change_row",
        *(one for one in ANY_WRITE if "INTO run" not in one),
    ),
    "reader": (
        "SELECT * FROM metric_result",
        "SELECT * FROM dead_letter",
        "SELECT * FROM run",
        "SELECT * FROM loaded_batch",
        "DELETE FROM site_figure",
        *ANY_WRITE,
    ),
}
ALLOWED: Mapping[str, tuple[str, ...]] = {
    "loader": (
        "SELECT version_num FROM alembic_version",
        "SELECT * FROM dead_letter",
        "UPDATE dead_letter SET state = 'open', reason = '', error = '', changed_at = now()",
        "SELECT lock_names()",
        AUDITING,
    ),
    "reporter": (
        "SELECT version_num FROM alembic_version",
        "SELECT * FROM report_result, report_topology, report_downtime, report_site_group",
        (
            "INSERT INTO run (report, day, started_at, state)"
            " VALUES ('r', '2026-01-01', now(), 'failed')"
        ),
        "UPDATE run SET state = 'failed', finished_at = now()",
        "DELETE FROM timeline_segment WHERE run_id IN (SELECT run_id FROM run)",
    ),
    "reader": (
        "SELECT version_num FROM alembic_version",
        *(f"SELECT * FROM {view}" for view in (*EXAMPLES, "current_status", "report_run")),
        "SELECT * FROM site_availability, group_availability, status_timeline, report_change",
        "SELECT * FROM load_audit",
    ),
}


def cases(of: Mapping[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(role, statement) for role, statements in of.items() for statement in statements]


@pytest.fixture(scope="module")
def engines(postgres: PostgresServer) -> Iterator[Mapping[str, Engine]]:
    """By role."""
    url = fresh_database(postgres)
    found = {role: make_engine(as_role(url, role)) for role in services.ROLES}
    found["admin"] = make_engine(url)
    upgrade(found["admin"])
    yield found
    for engine in found.values():
        engine.dispose()


@pytest.mark.parametrize(("role", "statement"), cases(REFUSED))
def test_what_is_not_a_roles_business_is_refused(
    engines: Mapping[str, Engine], role: str, statement: str
) -> None:
    with pytest.raises(DatabaseRefused, match=PERMISSION_DENIED) as caught:
        execute(engines[role], statement)

    assert "must be owner" in str(caught.value) or "permission denied" in str(caught.value)


@pytest.mark.parametrize(("role", "statement"), cases(ALLOWED))
def test_what_a_role_needs_it_may(engines: Mapping[str, Engine], role: str, statement: str) -> None:
    execute(engines[role], statement)


@pytest.mark.parametrize("view", EXAMPLES)
def test_the_loader_fills_the_class_views_and_the_reader_sees_it(
    engines: Mapping[str, Engine], view: str
) -> None:
    insert(engines["loader"], view, EXAMPLES[view])

    assert query(engines["reader"], f"SELECT count(*) FROM {view}") == [(1,)]


def test_nothing_is_everybodys(engines: Mapping[str, Engine]) -> None:
    """A new function is, by default: it has to be named in 30_grants.sql."""
    functions = query(
        engines["admin"],
        "SELECT CAST(p.oid AS regprocedure)"
        " FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a"
        " WHERE p.pronamespace = CAST('public' AS regnamespace) AND a.grantee = 0",
    )
    relations = query(
        engines["admin"],
        "SELECT c.relname FROM pg_class AS c, aclexplode(c.relacl) AS a"
        " WHERE c.relnamespace = CAST('public' AS regnamespace) AND a.grantee = 0",
    )

    assert functions + relations == []


def test_a_table_of_the_loaders_own_does_not_stand_in_for_ours(postgres_url: str) -> None:
    """Functions with the owner's rights look into the schema first, whatever the caller's path."""
    admin = make_engine(postgres_url)
    upgrade(admin)
    execute(admin, "CREATE SCHEMA trap; CREATE TABLE trap.host (host_id integer, name text)")
    execute(admin, "GRANT ALL ON SCHEMA trap TO sam_loader; GRANT ALL ON trap.host TO sam_loader")
    loader = make_engine(as_role(postgres_url, "loader"))

    with writing(loader) as connection:
        connection.execute(text("SET search_path = trap, public"))
        connection.execute(
            text(
                "INSERT INTO metricOutput (hostName, serviceFlavour, metricName, metricStatus,"
                " timestamp) VALUES ('h', 'F', 'm', 'OK', '2026-01-01T00:00:00Z')"
            )
        )

    assert query(admin, "SELECT count(*) FROM trap.host") == [(0,)]
    assert query(admin, "SELECT hostName FROM metricOutput") == [("h",)]
    for engine in (admin, loader):
        engine.dispose()


# Who upgrades ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def new_server() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        for role in services.ROLES:
            server.execute(f"DROP ROLE {role}_login")
            server.execute(f"DROP ROLE sam_{role}")
        yield server


@pytest.fixture
def server(new_server: PostgresServer) -> Iterator[PostgresServer]:
    """One that has never seen us; roles belong to the server."""
    yield new_server
    databases = "SELECT datname FROM pg_database WHERE datname LIKE 'sam%'"
    roles = "SELECT rolname FROM pg_roles WHERE rolname !~ '^pg_' AND rolname <> 'sam'"
    admin = make_engine(new_server.url())
    names, logins = query(admin, databases), query(admin, roles)
    admin.dispose()
    for (name,) in names:
        new_server.execute(f"DROP DATABASE {name}")
    for (name,) in logins:
        new_server.execute(f"DROP ROLE {name}")


def login(server: PostgresServer, url: str, name: str, more: str = "") -> str:
    """A new login; its URL of the database."""
    server.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret' {more}")
    return make_url(url).set(username=name, password="secret").render_as_string(False)


def execute(engine: Engine, statement: str) -> None:
    with writing(engine) as connection:
        connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def upgraded(url: str) -> Engine:
    engine = make_engine(url)
    upgrade(engine)
    return engine


def owners(engine: Engine) -> set[str]:
    found = query(
        engine,
        "SELECT DISTINCT CAST(pg_get_userbyid(relowner) AS text) FROM pg_class"
        " WHERE relnamespace = CAST('public' AS regnamespace)"
        " UNION SELECT DISTINCT CAST(pg_get_userbyid(proowner) AS text) FROM pg_proc"
        " WHERE pronamespace = CAST('public' AS regnamespace)",
    )
    return {name for (name,) in found}


def test_a_superuser_makes_the_roles_and_all_belongs_to_sam_owner(server: PostgresServer) -> None:
    engine = upgraded(fresh_database(server))

    assert find_problems(engine) == []
    assert owners(engine) == {"sam_owner"}
    engine.dispose()


def test_an_owner_who_may_make_roles_does_it(server: PostgresServer) -> None:
    url = fresh_database(server)
    boss = login(server, url, "boss", "CREATEROLE")
    server.execute(f"ALTER DATABASE {make_url(url).database} OWNER TO boss")

    engine = upgraded(boss)

    assert find_problems(engine) == []
    assert owners(engine) == {"boss"}
    engine.dispose()


def test_an_owner_without_roles_upgrades_and_says_what_an_administrator_must_run(
    server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = fresh_database(server)
    plain = login(server, url, "plain")
    server.execute(f"ALTER DATABASE {make_url(url).database} OWNER TO plain")

    with caplog.at_level(logging.WARNING):
        engine = upgraded(plain)

    assert "administrator runs `sam-db sql --roles | psql`" in caplog.text
    insert(engine, "metricOutput", EXAMPLES["metricOutput"])
    [problem] = find_problems(engine)
    assert problem.text.endswith(f"roles {', '.join(ROLES)} are missing")
    assert problem.repair == ROLES_COMMAND

    run_psql(url, access_script())
    assert find_problems(engine) == []
    loader = make_engine(login(server, url, "a_loader", "IN ROLE sam_loader"))
    insert(loader, "downtime", EXAMPLES["downtime"])
    upgrade(engine)
    assert find_problems(engine) == []
    for each in (engine, loader):
        each.dispose()


def test_where_an_administrator_made_the_roles_a_member_of_sam_owner_upgrades(
    server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = fresh_database(server)
    run_psql(url, access_script())
    member = login(server, url, "member", "IN ROLE sam_owner")

    with caplog.at_level(logging.WARNING):
        engine = upgraded(member)

    assert "administrator" not in caplog.text
    assert owners(engine) == {"sam_owner"}
    assert find_problems(engine) == []
    upgrade(engine)
    engine.dispose()


def test_who_is_not_the_owner_cannot_upgrade(server: PostgresServer) -> None:
    url = fresh_database(server)
    upgraded(url).dispose()
    stranger = make_engine(login(server, url, "stranger", "IN ROLE sam_loader"))

    with pytest.raises(DatabaseRefused, match="belongs to sam_owner, and stranger may not act as"):
        upgrade(stranger)

    stranger.dispose()


def test_two_databases_share_the_roles_even_when_made_at_once(server: PostgresServer) -> None:
    urls = [fresh_database(server) for _ in range(3)]

    upgrade_at_once(urls)

    for engine in map(make_engine, urls):
        assert find_problems(engine) == []
        engine.dispose()


def test_an_upgrade_into_another_schema_is_refused(server: PostgresServer) -> None:
    url = fresh_database(server)
    elsewhere = login(server, url, "elsewhere")
    engine = make_engine(url)
    execute(engine, "CREATE SCHEMA elsewhere AUTHORIZATION elsewhere")
    other = make_engine(elsewhere)

    with pytest.raises(ConfigError, match="the user's schema is elsewhere, not public"):
        upgrade(other)

    for each in (engine, other):
        each.dispose()
