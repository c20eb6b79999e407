"""Fixtures for all tests: real servers and Spark, each started once and only when needed."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from sam_pipeline.publisher.spool import bounded
from tests.services import needed
from tests.services.broker import QUICK_START, StompServer, java_options
from tests.services.brokers import BROKERS
from tests.services.host import SERVERS, VARIABLE, ServiceHost, shared
from tests.services.postgres import PostgresServer, drop_database, fresh_database
from tests.support.reports.spark_session import spark as spark  # fixtures
from tests.support.reports.spark_session import spark_ends as spark_ends

# A shell lets what it starts in the background ignore SIGINT, and that includes all our commands.
signal.signal(signal.SIGINT, signal.default_int_handler)

java_options += QUICK_START

# Wall time per example depends on the load of the machine; tests of speed have their own bounds.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")
# `pytest --hypothesis-profile=soak …` looks for what the default hundred examples miss.
hypothesis.settings.register_profile("soak", max_examples=20_000, deadline=None)


def pytest_configure(config: pytest.Config) -> None:
    """The process that starts the workers of xdist owns the servers that they share."""
    if config.getoption("numprocesses", None) and VARIABLE not in os.environ:
        config.add_cleanup(ServiceHost().stop)
    if not hasattr(config, "workerinput"):
        config.add_cleanup(_forget_losses)


def _forget_losses() -> None:
    """Remove the count of results that tests have lost, or check_sam_publisher is critical."""
    for directory in bounded.ELSEWHERE:
        Path(f"{directory}/sam-publish-losses-{os.geteuid()}").unlink(missing_ok=True)


def _server(name: str) -> Callable[[], Iterator[Any]]:
    """A server for the session: use databases and destinations of your own."""

    @pytest.fixture(scope="session", name=name)
    def server() -> Iterator[Any]:
        with needed(shared(name)) as running:
            yield running

    return server


for _name in SERVERS:
    globals()[_name] = _server(_name)


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """The URL of an empty database of the test's own."""
    url = fresh_database(postgres)
    yield url
    drop_database(postgres, url)


@pytest.fixture(params=BROKERS)
def broker(request: pytest.FixtureRequest) -> StompServer:
    """Each STOMP broker in turn; `on_brokers` chooses others: use destinations of your own."""
    server: StompServer = request.getfixturevalue(request.param)
    return server


@pytest.fixture(autouse=True)
def level_of_the_log() -> Iterator[None]:
    """Whatever level a program sets that a test calls, the next test has the default one."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
