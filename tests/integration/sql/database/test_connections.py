"""What every connection promises."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.sql.database.engine import make_engine, reading
from sam_pipeline.sql.database.version import current_version
from sam_pipeline.sql.errors import DatabaseMissing, DatabaseRefused
from tests.services.postgres import PostgresServer
from tests.support.database.dialects import only_on
from tests.support.database.own_class import run
from tests.support.database.sql_rows import query

NOTICED_S = 60
"""The time within which a program notices that the database is silent."""


@only_on("postgresql")
def test_sessions_are_in_utc_and_waits_bounded_whatever_the_server_says(engine: Engine) -> None:
    assert query(engine, "SHOW timezone") == [("UTC",)]
    after_reset = query(engine, "SELECT reset_val FROM pg_settings WHERE name = 'TimeZone'")
    assert after_reset == [("UTC",)]
    assert query(engine, "SHOW lock_timeout") == [("30s",)]
    # The server notices a vanished client.
    names = ("idle", "interval", "count")
    first_s, interval_s, count = (
        int(query(engine, f"SHOW tcp_keepalives_{name}")[0][0]) for name in names
    )
    assert 0 < first_s + count * interval_s < NOTICED_S


def test_an_unusable_database_of_a_server_is_reported_without_the_password(
    postgres: PostgresServer,
) -> None:
    with pytest.raises(DatabaseMissing, match='database "nowhere" does not exist'):
        current_version(make_engine(postgres.url("nowhere")))
    with pytest.raises(DatabaseRefused, match="password authentication failed") as caught:
        current_version(make_engine(postgres.url().replace(postgres.password, "wrong-secret")))

    assert "wrong-secret" not in str(caught.value)


@only_on("sqlite")
def test_commits_to_a_file_survive_a_power_failure_and_readers_do_not_block(engine: Engine) -> None:
    assert query(engine, "PRAGMA synchronous") == [(2,)]  # FULL
    with closing(engine.connect()) as reader:
        reader.execute(text("SELECT * FROM run")).all()
        run(engine, "INSERT INTO site (name) VALUES ('S')")

    assert query(engine, "SELECT name FROM site") == [("S",)]


@contextmanager
def connected(engine: Engine) -> Iterator[tuple[Any, socket.socket]]:
    """The driver's connection to PostgreSQL, and its socket."""
    with reading(engine) as connection:
        driver: Any = connection.connection.driver_connection
        with socket.socket(fileno=os.dup(driver.fileno())) as duplicate:
            yield driver, duplicate


@only_on("postgresql")
def test_a_silent_server_is_noticed_within_a_minute_unless_the_url_says_otherwise(
    engine: Engine,
) -> None:
    def tcp(name: str) -> int:
        return connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{name}"))

    with connected(engine) as (driver, connection):
        probing = connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        probes_s = tcp("KEEPIDLE") + tcp("KEEPCNT") * tcp("KEEPINTVL")
        unacknowledged_s = tcp("USER_TIMEOUT") / 1000
        connect_s = int(driver.info.dsn_parameters["connect_timeout"])
    url = engine.url.update_query_dict({"tcp_user_timeout": "7000", "keepalives_idle": "3"})
    own = make_engine(url.render_as_string(hide_password=False))
    with connected(own) as (_, connection):
        of_url = tcp("USER_TIMEOUT"), tcp("KEEPIDLE")
    own.dispose()

    assert probing
    idle_s = max(probes_s, unacknowledged_s)
    # Data sent at the last moment before an idle connection ends, then a new connection.
    assert 0 < unacknowledged_s < idle_s + unacknowledged_s + connect_s < NOTICED_S
    assert of_url == (7000, 3)
