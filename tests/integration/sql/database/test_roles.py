"""The rights of each role, and who creates the roles."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping

import pytest
from sqlalchemy import Engine, make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.sql.checks.check import find_problems
from sam_pipeline.sql.database.engine import make_engine, writing
from sam_pipeline.sql.database.roles import ROLES, ROLES_COMMAND
from sam_pipeline.sql.database.version import access_script, upgrade
from sam_pipeline.sql.errors import PERMISSION_DENIED, DatabaseRefused, is_collision
from tests.services import postgres as services
from tests.services.postgres import PostgresServer, as_role, fresh_database, running_postgres
from tests.services.psql import run_psql
from tests.support.database.sql_rows import EXAMPLES, insert, query
from tests.support.database.upgrade_process import upgrade_at_once

AUDIT = "consumer, host, process_id, brokers, messages, rows, dead_letters, checks"
AUDITING = f"INSERT INTO loaded_batch ({AUDIT}) VALUES ('site-a', 'h', 1, '{{}}', 1, 1, 0, 0)"
RECORDING = "SELECT record_operation('jane', 'prune', '{}')"
LOADING = (
    AUDITING,
    RECORDING,
    "INSERT INTO metricOutput (hostName) VALUES ('h')",
    "UPDATE dead_letter SET state = 'dropped'",
    "SELECT lock_names()",
    "SELECT make_partitions(ARRAY[CAST('2026-11-20' AS date)])",
)
ANY_WRITE = (
    *LOADING,
    "INSERT INTO run (report, day, started_at, state) VALUES ('r', '2026-01-01', now(), 'failed')",
    "DELETE FROM metric_result",
    "TRUNCATE metric_result",
    "INSERT INTO operation VALUES (1, now(), 'x', 'x', 'x', '{}', '', '')",
    "DELETE FROM operation",
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
        *(statement for statement in ANY_WRITE if statement not in LOADING),
    ),
    "topology": (
        "SELECT * FROM metricOutput",
        "SELECT * FROM metric_result",
        "SELECT * FROM siteContact",
        "SELECT * FROM site",
        "SELECT * FROM endpoint_membership",
        "SELECT * FROM announced_downtime",
        "SELECT * FROM publisher",
        "SELECT * FROM claim",
        "SELECT * FROM dead_letter",
        "INSERT INTO dead_letter (body) VALUES ('')",
        "SELECT * FROM load_audit",
        "SELECT * FROM operation_log",
        "SELECT * FROM report_topology",
        "SELECT * FROM site_availability",
        "DELETE FROM announced_downtime",
        "UPDATE endpoint_membership SET valid_to = now()",
        "INSERT INTO host (name) VALUES ('h')",
        "INSERT INTO exclusion DEFAULT VALUES",
        "SELECT sweep_runs()",
        *(statement for statement in ANY_WRITE if statement != "SELECT lock_names()"),
    ),
    "reporter": (
        "SELECT * FROM metricOutput",
        "SELECT * FROM metric_result",
        "SELECT * FROM dead_letter",
        "SELECT * FROM load_audit",
        "UPDATE run SET report = 'x'",
        "DELETE FROM run",
        "DELETE FROM report_change_row",
        "DELETE FROM timeline_segment",
        "DELETE FROM site_figure",
        "UPDATE site_figure SET availability = 100",
        "DELETE FROM published_run",
        "INSERT INTO seal VALUES ('r', '2026-01', 1, 'me', now())",
        "UPDATE seal SET who = 'me'",
        "DELETE FROM seal",
        *(
            statement
            for statement in ANY_WRITE
            if "INTO run" not in statement and statement != RECORDING
        ),
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
        "SELECT make_partitions(ARRAY[CAST('2026-11-20' AS date)])",
        AUDITING,
        RECORDING,
    ),
    "topology": (
        "SELECT version_num FROM alembic_version",
        "SELECT * FROM serviceEndpoint, siteGroup, downtime",
        "SELECT lock_names(), lock_import(), fold_news()",
    ),
    "reporter": (
        RECORDING,
        "SELECT version_num FROM alembic_version",
        "SELECT * FROM report_result, report_topology, report_downtime, report_site_group",
        "SELECT * FROM report_site_contact",
        (
            "INSERT INTO run (report, day, started_at, state)"
            " VALUES ('r', '2026-01-01', now(), 'failed')"
        ),
        "UPDATE run SET state = 'failed', finished_at = now()",
        "SELECT sweep_runs()",
        "SELECT * FROM current_status, report_status",
    ),
    "reader": (
        "SELECT version_num FROM alembic_version",
        *(
            f"SELECT * FROM {view}"
            for view in (*EXAMPLES, "current_status", "report_status", "report_run")
        ),
        "SELECT * FROM site_availability, group_availability, status_timeline, report_change",
        "SELECT * FROM load_audit, operation_log",
    ),
}


def cases(statements_of: Mapping[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    """Pairs of role and statement."""
    return [(role, sql) for role, statements in statements_of.items() for sql in statements]


@pytest.fixture(scope="module")
def engines(postgres: PostgresServer) -> Iterator[Mapping[str, Engine]]:
    """An engine for each role, and `admin` for the administrator."""
    url = fresh_database(postgres)
    by_role = {role: make_engine(as_role(url, role)) for role in services.ROLES}
    by_role["admin"] = make_engine(url)
    upgrade(by_role["admin"])
    yield by_role
    for engine in by_role.values():
        engine.dispose()


@pytest.mark.parametrize(("role", "statement"), cases(REFUSED))
def test_a_statement_beyond_the_rights_of_a_role_is_refused(
    engines: Mapping[str, Engine], role: str, statement: str
) -> None:
    with pytest.raises(DatabaseRefused, match=PERMISSION_DENIED) as caught:
        execute(engines[role], statement)

    assert "must be owner" in str(caught.value) or "permission denied" in str(caught.value)


@pytest.mark.parametrize(("role", "statement"), cases(ALLOWED))
def test_a_role_may_run_the_statements_it_needs(
    engines: Mapping[str, Engine], role: str, statement: str
) -> None:
    execute(engines[role], statement)


@pytest.mark.parametrize("view", EXAMPLES)
def test_the_loader_fills_the_class_views_and_the_reader_reads_them(
    engines: Mapping[str, Engine], view: str
) -> None:
    insert(engines["loader"], view, EXAMPLES[view])

    assert query(engines["reader"], f"SELECT count(*) FROM {view}") == [(1,)]


def test_no_right_is_granted_to_public(engines: Mapping[str, Engine]) -> None:
    """PostgreSQL lets PUBLIC run a new function: 30_grants.sql has to revoke that."""
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


def test_a_table_of_the_loaders_own_does_not_replace_that_of_the_schema(postgres_url: str) -> None:
    """Functions with the owner's rights search the schema first, whatever the caller's path."""
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
    """A server without our roles; those that a test creates are dropped."""
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
    """Create a login; return the database URL with it."""
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
    rows = query(
        engine,
        "SELECT DISTINCT CAST(pg_get_userbyid(relowner) AS text) FROM pg_class"
        " WHERE relnamespace = CAST('public' AS regnamespace)"
        " UNION SELECT DISTINCT CAST(pg_get_userbyid(proowner) AS text) FROM pg_proc"
        " WHERE pronamespace = CAST('public' AS regnamespace)",
    )
    return {owner for (owner,) in rows}


def test_a_superuser_creates_the_roles_and_sam_owner_owns_all_objects(
    server: PostgresServer,
) -> None:
    engine = upgraded(fresh_database(server))

    assert find_problems(engine) == []
    assert owners(engine) == {"sam_owner"}
    engine.dispose()


def test_a_database_owner_with_createrole_creates_the_roles(server: PostgresServer) -> None:
    url = fresh_database(server)
    boss = login(server, url, "boss", "CREATEROLE")
    server.execute(f"ALTER DATABASE {make_url(url).database} OWNER TO boss")

    engine = upgraded(boss)

    assert find_problems(engine) == []
    assert owners(engine) == {"boss"}
    engine.dispose()


def test_an_owner_without_createrole_upgrades_and_names_the_command_for_an_administrator(
    server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = fresh_database(server)
    plain = login(server, url, "plain")
    server.execute(f"ALTER DATABASE {make_url(url).database} OWNER TO plain")

    with caplog.at_level(logging.WARNING):
        engine = upgraded(plain)

    assert "`sam-db sql --roles | psql`" in caplog.text
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
    engine.dispose()
    loader.dispose()


def test_a_member_of_sam_owner_upgrades_where_an_administrator_created_the_roles(
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


def test_only_the_owner_may_upgrade(server: PostgresServer) -> None:
    url = fresh_database(server)
    upgraded(url).dispose()
    stranger = make_engine(login(server, url, "stranger", "IN ROLE sam_loader"))

    with pytest.raises(DatabaseRefused, match=r"belongs to sam_owner, .*stranger may not"):
        upgrade(stranger)

    stranger.dispose()


def test_databases_created_at_once_share_the_roles(server: PostgresServer) -> None:
    urls = [fresh_database(server) for _ in range(3)]

    upgrade_at_once(urls)

    for engine in map(make_engine, urls):
        assert find_problems(engine) == []
        engine.dispose()


def test_an_upgrade_into_another_schema_is_refused(server: PostgresServer) -> None:
    url = fresh_database(server)
    url_with_schema = login(server, url, "elsewhere")
    engine = make_engine(url)
    execute(engine, "CREATE SCHEMA elsewhere AUTHORIZATION elsewhere")
    in_schema = make_engine(url_with_schema)

    with pytest.raises(ConfigError, match="schema is elsewhere, not public"):
        upgrade(in_schema)

    engine.dispose()
    in_schema.dispose()


def test_all_functions_with_the_rights_of_the_owner_look_only_into_the_schema(
    engines: Mapping[str, Engine],
) -> None:
    ours = """
        SELECT proname, proconfig FROM pg_proc
        WHERE prosecdef AND pronamespace = CAST('public' AS regnamespace)
    """
    settings = query(engines["admin"], ours)

    assert len(settings) > 10
    assert [row for row in settings if "search_path=public, pg_temp" not in (row[1] or ())] == []


@pytest.mark.parametrize("key", ["sam names", "sam news", "sam import gocdb"])
def test_a_login_without_rights_cannot_keep_loaders_waiting(
    engines: Mapping[str, Engine], key: str
) -> None:
    """With any of the locks that it may take: advisory ones, and those of tables it may read."""
    stranger = engines["reader"]
    loader = engines["loader"].execution_options()
    with stranger.connect() as connection:
        connection.exec_driver_sql(f"SELECT pg_advisory_lock(hashtextextended('{key}', 0))")
        connection.exec_driver_sql("LOCK TABLE metricOutput IN ACCESS SHARE MODE")
        for table in ("metric_status", "change_counter", "endpoint_membership"):
            statement = f"LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE"
            denied = pytest.raises(ProgrammingError, match="permission denied")
            with denied, connection.begin_nested():
                connection.exec_driver_sql(statement)

        with writing(loader) as working:
            working.exec_driver_sql("SET LOCAL lock_timeout = '2s'")
            for function in ("lock_names", "lock_import", "fold_news"):
                working.exec_driver_sql(f"SELECT {function}()")


def test_only_one_transaction_at_a_time_creates_names(engines: Mapping[str, Engine]) -> None:
    loader = engines["loader"]
    with writing(loader) as first:
        first.exec_driver_sql("SELECT lock_names(), lock_names()")
        with loader.connect() as second:
            second.exec_driver_sql("SET LOCAL lock_timeout = '100ms'")
            with pytest.raises(OperationalError, match="lock timeout"), second.begin_nested():
                second.exec_driver_sql("SELECT lock_names()")
            second.exec_driver_sql("SELECT set_config('sam.stored', 'yes', true)")
            with pytest.raises(DBAPIError, match="creating names") as caught:
                second.exec_driver_sql("SELECT lock_names()")
            assert is_collision(caught.value)
