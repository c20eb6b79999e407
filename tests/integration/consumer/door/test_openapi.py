"""The OpenAPI document is valid, and a client that a generator makes of it works."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from sam_pipeline.consumer.sources.door.messages import HEADERS
from sam_pipeline.consumer.sources.door.openapi import openapi_document
from sam_pipeline.consumer.sources.door.requests import PATHS
from sam_pipeline.schema.spool.element import serialise
from tests.services.process import HOST
from tests.support.builders import metric_message, metric_result
from tests.support.commands import PROGRAMS
from tests.support.consumer.door_site import DoorSite, door_site

PACKAGE = "generated_client"


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorSite]:
    with door_site(tmp_path_factory.mktemp("door")) as door:
        yield door


@pytest.fixture(scope="module")
def client(door: DoorSite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The package that openapi-python-client makes from the document of the running door."""
    directory = tmp_path_factory.mktemp("client")
    config = {
        "post_hooks": [],
        # The generator knows no lines of JSON, but how to send bytes.
        "content_type_overrides": {"application/x-ndjson": "application/octet-stream"},
    }
    (directory / "config.json").write_text(json.dumps(config))
    subprocess.run(
        [
            *(PROGRAMS / "openapi-python-client", "generate", "--meta", "none"),
            *("--url", f"http://{HOST}:{door.door.port}/v1/openapi.json"),
            *("--config", directory / "config.json", "--output-path", directory / PACKAGE),
        ],
        check=True,
    )
    sys.path.insert(0, str(directory))
    yield importlib.import_module(PACKAGE)
    sys.path.remove(str(directory))


def test_the_document_is_valid() -> None:
    errors = OpenAPIV31SpecValidator(openapi_document()).iter_errors()

    assert list(errors) == []


def test_the_document_has_all_paths_and_methods_of_the_door() -> None:
    document = openapi_document()["paths"]
    documented = {
        path.partition("{")[0]: {method.upper() for method in operations}
        for path, operations in document.items()
        if not path.endswith("}/")
    }

    assert documented == {
        path: handlers.keys() - {"HEAD"}
        for path, handlers in PATHS.items()
        if path not in ("/api/message", "/nrdp")  # the same with a slash
    }


def test_the_document_has_all_headers_of_a_message() -> None:
    operation = openapi_document()["paths"]["/v1/messages/{class}"]["post"]

    assert HEADERS.keys() <= {parameter["name"] for parameter in operation["parameters"]}


def test_the_door_serves_the_document(door: DoorSite) -> None:
    answer = door.get("/v1/openapi.json")

    assert answer.headers["content-type"].startswith("application/json")
    assert answer.document == openapi_document()


def test_a_generated_client_gets_the_rows_and_dead_letters_of_its_message(
    door: DoorSite, client: Any
) -> None:
    post_message = importlib.import_module(f"{PACKAGE}.api.default.post_message")
    good, bad = metric_result(metricName="org.sam.Client"), metric_result(metricStatus="FINE")
    records = [client.models.Record.from_dict(record) for record in (good, bad)]

    with client.Client(f"http://{HOST}:{door.door.port}") as connection:
        loaded, again = (
            post_message.sync(
                "metricOutput", client=connection, body=records, sam_message_id="client-1"
            )
            for _ in range(2)
        )

    assert isinstance(loaded, client.models.Loaded)
    assert (loaded.message_id, loaded.rows, loaded.duplicates) == ("client-1", 1, 0)
    assert [(letter.number, letter.reason) for letter in loaded.dead_letters] == [(2, "bad-status")]
    assert (again.rows, again.duplicates) == (0, 1)
    assert door.rows("org.sam.Client") == 1


def test_a_generated_client_gets_a_typed_problem(door: DoorSite, client: Any) -> None:
    post_message = importlib.import_module(f"{PACKAGE}.api.default.post_message")

    with client.Client(f"http://{HOST}:{door.door.port}") as connection:
        problem = post_message.sync(
            "metricOutput", client=connection, body=[], sam_message_id="i" * 1000
        )

    assert isinstance(problem, client.models.Problem)
    assert problem.status == 400
    assert "Sam-Message-Id" in problem.detail


def test_a_generated_client_sends_many_messages(door: DoorSite, client: Any) -> None:
    post_messages = importlib.import_module(f"{PACKAGE}.api.default.post_messages")
    messages = [metric_message(metric_result(metricName=f"org.sam.Line{n}")) for n in range(3)]
    lines = b"".join(serialise(message) + b"\n" for message in messages)

    with client.Client(f"http://{HOST}:{door.door.port}") as connection:
        body = importlib.import_module(f"{PACKAGE}.types").File(BytesIO(lines))
        answer = post_messages.sync(client=connection, body=body)

    outcomes = [json.loads(line) for line in answer.payload.read().splitlines()]
    assert [outcome["messageId"] for outcome in outcomes] == [m.message_id for m in messages]
    assert [(outcome["status"], outcome["rows"]) for outcome in outcomes] == [(200, 1)] * 3
