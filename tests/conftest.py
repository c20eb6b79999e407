"""Fixtures for all tests: real servers and Spark, each started once and only when needed."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest

from tests.services import needed
from tests.services.activemq import ActiveMQServer
from tests.services.activemq5 import ActiveMQ5Server
from tests.services.artemis import ArtemisServer
from tests.services.broker import QUICK_START, StompServer, java_options
from tests.services.brokers import BROKERS
from tests.services.host import VARIABLE, ServiceHost, shared
from tests.services.postgres import PostgresServer, drop_database, fresh_database
from tests.services.rabbitmq import RabbitMQServer
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


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for the session; `fresh_database(postgres)` gives a test its own."""
    with needed(shared("postgres")) as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """The URL of an empty database of the test's own."""
    url = fresh_database(postgres)
    yield url
    drop_database(postgres, url)


@pytest.fixture(scope="session")
def activemq() -> Iterator[ActiveMQServer]:
    """An ActiveMQ Classic broker for the session: use destinations of your own."""
    with needed(shared("activemq")) as server:
        yield server


@pytest.fixture(scope="session")
def artemis() -> Iterator[ArtemisServer]:
    """An ActiveMQ Artemis broker for the session: use destinations of your own."""
    with needed(shared("artemis")) as server:
        yield server


@pytest.fixture(scope="session")
def activemq5() -> Iterator[ActiveMQ5Server]:
    """An ActiveMQ Classic 5 broker with its REST servlet: use destinations of your own."""
    with needed(shared("activemq5")) as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMQServer]:
    """A RabbitMQ broker for the session: use destinations of your own."""
    with needed(shared("rabbitmq")) as server:
        yield server


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
