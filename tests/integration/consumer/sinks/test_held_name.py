"""The name of a consumer in the database: one host at a time, or several that share it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.consumer.errors import SourceTaken
from sam_pipeline.consumer.sinks import held_name
from sam_pipeline.consumer.sinks.held_name import MAX_APPLICATION, HeldName, application_name
from sam_pipeline.sql.database.engine import writing
from tests.support.database.dialects import only_on
from tests.support.database.roles import acting_as

NAME, STRANGER = "site-a", "reader"
LOCK = f"sam consumer {NAME}"
END_SESSIONS = text("""
    SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'sam-%'
""")

Hosts = Callable[..., HeldName]


@pytest.fixture
def on_host(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    """`on_host("one", shared=False)` is the name as a process of that host holds it."""
    monkeypatch.setattr(held_name, "GRACE_S", 0.2)
    with ExitStack() as stack:
        loader = stack.enter_context(acting_as("loader", engine))

        def make(host: str, shared: bool = False) -> HeldName:
            return stack.enter_context(closing(HeldName(loader, NAME, shared, host)))

        yield make


@only_on("postgresql")
def test_another_host_is_refused_until_the_name_is_released(on_host: Hosts) -> None:
    first, second = on_host("one.example.org"), on_host("two.example.org")
    first.hold()
    on_host("one.example.org").hold()  # the server may keep a lost connection of this process
    first.hold()

    with pytest.raises(SourceTaken) as refused:
        second.hold()

    assert f"sam-consume {NAME}@one.example.org {os.getpid()}" in str(refused.value)
    assert refused.value.exit_code == 69


@only_on("postgresql")
def test_the_first_host_to_return_after_a_restart_of_the_server_holds_the_name(
    on_host: Hosts, engine: Engine
) -> None:
    first, second = on_host("one"), on_host("two")
    first.hold()
    first.close()
    second.hold()
    for holder, other in ((second, first), (first, second)):
        with writing(engine) as connection:
            connection.execute(END_SESSIONS)
        holder.hold()
        with pytest.raises(SourceTaken):
            other.hold()


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
    on_host: Hosts, engine: Engine, caplog: pytest.LogCaptureFixture, shared: bool
) -> None:
    held, other = on_host("one", shared), on_host("two", shared=False)
    with acting_as(STRANGER, engine) as stranger, stranger.connect() as connection:
        lock = text("SELECT pg_advisory_lock(hashtextextended(:name, 0))")
        connection.execute(lock, {"name": LOCK})
        with caplog.at_level(logging.WARNING):
            held.hold()
            held.hold()

    assert [STRANGER in record.getMessage() for record in caplog.records] == [True]
    held.hold()
    with pytest.raises(SourceTaken):
        other.hold()


@pytest.mark.parametrize("name", ["site-a", "x" * 80])
def test_a_long_name_leaves_room_for_host_and_process(name: str) -> None:
    shown = application_name(name, "ce.example.org", 4711)

    assert shown.startswith(f"sam-consume {name[:30]}")
    assert shown.endswith("@ce.example.org 4711")
    assert len(shown) <= MAX_APPLICATION
