"""The rights of each role."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import ProgrammingError

from sam_pipeline.sql.database.engine import make_engine, writing
from sam_pipeline.sql.errors import PERMISSION_DENIED, DatabaseRefused
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.load import load
from tests.services import postgres as services
from tests.services.postgres import PostgresServer, as_role, new_url
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.database.own_class import run
from tests.support.database.sql_rows import EXAMPLES, query
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
        *every("announced_downtime", "publisher", "claim", "dead_letter", "load_audit"),
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
        "DELETE FROM site_figure",
        "UPDATE site_figure SET availability = 100",
        "DELETE FROM published_run",
        "INSERT INTO seal VALUES ('r', '2026-01', 1, 'me', now())",
        "UPDATE seal SET who = 'me'",
        "DELETE FROM seal",
        *(s for s in ANY_WRITE if s not in (RUN, RECORDING)),
    ),
    "reader": (
        *every("metric_result", "dead_letter", "run", "loaded_batch"),
        "DELETE FROM site_figure",
        *ANY_WRITE,
    ),
}
ALLOWED: Mapping[str, tuple[str, ...]] = {
    "loader": (
        "SELECT * FROM dead_letter",
        "UPDATE dead_letter SET state = 'open', reason = '', error = '', changed_at = now()",
        "SELECT lock_names()",
        "SELECT make_partitions(ARRAY[CAST('2026-11-20' AS date)])",
        AUDITING,
        RECORDING,
    ),
    "topology": (
        "SELECT * FROM serviceEndpoint, siteGroup, downtime",
        "SELECT lock_names(), lock_import(), fold_news()",
    ),
    "reporter": (
        RECORDING,
        "SELECT * FROM report_result, report_topology, report_downtime, report_site_group",
        "SELECT * FROM report_site_contact",
        RUN,
        "UPDATE run SET state = 'failed', finished_at = now()",
        "SELECT sweep_runs()",
        "SELECT * FROM current_status, report_status",
    ),
    "reader": (
        *every(*EXAMPLES, "current_status", "report_status", "report_run"),
        "SELECT * FROM site_availability, group_availability, status_timeline, report_change",
        "SELECT * FROM load_audit, operation_log",
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


@pytest.mark.parametrize("role", ALLOWED)
def test_a_role_may_run_the_statements_it_needs(engines: Mapping[str, Engine], role: str) -> None:
    run(engines[role], "SELECT version_num FROM alembic_version", *ALLOWED[role])


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


def test_a_table_of_the_loaders_own_does_not_replace_that_of_the_schema(
    engines: Mapping[str, Engine],
) -> None:
    """Functions with the owner's rights search the schema first, whatever the caller's path."""
    run(
        engines["admin"],
        "CREATE SCHEMA trap; CREATE TABLE trap.host (host_id integer, name text)",
        "GRANT ALL ON SCHEMA trap TO sam_loader; GRANT ALL ON trap.host TO sam_loader",
    )

    with writing(engines["loader"]) as connection:
        connection.execute(text("SET LOCAL search_path = trap, public"))
        columns = "hostName, serviceFlavour, metricName, metricStatus, timestamp"
        values = "'trapped', 'F', 'm', 'OK', '2026-01-01T00:00:00Z'"
        connection.execute(text(f"INSERT INTO metricOutput ({columns}) VALUES ({values})"))

    assert query(engines["admin"], "SELECT count(*) FROM trap.host") == [(0,)]
    found = "SELECT count(*) FROM metricOutput WHERE hostName = 'trapped'"
    assert query(engines["admin"], found) == [(1,)]


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


@pytest.mark.parametrize("key", ["sam names", "sam news", "sam import gocdb"])
def test_a_login_without_rights_cannot_keep_loaders_waiting(
    engines: Mapping[str, Engine], key: str
) -> None:
    """With any of the locks that it may take: advisory ones, and those of tables it may read."""
    with engines["reader"].connect() as connection:
        connection.exec_driver_sql(f"SELECT pg_advisory_lock(hashtextextended('{key}', 0))")
        connection.exec_driver_sql("LOCK TABLE metricOutput IN ACCESS SHARE MODE")
        for table in ("metric_status", "change_counter", "endpoint_membership"):
            statement = f"LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE"
            denied = pytest.raises(ProgrammingError, match="permission denied")
            with denied, connection.begin_nested():
                connection.exec_driver_sql(statement)

        with writing(engines["loader"]) as working:
            working.exec_driver_sql("SET LOCAL lock_timeout = '2s'")
            for function in ("lock_names", "lock_import", "fold_news"):
                working.exec_driver_sql(f"SELECT {function}()")
