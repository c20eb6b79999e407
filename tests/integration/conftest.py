"""A database of each dialect, and brokers of a special kind.

A test that takes the fixture `engine` runs once on each dialect; `only_on` restricts it to one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.sql.database.engine import make_engine, writing
from sam_pipeline.sql.loading.catalogue import Catalogue
from tests.services import needed
from tests.services.activemq import ActiveMQRules, ActiveMQServer, running_activemq
from tests.services.broker import Rules
from tests.services.brokers import BROKERS
from tests.services.postgres import PostgresServer, drop_database, new_url
from tests.support.brokers.tls_files import TlsBroker, TlsFiles
from tests.support.database.with_schema import with_schema

DIALECTS = ("sqlite", "postgresql")

# With foreign keys and triggers off, so that the order does not matter. Most tables are empty.
EMPTY_ALL_TABLES = text("""
    SET LOCAL session_replication_role = replica;
    DO $$
    DECLARE
        name text;
    BEGIN
        FOR name IN
            SELECT relname FROM pg_class
            WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
                AND pg_relation_size(oid) > 0 AND relname NOT IN (
                    'metric_status', 'alembic_version', 'compatibility', 'change_counter',
                    'database_identity'
                )
        LOOP
            EXECUTE format('DELETE FROM %I', name);
        END LOOP;
    END
    $$
""")


@pytest.fixture(scope="session")
def shared_postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """A database with the current schema, empty at the start of every test."""
    url = new_url(postgres)
    with_schema(url).dispose()
    yield url
    drop_database(postgres, url)


@pytest.fixture(scope="module")
def strict_activemq() -> Iterator[ActiveMQServer]:
    """An ActiveMQ without a login that restricts access to some topics (`AUTHORIZATION`)."""
    with needed(running_activemq(ActiveMQRules(authorization=True))) as server:
        yield server


@pytest.fixture(scope="module", params=BROKERS)
def tls_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsBroker]:
    """Each STOMP broker in turn, with a TLS port for clients with a certificate."""
    files = TlsFiles(tmp_path_factory.mktemp("tls"))
    with needed(BROKERS[request.param](Rules(files.host_certificate()))) as server:
        yield TlsBroker(server, files)


@pytest.fixture(params=DIALECTS)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An empty database with the current schema, which tests must not change."""
    if request.param == "sqlite":
        engine = with_schema(f"sqlite:///{tmp_path / 'sam.db'}")
    else:
        engine = make_engine(request.getfixturevalue("shared_postgres_url"))
        with writing(engine) as connection:
            connection.execute(EMPTY_ALL_TABLES)
    yield engine
    engine.dispose()


@pytest.fixture(params=DIALECTS)
def own_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database of the test's own, which does not exist yet."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'sam.db'}"
        return
    server = request.getfixturevalue("postgres")
    url = new_url(server)
    yield url
    drop_database(server, url)


@pytest.fixture
def bare_engine(request: pytest.FixtureRequest, own_url: str) -> Iterator[Engine]:
    """A database of the test's own, without a schema."""
    if not own_url.startswith("sqlite"):
        server = request.getfixturevalue("postgres")
        server.execute(f"CREATE DATABASE {own_url.rpartition('/')[2]}")
    engine = make_engine(own_url, create=True)
    yield engine
    engine.dispose()


@pytest.fixture
def own_engine(own_url: str) -> Iterator[Engine]:
    """A database of the test's own, with the current schema, which it may change."""
    engine = with_schema(own_url)
    yield engine
    engine.dispose()


@pytest.fixture
def catalogue(engine: Engine) -> Catalogue:
    return Catalogue(engine)
