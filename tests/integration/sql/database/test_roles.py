"""The rights of each role."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

import pytest
from sqlalchemy import Engine, make_url
from sqlalchemy.exc import ProgrammingError

from sam_pipeline.sql.checks.check import find_problems
from sam_pipeline.sql.checks.repair import repair
from sam_pipeline.sql.database.engine import make_engine, writing
from sam_pipeline.sql.database.roles import ROLES, ROLES_COMMAND
from sam_pipeline.sql.database.version import access_script, upgrade
from sam_pipeline.sql.errors import PERMISSION_DENIED, DatabaseRefused, StatementFailed
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.load import load
from tests.integration.sql.conftest import running_durable_postgres
from tests.services import postgres
from tests.services import postgres as services
from tests.services.postgres import PostgresServer, as_role, fresh_database, new_url, run_psql
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.database.own_class import run
from tests.support.database.sam_db import upgrade_at_once, url_of
from tests.support.database.sql_rows import EXAMPLES, insert, query, service_endpoint
from tests.support.database.with_schema import with_schema

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
RUN = "INSERT INTO run (report, day, started_at, state) VALUES ('r', '2026-01-01', now(), 'failed')"
ANY_WRITE = (
    *LOADING,
    RUN,
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


def every(*tables: str) -> tuple[str, ...]:
    return tuple(f"SELECT * FROM {table}" for table in tables)


REFUSED: Mapping[str, tuple[str, ...]] = {
    "loader": (
        *every("metricOutput", "report_result", "metric_result", "site", "loaded_batch"),
        *every("load_audit"),
        "SELECT hostName FROM serviceEndpoint",
        "INSERT INTO host (name) VALUES ('h')",
        "INSERT INTO metricOutput (hostName) VALUES ('h') RETURNING hostName",
        "DELETE FROM dead_letter",
        "UPDATE dead_letter SET body = ''",
        "TRUNCATE dead_letter",
        "UPDATE loaded_batch SET rows = 0",
        "DELETE FROM loaded_batch",
        AUDITING.replace("(consumer", "(loaded_at, consumer").replace("('site", "(now(), 'site"),
        AUDITING.replace("(consumer", "(database_user, consumer").replace("('site", "('x', 'site"),
        "UPDATE alembic_version SET version_num = '1'",
        *(statement for statement in ANY_WRITE if statement not in LOADING),
    ),
    "topology": (
        *every("metricOutput", "metric_result", "siteContact", "site", "endpoint_membership"),
        *every("announced_downtime", "publisher", "result_repeat", "dead_letter", "load_audit"),
        *every("operation_log", "report_topology", "site_availability"),
        "INSERT INTO dead_letter (body) VALUES ('')",
        "DELETE FROM announced_downtime",
        "UPDATE endpoint_membership SET valid_to = now()",
        "INSERT INTO host (name) VALUES ('h')",
        "INSERT INTO exclusion DEFAULT VALUES",
        "SELECT sweep_runs()",
        *(statement for statement in ANY_WRITE if statement != "SELECT lock_names()"),
    ),
    "reporter": (
        *every("metricOutput", "metric_result", "dead_letter", "load_audit"),
        "UPDATE run SET report = 'x'",
        "DELETE FROM run",
        "DELETE FROM report_change_row",
        "DELETE FROM timeline_segment",
        "DELETE FROM figure",
        "UPDATE figure SET availability = 100",
        "DELETE FROM published_run",
        "INSERT INTO seal VALUES ('r', '2026-01', 1, 'me', now())",
        "UPDATE seal SET who = 'me'",
        "DELETE FROM seal",
        *(s for s in ANY_WRITE if s not in (RUN, RECORDING)),
    ),
    "reader": (
        *every("metric_result", "dead_letter", "run", "loaded_batch"),
        "DELETE FROM figure",
        *ANY_WRITE,
    ),
}


@pytest.fixture(scope="module")
def engines(postgres: PostgresServer) -> Iterator[Mapping[str, Engine]]:
    """An engine for each role, and `admin` for the administrator."""
    url = new_url(postgres)
    by_role = {"admin": with_schema(url)}
    by_role |= {role: make_engine(as_role(url, role)) for role in services.ROLES}
    yield by_role
    for engine in by_role.values():
        engine.dispose()


@pytest.mark.parametrize("role", REFUSED)
def test_statements_beyond_the_rights_of_a_role_are_refused(
    engines: Mapping[str, Engine], role: str
) -> None:
    for statement in REFUSED[role]:
        with pytest.raises(DatabaseRefused, match=PERMISSION_DENIED) as caught:
            run(engines[role], statement)
            pytest.fail(statement)
        assert "must be owner" in str(caught.value) or "permission denied" in str(caught.value)


def test_no_right_is_granted_to_public_and_functions_look_only_into_the_schema(
    engines: Mapping[str, Engine],
) -> None:
    """PostgreSQL lets PUBLIC run a new function: 30_grants.sql has to revoke that."""
    admin, schema = engines["admin"], "CAST('public' AS regnamespace)"
    functions = query(
        admin,
        "SELECT CAST(p.oid AS regprocedure)"
        " FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a"
        f" WHERE p.pronamespace = {schema} AND a.grantee = 0",
    )
    relations = query(
        admin,
        "SELECT c.relname FROM pg_class AS c, aclexplode(c.relacl) AS a"
        f" WHERE c.relnamespace = {schema} AND a.grantee = 0",
    )
    ours = f"SELECT proname, proconfig FROM pg_proc WHERE prosecdef AND pronamespace = {schema}"
    settings = query(admin, ours)

    assert functions + relations == []
    assert len(settings) > 10
    assert [row for row in settings if "search_path=public, pg_temp" not in (row[1] or ())] == []


def test_a_loader_makes_few_partitions_at_once(engines: Mapping[str, Engine]) -> None:
    days = "SELECT make_partitions(ARRAY(SELECT CAST('2001-01-01' AS date) + n FROM {} AS n))"
    with pytest.raises(StatementFailed, match="the limit is 50"):
        run(engines["loader"], days.format("generate_series(0, 50)"))

    run(engines["loader"], days.format("generate_series(0, 49)"))


def test_a_right_that_was_revoked_ends_loading(engines: Mapping[str, Engine]) -> None:
    """Also by COPY, into a table that belongs to the session."""
    loader = engines["loader"]
    load(loader, Catalogue(loader), [metric_message(metric_result(hostName="before"))], NOW)
    run(engines["admin"], "REVOKE INSERT ON metricOutput FROM sam_loader")
    try:
        message = metric_message(metric_result(hostName="revoked"))
        loaded = load(loader, Catalogue(loader), [message], NOW)
    finally:
        run(engines["admin"], "GRANT INSERT ON metricOutput TO sam_loader")

    assert (loaded.rows, dict(loaded.dead_letters)) == (0, {"class-broken": 1})


@pytest.mark.parametrize(
    ("source", "stored"), [("feed gocdb", "feed gocdb"), ("file", "file"), ("message", "hand")]
)
def test_the_database_says_who_typed_a_row(
    engines: Mapping[str, Engine], source: str, stored: str
) -> None:
    """A login for topology names a source, and neither a publisher nor the time of arrival."""
    forged = {"publisher": "key:nagios", "messageId": "m-1", "receivedAt": "2020-01-01T00:00:00Z"}
    row = service_endpoint(hostName=f"{source.split()[0]}.example.org", source=source, **forged)

    insert(engines["topology"], "serviceEndpoint", row)

    columns = "publisher, messageId, receivedAt > now() - interval '1 hour', source"
    found = query(
        engines["admin"],
        f"SELECT {columns} FROM serviceEndpoint WHERE hostName = '{row['hostName']}'",
    )
    assert found == [("operator:topology_login", None, True, stored)]


@pytest.mark.parametrize("key", ["sam names", "sam news", "sam import gocdb"])
def test_a_login_without_rights_cannot_keep_loaders_waiting(
    engines: Mapping[str, Engine], key: str
) -> None:
    """With any of the locks that it may take: advisory ones, and those of tables it may read."""
    with engines["reader"].connect() as connection:
        connection.exec_driver_sql(f"SELECT pg_advisory_lock(hashtextextended('{key}', 0))")
        connection.exec_driver_sql("LOCK TABLE metricOutput IN ACCESS SHARE MODE")
        for table in ("metric_status", "change_counter", "database_identity"):
            statement = f"LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE"
            denied = pytest.raises(ProgrammingError, match="permission denied")
            with denied, connection.begin_nested():
                connection.exec_driver_sql(statement)

        with writing(engines["loader"]) as working:
            working.exec_driver_sql("SET LOCAL lock_timeout = '2s'")
            for function in ("lock_names", "lock_statements", "fold_news"):
                working.exec_driver_sql(f"SELECT {function}()")


# Roles of a new server: who creates them, and damage to them --------------------------------------


@pytest.fixture(scope="module")
def new_server() -> Iterator[PostgresServer]:
    with running_durable_postgres() as server:
        for role in postgres.ROLES:
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
        new_server.execute(f"DROP DATABASE {name} WITH (FORCE)")
    for (name,) in logins:
        new_server.execute(f"DROP ROLE {name}")


@pytest.fixture
def url(server: PostgresServer) -> str:
    return fresh_database(server)


def login(server: PostgresServer, url: str, name: str, more: str = "") -> str:
    """Create a login; return the database URL with it."""
    server.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret' {more}")
    return make_url(url).set(username=name, password="secret").render_as_string(False)


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


@pytest.mark.parametrize("who", ["a superuser", "the owner with CREATEROLE", "a member"])
def test_who_may_create_roles_does_and_sam_owner_or_the_database_owner_owns_all_objects(
    server: PostgresServer, url: str, who: str, caplog: pytest.LogCaptureFixture
) -> None:
    user, owner = url, "sam_owner"
    if who == "the owner with CREATEROLE":
        user, owner = login(server, url, "boss", "CREATEROLE"), "boss"
        server.execute(f"ALTER DATABASE {make_url(url).database} OWNER TO boss")
    elif who == "a member":
        run_psql(url, access_script())
        user = login(server, url, "member", "IN ROLE sam_owner")

    with caplog.at_level(logging.WARNING):
        engine = upgraded(user)

    assert find_problems(engine) == []
    assert owners(engine) == {owner}
    assert "administrator" not in caplog.text
    assert upgrade(engine) == []
    stranger = make_engine(login(server, url, "stranger", "IN ROLE sam_loader"))
    with pytest.raises(DatabaseRefused, match=rf"belongs to {owner}, .*stranger may not"):
        upgrade(stranger)
    for each in (engine, stranger):
        each.dispose()


def test_an_owner_without_createrole_upgrades_and_names_the_command_for_an_administrator(
    server: PostgresServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
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


def test_databases_created_at_once_share_the_roles(server: PostgresServer) -> None:
    urls = [fresh_database(server) for _ in range(2)]

    upgrade_at_once(urls)

    for engine in map(make_engine, urls):
        assert find_problems(engine) == []
        engine.dispose()


DROPPING = [f"DROP {kind} {role}" for role in ROLES for kind in ("OWNED BY", "ROLE")]


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (["DROP OWNED BY sam_reader", "DROP ROLE sam_reader"], ["role sam_reader is missing"]),
        (
            ["REASSIGN OWNED BY sam_owner TO sam", *DROPPING],
            [f"roles {', '.join(ROLES)} are missing", "functions run with the rights of"],
        ),
        (["ALTER ROLE sam_loader SUPERUSER"], ["role sam_loader has server-wide privileges"]),
        (["GRANT sam_owner TO sam_reader"], ["role sam_reader is a member of sam_owner"]),
        (
            ["GRANT TEMPORARY ON DATABASE {database} TO PUBLIC"],
            ["unexpected grant TEMPORARY ON DATABASE {database} TO PUBLIC"],
        ),
    ],
    ids=["a role is gone", "all are gone", "superuser", "rights of another", "temporary tables"],
)
def test_damage_to_roles_is_found_and_repaired(
    url: str, statements: Sequence[str], expected: Sequence[str]
) -> None:
    engine = upgraded(url)
    name = str(engine.url.database)
    run(engine, *(statement.format(database=name) for statement in statements))

    problems = find_problems(engine)

    for problem, text in zip(problems, expected, strict=True):
        assert text.format(database=name) in problem.text
    for command in dict.fromkeys(problem.repair for problem in problems):
        if command == ROLES_COMMAND:
            run_psql(url_of(engine), access_script())
        elif command == "sam-db repair":
            repair(engine)
        else:
            run_psql(url_of(engine), str(command))
    engine.dispose()
    assert find_problems(engine) == []
    engine.dispose()
