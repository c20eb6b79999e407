"""A server of feeds: a GOCDB of 25 endpoints and a document `/x.xml`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import feed_server
from tests.support.database.gocdb_files import endpoint_elements, nested_downtime, site
from tests.support.feed_server import FeedServer, serving

START = 1_793_836_800  # 2026-11-05
TEXT = f"<results>{'<x/>' * 10_000}</results>"


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FeedServer]:
    with serving(tmp_path_factory.mktemp("feed-server")) as server:
        yield server


@pytest.fixture
def server(shared_server: FeedServer) -> FeedServer:
    shared_server.elements = {
        "get_service_endpoint": endpoint_elements(range(25)),
        "get_site": [site("EXAMPLE-LCG2")],
        "get_downtime_nested_services": [nested_downtime(("h1", "CE"), start=START, end=START + 1)],
    }
    shared_server.documents = {"/x.xml": (feed_server.XML, TEXT)}
    shared_server.faults.clear()
    shared_server.requests.clear()
    return shared_server
