"""The databases of these tests are on the durable server."""

from __future__ import annotations

import pytest

from tests.services.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres(durable_postgres: PostgresServer) -> PostgresServer:
    return durable_postgres
