"""What a sender is answered, and when: the test itself stores the messages of the door."""

from __future__ import annotations

import select
import time

import pytest

from sam_pipeline.consumer.core.inbox import (
    BROKER,
    DATABASE,
    NOWHERE,
    SPOOL,
    Inbox,
    MessageOutcome,
    UnloadedRecord,
)
from sam_pipeline.consumer.sources.door import exchange, messages, server
from sam_pipeline.schema.identity.identity import ANONYMOUS
from sam_pipeline.schema.messages.message import MESSAGE_ID, Message
from sam_pipeline.schema.spool.element import serialise
from tests.support.builders import metric_message
from tests.support.consumer.bad_requests import CHUNKS, post
from tests.support.consumer.open_door import open_door
from tests.support.http_client import LINES, HttpAnswer
from tests.support.raw_http import request
from tests.support.waiting import SOON_S, eventually

ROW = MessageOutcome(DATABASE, rows=1)
READY = request("GET", "/readyz")
LETTERS = [UnloadedRecord(2, "bad-status", "why")]


def lines_of(*messages: Message) -> bytes:
    return b"".join(serialise(message) + b"\n" for message in messages)


def post_lines(*lines: bytes, content_type: str = LINES) -> bytes:
    """Many messages in one request."""
    return request(*("POST", "/v1/messages"), ("Content-Type", content_type), body=b"".join(lines))


def posted(number: int) -> bytes:
    return post(("Sam-Message-Id", f"id-{number}"))


def statuses(answer: HttpAnswer) -> list[int]:
    return [line["status"] for line in answer.lines]


@pytest.mark.parametrize(
    ("outcome", "status", "document"),
    [
        (ROW, 200, {"rows": 1, "duplicates": 0, "deadLetters": []}),
        (
            *(MessageOutcome(DATABASE, 1, 3, LETTERS), 200),
            {"rows": 1, "duplicates": 3, "deadLetters": [LETTERS[0]._asdict()]},
        ),
        (MessageOutcome(BROKER), 202, {"stored": BROKER}),
        (MessageOutcome(SPOOL), 202, {"stored": SPOOL}),
    ],
)
def test_a_message_is_answered_when_it_is_stored_and_not_before(
    outcome: MessageOutcome, status: int, document: dict[str, object]
) -> None:
    with open_door() as door:
        answer = door.ask(posted(1))
        batch = door.take()
        time.sleep(0.2)
        before = answer.done()
        door.commit(batch, outcome)

        assert not before
        assert answer.result(SOON_S).status == status
        assert answer.result().document == {"messageId": "id-1", **document}


def test_a_message_that_no_broker_takes_is_not_stored() -> None:
    refused = UnloadedRecord(None, "not-authorised", "not authorized to write")
    with open_door() as door:
        answer = door.ask(posted(1))
        door.commit(door.take(), MessageOutcome(NOWHERE, letters=[refused]))

        assert answer.result(SOON_S).status == 403
        assert "not authorized" in answer.result().document["detail"]


def test_a_full_inbox_is_answered_at_once() -> None:
    with open_door(Inbox(1)) as door:
        first = door.ask(posted(1))
        eventually(lambda: len(door.inbox) == 1)
        lines = post_lines(lines_of(metric_message()))
        refused = [door.answer(data) for data in (posted(2), lines, READY)]
        door.store()

        assert [answer.status for answer in refused] == [429] * 3
        assert int(refused[0].headers["retry-after"]) > 0
        assert first.result(SOON_S).status == 200
        assert door.answer(READY).status == 200


def test_while_nothing_can_be_stored_everybody_is_told_to_come_back() -> None:
    with open_door() as door:
        waiting = door.ask(posted(1))
        door.take()
        door.state.cannot_commit("postgresql://loader@db.example.org/sam: connection refused")

        for answer in (waiting.result(SOON_S), door.answer(posted(2)), door.answer(READY)):
            assert answer.status == 503
            assert int(answer.headers["retry-after"]) > 0
            assert "nothing can be stored" in answer.document["detail"]
            assert b"loader" not in answer.body, "senders need not know servers and logins"
        assert len(door.inbox) == 0
        door.state.can_commit()
        with door.storing():
            assert door.answer(posted(2)).status == 200


def test_who_waits_for_too_long_is_answered_too() -> None:
    with open_door(answer_timeout_s=0.5) as door:
        answer = door.ask(posted(1))
        batch = door.take()

        assert answer.result(SOON_S).status == 504
        assert answer.result().document["messageId"] == "id-1"
        door.commit(batch)  # it is stored all the same: the sender repeats it with its id


def test_a_door_that_closes_answers_who_waits() -> None:
    with open_door() as door:
        stored, waiting = door.ask(posted(1)), door.ask(posted(2))
        door.commit([item for item in door.take(2) if item.message.message_id == "id-1"])

    assert (stored.result().status, waiting.result().status) == (200, 503)
    assert waiting.result().headers["connection"] == "close"


def test_a_client_that_exceeds_its_rate_waits() -> None:
    with open_door(requests_per_minute=2) as door, door.storing():
        answers = [door.answer(posted(number)) for number in range(3)]

        assert [answer.status for answer in answers] == [200, 200, 429]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 30
        assert door.answer(READY).status == 200


def test_a_paused_publisher_is_refused_and_the_others_are_not() -> None:
    with open_door() as door, door.storing():
        door.inbox.pause(ANONYMOUS, 60.0)
        paused = door.answer(posted(1))
        lines = door.answer(post_lines(lines_of(metric_message())))

        assert (paused.status, lines.status) == (429, 429)
        assert 28 <= int(paused.headers["retry-after"]) <= 60
        door.inbox.pause(ANONYMOUS, 0.0)
        door.inbox.pause("token:other", 30.0)
        assert door.answer(posted(2)).status == 200


def test_many_messages_are_answered_in_order() -> None:
    messages = [metric_message() for _ in range(3)]
    with open_door() as door:
        answer = door.ask(post_lines(lines_of(*messages)))
        first, second, third = door.take(3)
        door.commit([third], MessageOutcome(DATABASE, duplicates=3))
        door.commit([first, second])

        lines = answer.result(SOON_S).lines
        assert [line["messageId"] for line in lines] == [m.message_id for m in messages]
        assert [(line["rows"], line["duplicates"]) for line in lines] == [(1, 0), (1, 0), (0, 3)]
        assert [message.body for message in door.stored] == [messages[0].body] * 3


def test_each_line_has_its_own_answer() -> None:
    too_large = metric_message()._replace(body=b"x" * 100_001)
    endless = b'{"body": "' + b"x" * 300_000 + b'"}\n'
    binary = Message({MESSAGE_ID: "binary"}, b"\xff\0")
    lines = (
        *(b"\n", lines_of(metric_message()), b"{]\n", b"[1]\n", b'{"body": 1}\n'),
        *(lines_of(too_large), endless, b" \r\n", lines_of(binary)[:-1]),
    )
    with open_door() as door, door.storing():
        answer = door.answer(post_lines(*lines))

        assert statuses(answer) == [200, 422, 422, 422, 413, 413, 200]
        assert door.stored[-1].body == b"\xff\0"
        assert answer.lines[4]["messageId"] == too_large.message_id


def test_a_request_with_more_messages_than_fit_is_taken_as_there_is_room() -> None:
    messages = [metric_message() for _ in range(100)]
    with open_door(Inbox(10)) as door:
        answer = door.ask(post_lines(lines_of(*messages)))
        most = 0
        while len(door.stored) < len(messages):
            most = max(most, len(door.inbox))
            door.store()

        assert statuses(answer.result(SOON_S)) == [200] * 100
        assert most <= 10


LARGE = ("Content-Length", "50000")
SLOW = {
    "a dripping head": (b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: ", b"y"),
    "a silent body": (post(LARGE, body=None) + b"hostName", b""),
    "dripping chunks": (post(CHUNKS, body=None), b"1\r\nx\r\n"),
    "a line and a half": (
        request("POST", "/v1/messages", ("Content-Type", LINES), LARGE)
        + lines_of(metric_message())
        + b'{"body',
        b"",
    ),
}


@pytest.mark.parametrize("name", SLOW)
def test_a_slow_client_is_answered_in_time(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    if "head" in name:
        monkeypatch.setattr(server, "HEAD_S", 0.3)
    monkeypatch.setattr(exchange, "GRACE_S", 0.3)
    begin, more = SLOW[name]
    with open_door() as door, door.storing(), door.connect() as slow, door.connect() as idle:
        idle.send(READY)
        assert idle.answer().status == 200
        slow.send(begin)

        def is_answered() -> bool:
            slow.send(more)
            assert door.answer(posted(1)).status == 200
            return bool(select.select([slow.socket], [], [], 0.02)[0])

        eventually(is_answered)
        answer = slow.answer()
        assert 408 in (answer.status, *(statuses(answer) if answer.status == 200 else []))
        assert slow.at_end
        idle.send(READY)
        assert idle.answer().status == 200


def test_a_client_that_reads_no_answers_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ANSWER_S", 0.3)
    with open_door() as door, door.connect() as deaf:
        deaf.socket.settimeout(0.5)
        with pytest.raises(OSError):
            while True:
                deaf.socket.sendall(request("GET", "/v1/openapi.json") * 100)
        eventually(lambda: door.state.connections[door.source.name] == 0)


def test_a_sender_that_hangs_up_leaves_nothing_behind() -> None:
    with open_door() as door:
        with door.connect() as connection:
            connection.send(posted(1))
            batch = door.take()
        with door.connect() as connection:
            connection.send(post_lines(lines_of(metric_message()))[:-20])
        door.commit(batch)
        intake = door.source._intake
        assert intake is not None
        eventually(lambda: intake.reading_bytes == len(intake.waiting) == 0)
        eventually(lambda: door.state.connections[door.source.name] == 0)

        assert len(door.inbox) == 0


def test_a_sender_that_reads_no_answers_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MAX_UNANSWERED", 3)
    sent = [metric_message() for _ in range(20)]
    with open_door() as door:
        answer = door.ask(post_lines(lines_of(*sent)))
        first = door.take(4)
        time.sleep(0.3)

        assert len(door.inbox) <= 1
        with door.storing():
            door.commit(first)
            assert statuses(answer.result(SOON_S)) == [200] * 20
