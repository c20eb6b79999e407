"""What every connection promises: durable commits, bounded waits, and notice of a silent peer."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, text

from sam_pipeline.sql.database.engine import make_engine, reading
from tests.support.database.dialects import only_on

NOTICED_S = 60
"""The time within which a program notices that the database is silent."""


@contextmanager
def connected(engine: Engine) -> Iterator[tuple[Any, socket.socket]]:
    """The driver's connection to PostgreSQL, and its socket."""
    with reading(engine) as connection:
        driver: Any = connection.connection.driver_connection
        with socket.socket(fileno=os.dup(driver.fileno())) as duplicate:
            yield driver, duplicate


def tcp(connection: socket.socket, option: int) -> int:
    return connection.getsockopt(socket.IPPROTO_TCP, option)


@only_on("postgresql")
def test_a_silent_server_is_noticed_within_a_minute(engine: Engine) -> None:
    with connected(engine) as (driver, connection):
        probing = connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        first_s = tcp(connection, socket.TCP_KEEPIDLE)
        probes_s = tcp(connection, socket.TCP_KEEPCNT) * tcp(connection, socket.TCP_KEEPINTVL)
        unacknowledged_s = tcp(connection, socket.TCP_USER_TIMEOUT) / 1000
        connect_s = int(driver.info.dsn_parameters["connect_timeout"])

    assert probing
    idle_s = max(first_s + probes_s, unacknowledged_s)
    # Data sent at the last moment before an idle connection ends, then a new connection.
    assert 0 < unacknowledged_s < idle_s + unacknowledged_s + connect_s < NOTICED_S


@only_on("postgresql")
def test_the_server_notices_a_vanished_client_within_a_minute(engine: Engine) -> None:
    settings = ("idle", "interval", "count")

    with reading(engine) as connection:
        first_s, interval_s, count = (
            int(connection.execute(text(f"SHOW tcp_keepalives_{name}")).scalar_one())
            for name in settings
        )

    assert 0 < first_s + count * interval_s < NOTICED_S


@only_on("postgresql")
def test_the_wait_for_a_lock_is_bounded(engine: Engine) -> None:
    with reading(engine) as connection:
        timeout = connection.execute(text("SHOW lock_timeout")).scalar_one()

    assert timeout == "30s"


@only_on("postgresql")
def test_the_url_may_set_other_timeouts(engine: Engine) -> None:
    url = engine.url.update_query_dict({"tcp_user_timeout": "7000", "keepalives_idle": "3"})
    own = make_engine(url.render_as_string(hide_password=False))

    with connected(own) as (_, connection):
        timeouts = tcp(connection, socket.TCP_USER_TIMEOUT), tcp(connection, socket.TCP_KEEPIDLE)
    own.dispose()

    assert timeouts == (7000, 3)


@only_on("sqlite")
def test_commits_survive_a_power_failure(engine: Engine) -> None:
    with reading(engine) as connection:
        synchronous = connection.execute(text("PRAGMA synchronous")).scalar_one()

    assert synchronous == 2  # FULL
