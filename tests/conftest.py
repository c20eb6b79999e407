"""Fixtures for all tests: real servers and Spark, each started once and only when needed."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import hypothesis
import pytest

from tests.services import needed
from tests.services.activemq import ActiveMQServer, running_activemq
from tests.services.activemq5 import ActiveMQ5Server, running_activemq5
from tests.services.artemis import ArtemisServer, running_artemis
from tests.services.broker import QUICK_START, StompServer, java_options
from tests.services.brokers import BROKERS
from tests.services.postgres import PostgresServer, fresh_database, running_postgres
from tests.services.rabbitmq import RabbitMQServer, running_rabbitmq
from tests.support.reports.spark_session import spark as spark  # a fixture

# A shell lets what it starts in the background ignore SIGINT, and that includes all our commands.
signal.signal(signal.SIGINT, signal.default_int_handler)

java_options += QUICK_START

# Wall time per example depends on the load of the machine; tests of speed have their own bounds.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")
# `pytest --hypothesis-profile=soak …` looks for what the default hundred examples miss.
hypothesis.settings.register_profile("soak", max_examples=20_000, deadline=None)

# Far from UTC and off by half an hour: reveals statements that depend on the server's zone.
ODD_TIME_ZONE = {"timezone": "Asia/Kolkata"}


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server for the session; `fresh_database(postgres)` gives a test its own."""
    with needed(running_postgres(ODD_TIME_ZONE)) as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """The URL of an empty database of the test's own."""
    return fresh_database(postgres)


@pytest.fixture(scope="session")
def activemq() -> Iterator[ActiveMQServer]:
    """An ActiveMQ Classic broker for the session: use destinations of your own."""
    with needed(running_activemq()) as server:
        yield server


@pytest.fixture(scope="session")
def artemis() -> Iterator[ArtemisServer]:
    """An ActiveMQ Artemis broker for the session: use destinations of your own."""
    with needed(running_artemis()) as server:
        yield server


@pytest.fixture(scope="session")
def activemq5() -> Iterator[ActiveMQ5Server]:
    """An ActiveMQ Classic 5 broker with its REST servlet: use destinations of your own."""
    with needed(running_activemq5()) as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMQServer]:
    """A RabbitMQ broker for the session: use destinations of your own."""
    with needed(running_rabbitmq()) as server:
        yield server


@pytest.fixture(params=BROKERS)
def broker(request: pytest.FixtureRequest) -> StompServer:
    """Each STOMP broker in turn; `on_brokers` chooses others: use destinations of your own."""
    server: StompServer = request.getfixturevalue(request.param)
    return server
