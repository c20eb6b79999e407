"""Who creates the roles of a server and owns the schema, and damage to roles."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pytest
from sqlalchemy import Engine, make_url

from sam_pipeline.sql.checks.check import find_problems
from sam_pipeline.sql.checks.repair import repair
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.database.roles import ROLES, ROLES_COMMAND
from sam_pipeline.sql.database.version import access_script, upgrade
from sam_pipeline.sql.errors import DatabaseRefused
from tests.integration.sql.conftest import running_durable_postgres
from tests.services import postgres
from tests.services.postgres import PostgresServer, fresh_database
from tests.services.psql import run_psql
from tests.support.database.own_class import run
from tests.support.database.sam_db import url_of
from tests.support.database.sql_rows import EXAMPLES, insert, query
from tests.support.database.upgrade_process import upgrade_at_once


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
