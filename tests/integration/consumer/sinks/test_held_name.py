"""The name of a consumer in the database: one host at a time, or several that share it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.consumer.errors import SourceTaken
from sam_pipeline.consumer.sinks.held_name import MAX_APPLICATION, HeldName, application_name
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.database.version import upgrade
from sam_pipeline.sql.errors import DatabaseAway
from tests.services.postgres import PostgresServer, as_role, fresh_database
from tests.support.database.dialects import only_on
from tests.support.database.roles import acting_as

NAME = "site-a"
LOCK = f"sam consumer {NAME}"
STRANGER = "reader"

Hosts = Callable[..., HeldName]


@pytest.fixture
def on_host(engine: Engine) -> Iterator[Hosts]:
    """`on_host("one", shared=False)` is the name as a process of that host holds it."""
    with ExitStack() as stack:
        loader = stack.enter_context(acting_as("loader", engine))

        def make(host: str, shared: bool = False) -> HeldName:
            return stack.enter_context(closing(HeldName(loader, NAME, shared, host)))

        yield make


@pytest.fixture
def stranger(engine: Engine) -> Iterator[Callable[[str], None]]:
    """Executes statements, with the parameter :name, in a session that may not load."""
    with acting_as(STRANGER, engine) as other, other.connect() as connection:

        def execute(statement: str) -> None:
            connection.execute(text(statement), {"name": LOCK})

        yield execute


@only_on("postgresql")
def test_another_host_is_refused_until_the_name_is_released(on_host: Hosts) -> None:
    first, second = on_host("one.example.org"), on_host("two.example.org")
    first.hold()
    first.hold()

    with pytest.raises(SourceTaken) as refused:
        second.hold()
    first.close()
    second.hold()

    assert f"sam-consume {NAME}@one.example.org {os.getpid()}" in str(refused.value)
    assert refused.value.exit_code == 69


@only_on("postgresql")
def test_hosts_that_share_a_name_hold_it_together_but_not_with_one_that_does_not(
    on_host: Hosts,
) -> None:
    on_host("one", shared=True).hold()
    on_host("two", shared=True).hold()

    with pytest.raises(SourceTaken):
        on_host("three").hold()


@only_on("postgresql")
@pytest.mark.parametrize("shared", [False, True])
def test_a_login_that_may_not_load_does_not_stop_a_consumer_and_is_named_once(
    on_host: Hosts,
    stranger: Callable[[str], None],
    caplog: pytest.LogCaptureFixture,
    shared: bool,
) -> None:
    stranger("SELECT pg_advisory_lock(hashtextextended(:name, 0))")
    held, other = on_host("one", shared), on_host("two", shared=False)

    with caplog.at_level(logging.WARNING):
        held.hold()
        held.hold()

    assert [STRANGER in record.getMessage() for record in caplog.records] == [True]
    stranger("SELECT pg_advisory_unlock_all()")
    held.hold()
    with pytest.raises(SourceTaken):
        other.hold()


@only_on("postgresql")
def test_an_earlier_connection_of_the_same_process_is_not_taken_for_another(
    on_host: Hosts,
) -> None:
    """After a network failure the server keeps it until it notices."""
    on_host("one").hold()

    on_host("one").hold()


def test_after_a_restart_of_the_server_the_first_to_return_holds_the_name(
    mortal_postgres: PostgresServer,
) -> None:
    url = fresh_database(mortal_postgres)
    upgrade(make_engine(url))
    loader = make_engine(as_role(url, "loader"))
    first, second = HeldName(loader, NAME, False, "one"), HeldName(loader, NAME, False, "two")
    with closing(first), closing(second):
        first.hold()

        mortal_postgres.kill()
        with pytest.raises(DatabaseAway):
            first.hold()
        mortal_postgres.restart()
        first.hold()
        with pytest.raises(SourceTaken):
            second.hold()

        mortal_postgres.restart()
        second.hold()
        with pytest.raises(SourceTaken):
            first.hold()


@pytest.mark.parametrize("name", ["site-a", "x" * 80])
def test_a_long_name_leaves_room_for_host_and_process(name: str) -> None:
    shown = application_name(name, "ce.example.org", 4711)

    assert shown.startswith(f"sam-consume {name[:30]}")
    assert shown.endswith("@ce.example.org 4711")
    assert len(shown) <= MAX_APPLICATION
