"""Whatever is sent to a door, it answers in time; a 2xx is stored, and everything else is not."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from sam_pipeline.consumer.sources.door.answers import PROBLEM
from sam_pipeline.consumer.sources.door.messages import HEADERS
from sam_pipeline.consumer.sources.door.source import OPENAPI, PATHS
from sam_pipeline.schema.messages.message import CLASS, CONTENT_TYPE, MESSAGE_ID, Message
from sam_pipeline.schema.records.classes import BUILT_IN
from sam_pipeline.schema.spool.element import serialise
from sam_pipeline.sql.loading.letters.dead_letter import EDITION, storable
from sam_pipeline.sql.loading.letters.quota import SUMMARY
from sam_pipeline.sql.loading.letters.store import LONGEST_ID
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
from tests.support.consumer.door import DoorSite, door_site
from tests.support.consumer.drawn_messages import DrawnMessage, draw_message, good_message
from tests.support.consumer.open_door import OpenDoor, open_door
from tests.support.http_client import HttpAnswer
from tests.support.raw_http import Field, request

DOCUMENT = json.loads(OPENAPI.read_bytes())
STATUSES = {int(name) for name in DOCUMENT["components"]["responses"] if name.isdigit()}


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
    "absolute target": lambda body: post(target=f"http://localhost{PATH}", body=body),
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

    assert [answer.document["messageId"] for answer in answers] == names


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
    ("status", "fields"),
    [(200, ()), (413, (("Content-Length", "9999999999"),)), (415, (("Content-Encoding", "br"),))],
)
def test_a_client_that_waits_for_100_is_told_before_it_sends_its_body(
    door: OpenDoor, status: int, fields: tuple[Field, ...]
) -> None:
    body = body_of("continued")
    length = () if status == 413 else (("Content-Length", str(len(body))),)
    with door.connect() as connection:
        connection.send(post(("Expect", "100-continue"), *length, *fields, body=None))
        if status == 200:
            assert connection.answer().status == 100
            connection.send(body)

        assert connection.answer().status == status


def test_the_openapi_document_is_valid_complete_and_served(door: OpenDoor) -> None:
    document, served = DOCUMENT, door.answer(request("GET", "/v1/openapi.json"))
    methods = {
        path.partition("{")[0]: {method.upper() for method in operations}
        for path, operations in document["paths"].items()
        if not path.endswith("}/")
    }
    same_with_a_slash = ("/api/message", "/nrdp")
    operation = document["paths"]["/v1/messages/{class}"]["post"]

    (classes,) = (item for item in operation["parameters"] if item["name"] == "class")

    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []
    assert served.headers["content-type"].startswith(JSON)
    assert served.document == document
    assert methods == {
        path: handlers.keys() - {"HEAD"}
        for path, handlers in PATHS.items()
        if path not in same_with_a_slash
    }
    assert HEADERS.keys() <= {parameter["name"] for parameter in operation["parameters"]}
    assert classes["schema"]["examples"] == [item.name for item in BUILT_IN.values()]


REQUESTS = 50
AT_ONCE = 30
WITHIN_S = 30.0
"""Three times the limit on slow requests, since the machine may be busy."""


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_what_is_answered_2xx_is_stored_and_nothing_else(
    tmp_path: Path, dialect: str, request: pytest.FixtureRequest
) -> None:
    database = "" if dialect == "sqlite" else request.getfixturevalue("postgres_url")
    seed = len(database)
    with door_site(tmp_path, database) as door:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answered = list(pool.map(lambda data: answers_of(door, data), requests(seed)))
        good = [answers_of(door, single(good_message(f"good{number}"))) for number in range(3)]
        outcomes = [outcome for answers in [*answered, *good] for outcome in outcomes_of(answers)]
        stored = [outcome for outcome in outcomes if outcome["status"] in (200, 202)]
        ids = set(door.site.column("SELECT messageId FROM metricOutput"))
        letters = set(door.site.column("SELECT message_id FROM dead_letter"))
        rows, log = door.rows(), door.daemon.log

    assert [answers[0].document["rows"] for answers in good] == [1, 1, 1]
    assert sum(outcome["rows"] for outcome in stored) == rows
    assert ids <= {outcome["messageId"] for outcome in stored if outcome["rows"]}
    # Beyond the limits on one sender, letters are only counted.
    folded = {letter for letter in letters if letter.startswith(SUMMARY)}
    with_letters = {id_of_letter(item["messageId"]) for item in stored if item["deadLetters"]}
    assert letters - folded <= with_letters
    assert folded or with_letters <= letters
    assert "Traceback" not in log, log[-5000:]


def id_of_letter(message_id: str) -> str:
    """How a dead letter names its message."""
    taken = message_id.startswith(SUMMARY) or EDITION.fullmatch(message_id)
    if taken or len(message_id) > LONGEST_ID:
        return f"sha256:{sha256(message_id.encode('utf-8', 'replace')).hexdigest()}"
    return storable(message_id)


def requests(seed: int) -> Iterator[bytes]:
    """Drawn messages in all forms that the door knows, and bad requests."""
    chance = random.Random(seed)
    seeds = [bad.data for bad in BAD_REQUESTS if len(bad.data) < 5000]
    for number in range(REQUESTS):
        drawn = [draw_message(chance, f"m{number:03}x{part:03}") for part in range(3)]
        yield chance.choice([single(drawn[0]), single(drawn[0]), many(drawn), chance.choice(seeds)])


def single(drawn: DrawnMessage) -> bytes:
    """The message as a request of its own."""
    headers = dict(drawn.headers)
    path = quote_from_bytes(headers.pop(CLASS.encode(), b"metricOutput"))
    names = {MESSAGE_ID.encode(): b"Sam-Message-Id", CONTENT_TYPE.encode(): b"Content-Type"}
    lines = [
        b"POST /v1/messages/%b HTTP/1.1" % path.encode(),
        b"Host: localhost",
        *(b"%b: %b" % (names.get(name, name), value) for name, value in headers.items()),
        b"Content-Length: %d" % len(drawn.body),
    ]
    return b"\r\n".join([*lines, b"", drawn.body])


def many(drawn: Sequence[DrawnMessage]) -> bytes:
    """The messages as the lines of one request."""
    lines = []
    for message in drawn:
        headers = {
            name.decode(errors="replace"): value.decode(errors="surrogateescape")
            for name, value in message.headers
        }
        lines.append(serialise(Message(headers, message.body)) + b"\n")
    head = (
        b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    return head + chunked(*lines)


def answers_of(door: DoorSite, data: bytes) -> Sequence[HttpAnswer]:
    """All answers; after the first one, the connection is ended with something else than HTTP."""
    with door.connect(WITHIN_S) as connection:
        connection.send(data)
        first = connection.answer()
        connection.send(b"END\r\n\r\n")
        return [first, *connection.answers()]


def outcomes_of(answers: Sequence[HttpAnswer]) -> Iterator[dict[str, Any]]:
    """The outcome of each message that was answered; fails if an answer is not as documented."""
    for answer in answers:
        if answer.status >= 300:
            assert answer.status in STATUSES, answer
            assert answer.headers["content-type"].startswith(PROBLEM), answer
            assert answer.document["status"] == answer.status, answer
        for document in answer.documents:
            if "messageId" in document:
                yield {"status": answer.status, **document}
