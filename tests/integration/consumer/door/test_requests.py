"""Each kind of request: bad ones store nothing and disturb no other, odd ones are stored."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from sam_pipeline.consumer.sources.door.answers import PROBLEM
from sam_pipeline.consumer.sources.door.messages import HEADERS
from sam_pipeline.consumer.sources.door.openapi import STATUSES, openapi_document
from sam_pipeline.consumer.sources.door.requests import PATHS
from tests.support.builders import metric_result
from tests.support.consumer.bad_requests import (
    BAD_REQUESTS,
    CHUNKS,
    GZIP,
    JSON,
    MIB,
    PATH,
    BadRequest,
    chunked,
    post,
    wlcg,
)
from tests.support.consumer.open_door import OpenDoor, open_door
from tests.support.raw_http import Field, request


@pytest.fixture(scope="module")
def door() -> Iterator[OpenDoor]:
    with open_door(max_message_bytes=4 * MIB, buffer_bytes=10 * MIB) as door, door.storing():
        yield door


def body_of(metric: str) -> bytes:
    return wlcg(metric_result(metricName=metric))


def stored(door: OpenDoor, metric: str) -> int:
    """How many messages of the metric are stored."""
    return sum(f"metricName: {metric}\n".encode() in message.body for message in door.stored)


@pytest.mark.parametrize("bad", BAD_REQUESTS, ids=[bad.name for bad in BAD_REQUESTS])
def test_a_bad_request_gets_its_problem_beside_a_good_one(door: OpenDoor, bad: BadRequest) -> None:
    before = len(door.stored)
    metric = f"org.sam.Beside.{bad.name}"

    with door.connect() as connection, door.connect() as other:
        connection.send(bad.data)
        answer = connection.answer()
        if not bad.keeps_alive:
            assert connection.at_end
        beside = connection if bad.keeps_alive else other
        beside.send(post(body=body_of(metric)))
        assert beside.answer().status == 200

    problem = answer.document
    assert (answer.status, problem["status"]) == (bad.status, bad.status), answer
    assert answer.headers["content-type"].startswith(PROBLEM)
    assert problem["title"] and problem["type"]
    assert bad.status in STATUSES
    assert (stored(door, metric), len(door.stored)) == (1, before + 1)
    if bad.name == "a PATCH of messages":
        assert answer.headers["allow"] == "POST"
    if bad.name == "nested JSON":
        assert (problem["record"], problem["key"], problem["reason"]) == (1, "hostName", "nested")
        assert "a" in problem["value"]


def bytewise(body: bytes) -> bytes:
    return chunked(*(bytes([byte]) for byte in body))


ODD: Mapping[str, Callable[[bytes], bytes]] = {
    "chunk": lambda body: post(CHUNKS, body=None) + chunked(body),
    "chunks of a byte": lambda body: post(CHUNKS, body=None) + bytewise(body),
    "extension of a chunk": lambda body: (
        post(CHUNKS, body=None) + chunked(body).replace(b"\r\n", b";a=b\r\n", 1)
    ),
    "trailer": lambda body: post(CHUNKS, body=None) + chunked(body, end=b"0\r\nX: y\r\n\r\n"),
    "gzip": lambda body: post(GZIP, body=gzip.compress(body)),
    "two members": lambda body: post(GZIP, body=gzip.compress(body[:9]) + gzip.compress(body[9:])),
    "gzip in chunks": lambda body: post(GZIP, CHUNKS, body=None) + bytewise(gzip.compress(body)),
    "absolute target": lambda body: post(target=f"http://door.example.org{PATH}", body=body),
    "query": lambda body: post(target=f"{PATH}?a=b&a=c", body=body),
    "quoted path": lambda body: post(target="/v1/messages/metric%4Futput", body=body),
    "HTTP/1.0": lambda body: post(version="HTTP/1.0", body=body),
    "empty lines": lambda body: b"\r\n\r\n" + post(body=body),
    "header beyond ASCII": lambda body: post(("X", "caf\udce9"), body=body),
    "upgrade": lambda body: post(("Connection", "Upgrade"), ("Upgrade", "h2c"), body=body),
    "no content type": lambda body: post(content_type="", body=body),
    "charset": lambda body: post(content_type='TEXT/PLAIN ; charset="UTF-8"', body=body),
}


@pytest.mark.parametrize("name", ODD)
def test_a_request_that_only_looks_bad_is_stored(door: OpenDoor, name: str) -> None:
    with door.connect() as connection:
        connection.send(ODD[name](body_of(name)))
        answer = connection.answer()
        assert name != "HTTP/1.0" or connection.at_end

    assert (answer.status, stored(door, name)) == (200, 1), answer


def test_pipelined_requests_are_answered_in_order(door: OpenDoor) -> None:
    names = [f"pipelined {number}" for number in range(100)]

    with door.connect() as connection:
        connection.send(b"".join(post(("Sam-Message-Id", n), body=body_of(n)) for n in names))
        answers = [connection.answer() for _ in names]

    ids = [(answer.status, answer.document["messageId"]) for answer in answers]
    assert ids == [(200, name) for name in names]


def test_bytes_after_a_request_that_are_none_end_the_connection(door: OpenDoor) -> None:
    """The parser may see them before the request is answered, and then nothing of it is stored."""
    with door.connect() as connection:
        connection.send(
            post(body=body_of("before")) + b"hello\r\n\r\n" + post(body=body_of("after"))
        )
        statuses = [answer.status for answer in connection.answers()]

    assert statuses == [*[200] * stored(door, "before"), 400]
    assert stored(door, "after") == 0


@pytest.mark.parametrize("hidden_in", ["Content-Length: 0", "Transfer-Encoding: chunked"])
def test_a_body_with_two_lengths_is_not_read_as_a_request(door: OpenDoor, hidden_in: str) -> None:
    """The smuggling of requests past a proxy that believes the other length."""
    name = f"smuggled {hidden_in[:8]}"
    inner = post(body=body_of(name))
    body = b"0\r\n\r\n" + inner if "chunked" in hidden_in else inner

    with door.connect() as connection:
        connection.send(post(tuple(hidden_in.split(": ")), body=body))
        answers = connection.answers()

    assert ([answer.status for answer in answers], stored(door, name)) == ([400], 0)


@pytest.mark.parametrize(
    ("status", "fields", "target"),
    [
        (200, (), PATH),
        (404, (), "/v1/messagez/metricOutput"),
        (413, (("Content-Length", "9999999999"),), PATH),
        (415, (("Content-Encoding", "br"),), PATH),
    ],
)
def test_a_client_that_waits_for_100_is_told_before_it_sends_its_body(
    door: OpenDoor, status: int, fields: tuple[Field, ...], target: str
) -> None:
    body = body_of("continued")
    length = () if status == 413 else (("Content-Length", str(len(body))),)
    with door.connect() as connection:
        expecting = (("Expect", "100-continue"), *length, *fields)
        connection.send(post(*expecting, target=target, body=None))
        if status == 200:
            assert connection.answer().status == 100
            connection.send(body)

        assert connection.answer().status == status


def test_head_has_the_headers_of_get_without_its_body(door: OpenDoor) -> None:
    for path in ("/healthz", "/readyz", "/v1/openapi.json"):
        full = door.answer(request("GET", path))
        with door.connect() as connection:
            connection.send(request("HEAD", path) + request("GET", "/healthz"))
            head, following = connection.answer("HEAD"), connection.answer()

        assert (head.status, following.status) == (200, 200)
        assert head.headers["content-length"] == str(len(full.body))


def test_the_openapi_document_is_valid_complete_and_served(door: OpenDoor) -> None:
    document = openapi_document()
    served = door.answer(request("GET", "/v1/openapi.json"))
    methods = {
        path.partition("{")[0]: {method.upper() for method in operations}
        for path, operations in document["paths"].items()
        if not path.endswith("}/")
    }
    same_with_a_slash = ("/api/message", "/nrdp")
    operation = document["paths"]["/v1/messages/{class}"]["post"]

    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []
    assert served.headers["content-type"].startswith(JSON)
    assert served.document == document
    assert methods == {
        path: handlers.keys() - {"HEAD"}
        for path, handlers in PATHS.items()
        if path not in same_with_a_slash
    }
    assert HEADERS.keys() <= {parameter["name"] for parameter in operation["parameters"]}
