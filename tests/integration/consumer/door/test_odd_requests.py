"""Requests that only look bad are stored like any other."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Mapping

import pytest

from tests.support.builders import metric_result
from tests.support.consumer.bad_requests import PATH, chunked, post, wlcg
from tests.support.consumer.door_site import DoorSite, door_site
from tests.support.raw_http import Field, request

CHUNKS = ("Transfer-Encoding", "chunked")
GZIP = ("Content-Encoding", "gzip")


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorSite]:
    with door_site(tmp_path_factory.mktemp("door")) as door:
        yield door


def body_of(metric: str) -> bytes:
    return wlcg(metric_result(metricName=metric))


def in_chunks(body: bytes, size: int = 1) -> bytes:
    return chunked(*(body[at : at + size] for at in range(0, len(body), size)))


ODD: Mapping[str, Callable[[bytes], bytes]] = {
    "chunk": lambda body: post(CHUNKS, body=None) + chunked(body),
    "chunks of a byte": lambda body: post(CHUNKS, body=None) + in_chunks(body),
    "extension of a chunk": lambda body: (
        post(CHUNKS, body=None) + chunked(body).replace(b"\r\n", b";a=b\r\n", 1)
    ),
    "trailer": lambda body: post(CHUNKS, body=None) + chunked(body, end=b"0\r\nX: y\r\n\r\n"),
    "gzip": lambda body: post(GZIP, body=gzip.compress(body)),
    "two members": lambda body: post(GZIP, body=gzip.compress(body[:9]) + gzip.compress(body[9:])),
    "gzip in chunks": lambda body: post(GZIP, CHUNKS, body=None) + in_chunks(gzip.compress(body)),
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
def test_a_request_that_only_looks_bad_is_stored(door: DoorSite, name: str) -> None:
    answer = door.ask(ODD[name](body_of(name)))

    assert answer.status == 200, answer
    assert answer.document["rows"] == 1
    assert door.rows(name) == 1


def test_pipelined_requests_are_answered_in_order(door: DoorSite) -> None:
    names = [f"pipelined {number}" for number in range(100)]

    with door.connect() as connection:
        connection.send(b"".join(post(("Sam-Message-Id", n), body=body_of(n)) for n in names))
        answers = [connection.answer() for _ in names]

    assert [(answer.status, answer.document["messageId"]) for answer in answers] == [
        (200, name) for name in names
    ]
    assert door.rows("pipelined %") == len(names)


def test_bytes_after_a_request_that_are_none_end_the_connection(door: DoorSite) -> None:
    """The parser may see them before the request is answered, and then nothing of it is stored."""
    with door.connect() as connection:
        connection.send(
            post(body=body_of("before")) + b"hello\r\n\r\n" + post(body=body_of("after"))
        )
        answers = connection.answers()

    assert answers[-1].status == 400
    assert [answer.status for answer in answers[:-1]] == [200] * door.rows("before")
    assert door.rows("after") == 0


@pytest.mark.parametrize("hidden_in", ["Content-Length: 0", "Transfer-Encoding: chunked"])
def test_a_body_with_two_lengths_is_not_read_as_a_request(door: DoorSite, hidden_in: str) -> None:
    """The smuggling of requests past a proxy that believes the other length."""
    name = f"smuggled {hidden_in[:8]}"
    inner = post(body=body_of(name))
    body = b"0\r\n\r\n" + inner if "chunked" in hidden_in else inner
    outer = post(tuple(hidden_in.split(": ")), body=body)

    with door.connect() as connection:
        connection.send(outer)
        answers = connection.answers()

    assert [answer.status for answer in answers] == [400]
    assert door.rows(name) == 0


def test_a_client_that_waits_for_100_may_go_on(door: DoorSite) -> None:
    body = body_of("continued")
    fields = [("Expect", "100-continue"), ("Content-Length", str(len(body)))]

    with door.connect() as connection:
        connection.send(post(*fields, body=None))
        interim = connection.answer()
        connection.send(body)
        answer = connection.answer()

    assert (interim.status, answer.status) == (100, 200)
    assert door.rows("continued") == 1


@pytest.mark.parametrize(
    ("status", "fields", "target"),
    [
        (404, (("Content-Length", "100"),), "/v1/messagez/metricOutput"),
        (413, (("Content-Length", "9999999999"),), PATH),
        (415, (("Content-Length", "100"), ("Content-Encoding", "br")), PATH),
    ],
)
def test_a_client_that_waits_for_100_is_refused_before_it_sends_its_body(
    door: DoorSite, status: int, fields: tuple[Field, ...], target: str
) -> None:
    with door.connect() as connection:
        connection.send(post(("Expect", "100-continue"), *fields, target=target, body=None))

        assert connection.answer().status == status


def test_head_has_the_headers_of_get_without_its_body(door: DoorSite) -> None:
    for path in ("/healthz", "/readyz", "/v1/openapi.json"):
        full = door.get(path)
        with door.connect() as connection:
            connection.send(request("HEAD", path) + request("GET", "/healthz"))
            head, following = connection.answer("HEAD"), connection.answer()

        assert (head.status, following.status) == (200, 200)
        assert head.headers["content-length"] == str(len(full.body))


def test_a_client_of_http_1_0_gets_one_answer_and_the_end(door: DoorSite) -> None:
    with door.connect() as connection:
        connection.send(post(version="HTTP/1.0", body=body_of("1.0")))
        answers = connection.answers()

    assert [answer.status for answer in answers] == [200]
