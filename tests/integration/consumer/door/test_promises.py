"""Whatever is sent to a door, it answers or closes the connection in time; a 2xx is in the
database, and everything else changes nothing there."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

import pytest

from sam_pipeline.consumer.sources.door.answers import PROBLEM
from sam_pipeline.consumer.sources.door.openapi import STATUSES
from sam_pipeline.schema.messages.message import CLASS, CONTENT_TYPE, MESSAGE_ID, Message
from sam_pipeline.schema.spool.element import serialise
from sam_pipeline.sql.loading.letters.dead_letter import EDITION, storable
from sam_pipeline.sql.loading.letters.quota import SUMMARY
from sam_pipeline.sql.loading.letters.store import LONGEST_ID
from tests.support.consumer.bad_requests import BAD_REQUESTS, chunked
from tests.support.consumer.door_site import DoorSite, door_site
from tests.support.consumer.drawn_messages import DrawnMessage, draw_message, good_message
from tests.support.http_client import HttpAnswer

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
        b"Host: door.example.org",
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
