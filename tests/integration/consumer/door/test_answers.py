"""What a sender is answered, and when: the test itself stores the messages of the door."""

from __future__ import annotations

import time
from concurrent.futures import Future

import pytest

from sam_pipeline.consumer.core.inbox import BatchRule, Delivery, Inbox
from sam_pipeline.consumer.core.outcome import (
    BROKER,
    DATABASE,
    SPOOL,
    MessageOutcome,
    UnloadedRecord,
)
from sam_pipeline.consumer.sources.door import body, server, stream
from sam_pipeline.schema.identity.identity import ANONYMOUS, IDENTITY, identity_of
from sam_pipeline.schema.messages.message import MESSAGE_ID, Message
from sam_pipeline.schema.spool.element import serialise
from tests.services.process import wait_until
from tests.support.builders import metric_message
from tests.support.consumer.bad_requests import GOOD, post
from tests.support.consumer.open_door import SOON_S, open_door
from tests.support.http_client import LINES, HttpAnswer
from tests.support.raw_http import request

ROW = MessageOutcome(DATABASE, rows=1)
READY = request("GET", "/readyz")


def lines_of(*messages: Message) -> bytes:
    return b"".join(serialise(message) + b"\n" for message in messages)


def post_lines(*lines: bytes, content_type: str = LINES) -> bytes:
    """Many messages in one request."""
    body = b"".join(lines)
    return request("POST", "/v1/messages", ("Content-Type", content_type), body=body)


def posted(number: int) -> bytes:
    return post(("Sam-Message-Id", f"id-{number}"))


def answer_of(future: Future[HttpAnswer]) -> HttpAnswer:
    return future.result(SOON_S)


def statuses(answer: HttpAnswer) -> list[int]:
    return [line["status"] for line in answer.lines]


def test_a_message_is_answered_when_it_is_stored_and_not_before() -> None:
    with open_door() as door:
        answer = door.ask(posted(1))
        batch = door.take()
        time.sleep(0.3)
        before = answer.done()
        door.commit(batch)

        assert not before
        assert answer_of(answer).status == 200
        assert answer_of(answer).document == {
            "messageId": "id-1",
            "rows": 1,
            "duplicates": 0,
            "deadLetters": [],
        }


def test_the_answer_lists_the_dead_letters() -> None:
    letters = [UnloadedRecord(2, "bad-status", "why"), UnloadedRecord(None, "flood", "more")]
    with open_door() as door:
        answer = door.ask(posted(1))
        door.store(MessageOutcome(DATABASE, 1, 3, letters))

        document = answer_of(answer).document
        assert (document["rows"], document["duplicates"]) == (1, 3)
        assert document["deadLetters"] == [
            {"number": 2, "reason": "bad-status", "text": "why"},
            {"number": None, "reason": "flood", "text": "more"},
        ]


@pytest.mark.parametrize("stored", [BROKER, SPOOL])
def test_what_is_only_passed_on_is_accepted(stored: str) -> None:
    with open_door() as door:
        answer = door.ask(posted(1))
        door.store(MessageOutcome(stored))

        assert answer_of(answer).status == 202
        assert answer_of(answer).document == {"messageId": "id-1", "stored": stored}


def test_a_sender_can_not_choose_its_identity() -> None:
    forged = metric_message(**{IDENTITY: "operator:root"})
    with open_door() as door:
        one = door.ask(post((IDENTITY, "operator:root")))
        first = door.store()
        many = door.ask(post_lines(lines_of(forged)))
        second = door.store()

        assert {identity_of(first), identity_of(second)} == {ANONYMOUS}
        assert (answer_of(one).status, statuses(answer_of(many))) == (200, [200])


def test_a_full_inbox_is_answered_at_once() -> None:
    with open_door(Inbox(1)) as door:
        first = door.ask(posted(1))
        wait_until(lambda: len(door.inbox) == 1, SOON_S)
        second = answer_of(door.ask(posted(2)))
        ready = answer_of(door.ask(READY))
        door.store()

        assert (second.status, ready.status) == (429, 429)
        assert int(second.headers["retry-after"]) > 0
        assert answer_of(first).status == 200
        assert answer_of(door.ask(READY)).status == 200


def test_an_inbox_that_another_source_has_filled_has_room_for_as_many_messages_of_senders() -> None:
    inbox = Inbox(2)
    with open_door(inbox) as door:
        inbox.put([Delivery(metric_message(), door.source, None)] * 3)
        answers = [door.ask(posted(number)) for number in range(2)]
        wait_until(lambda: len(inbox) == 5, SOON_S)
        third = answer_of(door.ask(posted(2)))

        assert third.status == 429
        assert not any(answer.done() for answer in answers)


def test_a_batch_takes_all_that_has_arrived_and_waits_for_nothing_more() -> None:
    inbox = Inbox(100)
    with open_door(inbox) as door:
        door.ask(posted(1))
        wait_until(lambda: len(inbox) == 1, SOON_S)
        inbox.put([Delivery(metric_message(), door.source, None)] * 20)
        began = time.monotonic()
        batch = inbox.take(BatchRule(1000, SOON_S, SOON_S), SOON_S)

        assert len(batch) == 21
        assert time.monotonic() - began < SOON_S


def test_bytes_in_the_inbox_count_as_well() -> None:
    with open_door(buffer_bytes=len(GOOD)) as door:
        first = door.ask(posted(1))
        wait_until(lambda: len(door.inbox) == 1, SOON_S)
        second = door.ask(posted(2))
        status = answer_of(second).status
        door.store()

        assert (status, answer_of(first).status) == (429, 200)


def test_a_message_larger_than_the_buffer_is_taken_alone() -> None:
    with open_door(buffer_bytes=10) as door:
        answer = door.ask(posted(1))
        door.store()

        assert answer_of(answer).status == 200


def test_while_nothing_can_be_stored_everybody_is_told_to_come_back() -> None:
    with open_door() as door:
        waiting = door.ask(posted(1))
        door.take()
        door.state.cannot_commit("postgresql://loader@db.example.org/sam: connection refused")
        new = door.ask(posted(2))

        for answer in (answer_of(waiting), answer_of(new), answer_of(door.ask(READY))):
            assert answer.status == 503
            assert int(answer.headers["retry-after"]) > 0
            assert "nothing can be stored" in answer.document["detail"]
            assert b"loader" not in answer.body, "senders need not know servers and logins"
        assert len(door.inbox) == 0
        door.state.can_commit()
        again = door.ask(posted(2))
        door.store()
        assert answer_of(again).status == 200


def test_who_waits_for_too_long_is_answered_too() -> None:
    with open_door(answer_timeout_s=0.5) as door:
        answer = door.ask(posted(1))
        batch = door.take()

        assert answer_of(answer).status == 504
        assert answer_of(answer).document["messageId"] == "id-1"
        door.commit(batch)  # it is stored all the same: the sender repeats it with its id
        again = door.ask(posted(1))
        door.store()
        assert answer_of(again).status == 200


def test_a_door_that_closes_answers_who_waits() -> None:
    with open_door() as door:
        stored, waiting = door.ask(posted(1)), door.ask(posted(2))
        batch = door.take(2)
        (first,) = [item for item in batch if item.message.message_id == "id-1"]
        door.commit([first])

    assert (answer_of(stored).status, answer_of(waiting).status) == (200, 503)
    assert answer_of(waiting).headers["connection"] == "close"


def test_a_client_that_exceeds_its_rate_waits() -> None:
    with open_door(requests_per_minute=2) as door:
        for number in range(2):
            taken = door.ask(posted(number))
            door.store()
            assert answer_of(taken).status == 200
        refused = answer_of(door.ask(posted(3)))

        assert refused.status == 429
        assert 20 <= int(refused.headers["retry-after"]) <= 30
        assert answer_of(door.ask(READY)).status == 200


def test_a_paused_publisher_is_refused_and_the_others_are_not() -> None:
    with open_door() as door:
        door.inbox.pause(ANONYMOUS, 30.0)
        paused = answer_of(door.ask(posted(1)))
        lines = answer_of(door.ask(post_lines(lines_of(metric_message()))))

        assert (paused.status, lines.status) == (429, 429)
        assert 28 <= int(paused.headers["retry-after"]) <= 30
        door.inbox.pause(ANONYMOUS, 0.0)
        door.inbox.pause("token:other", 30.0)
        answer = door.ask(posted(2))
        door.store()
        assert answer_of(answer).status == 200


def test_many_messages_are_answered_in_order() -> None:
    messages = [metric_message() for _ in range(3)]
    with open_door() as door:
        answer = door.ask(post_lines(lines_of(*messages)))
        first, second, third = door.take(3)
        door.commit([third], MessageOutcome(DATABASE, duplicates=3))
        door.commit([first, second])

        lines = answer_of(answer).lines
        assert [line["messageId"] for line in lines] == [m.message_id for m in messages]
        assert [(line["rows"], line["duplicates"]) for line in lines] == [(1, 0), (1, 0), (0, 3)]
        assert [message.body for message in door.stored] == [messages[0].body] * 3


def test_each_line_has_its_own_answer() -> None:
    too_large = metric_message()._replace(body=b"x" * 100_001)
    endless = b'{"body": "' + b"x" * 300_000 + b'"}\n'
    binary = Message({MESSAGE_ID: "binary"}, b"\xff\0")
    with open_door() as door:
        answer = door.ask(
            post_lines(
                *(b"\n", lines_of(metric_message()), b"{]\n", b"[1]\n", b'{"body": 1}\n'),
                *(lines_of(too_large), endless, b" \r\n", lines_of(binary)[:-1]),
            )
        )
        door.store(ROW, ROW)

        assert statuses(answer_of(answer)) == [200, 422, 422, 422, 413, 413, 200]
        assert door.stored[-1].body == b"\xff\0"
        assert answer_of(answer).lines[4]["messageId"] == too_large.message_id


def test_a_line_is_answered_before_the_next_one_is_sent() -> None:
    with open_door() as door, door.connect() as connection:
        head = request(
            *("POST", "/v1/messages"), ("Content-Type", LINES), ("Transfer-Encoding", "chunked")
        )
        connection.send(head)
        for number in range(3):
            line = lines_of(metric_message(**{MESSAGE_ID: f"id-{number}"}))
            connection.send(b"%x\r\n%b\r\n" % (len(line), line))
            door.store()
            begin = connection._until(b'"status": 200')
            assert f'"id-{number}"'.encode() in begin
        connection.send(b"0\r\n\r\n")
        assert connection._until(b"0\r\n\r\n")


def test_a_request_with_more_messages_than_fit_is_taken_as_there_is_room() -> None:
    messages = [metric_message() for _ in range(100)]
    with open_door(Inbox(10)) as door:
        answer = door.ask(post_lines(lines_of(*messages)))
        most = 0
        while len(door.stored) < len(messages):
            most = max(most, len(door.inbox))
            door.store()

        assert statuses(answer_of(answer)) == [200] * 100
        assert most <= 10


def test_lines_that_wait_for_room_of_others_are_answered_at_once() -> None:
    with open_door(Inbox(1)) as door:
        other = door.ask(posted(1))
        wait_until(lambda: len(door.inbox) == 1, SOON_S)
        answer = answer_of(door.ask(post_lines(lines_of(metric_message()))))
        door.store()

        assert (answer.status, answer_of(other).status) == (429, 200)


def test_the_sink_goes_away_between_two_lines() -> None:
    with open_door() as door:
        answer = door.ask(post_lines(lines_of(metric_message(), metric_message())))
        first, _ = door.take(2)
        door.commit([first])
        door.state.cannot_commit("the disk is full")

        assert statuses(answer_of(answer)) == [200, 503]


@pytest.mark.parametrize("data", [b"", b"\n \n"])
def test_a_request_without_a_message_is_refused(data: bytes) -> None:
    with open_door() as door:
        assert answer_of(door.ask(post_lines(data))).status == 400


def test_messages_of_another_content_type_are_refused() -> None:
    with open_door() as door:
        answer = answer_of(door.ask(post_lines(b"{}\n", content_type="application/json")))

        assert (answer.status, answer.headers["accept-post"]) == (415, LINES)


def test_a_slow_body_is_answered_and_the_messages_before_it_are_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(body, "GRACE_S", 0.3)
    begin = lines_of(metric_message()) + b'{"body'
    fields = [("Content-Type", LINES), ("Content-Length", "100000")]
    with open_door() as door, door.connect() as connection, door.connect() as other:
        connection.send(request("POST", "/v1/messages", *fields) + begin)
        other.send(post(("Content-Length", "100000"), body=None) + b"x")
        door.store()

        assert statuses(connection.answer()) == [200, 408]
        assert connection.at_end
        assert other.answer().status == 408
        assert other.at_end


def test_a_slow_head_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_S", 0.3)
    with open_door() as door, door.connect() as connection, door.connect() as idle:
        connection.send(READY[:-4])

        assert connection.answer().status == 408
        assert connection.at_end
        idle.send(READY)
        assert idle.answer().status == 200


def test_connections_beyond_the_limit_are_refused() -> None:
    with open_door(max_connections=2) as door, door.connect() as one, door.connect() as two:
        one.send(READY)
        two.send(READY)
        answered = [one.answer().status, two.answer().status]
        with door.connect() as three:
            refused = three.answer()

        assert (answered, refused.status) == ([200, 200], 503)
        assert int(refused.headers["retry-after"]) > 0


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
        wait_until(lambda: intake.reading_bytes == len(intake.waiting) == 0, SOON_S)
        wait_until(lambda: door.state.connections[door.source.name] == 0, SOON_S)

        assert len(door.inbox) == 0


def test_a_sender_that_reads_no_answers_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_UNANSWERED", 3)
    messages = [metric_message() for _ in range(20)]
    with open_door() as door:
        answer = door.ask(post_lines(lines_of(*messages)))
        first = door.take(4)
        time.sleep(0.3)

        assert len(door.inbox) <= 1
        door.commit(first)
        for _ in messages[4:]:
            door.store()
        assert statuses(answer_of(answer)) == [200] * 20


def test_requests_are_counted_by_status() -> None:
    with open_door() as door:
        for _ in range(3):
            door.ask(READY).result(SOON_S)
        door.ask(request("GET", "/nothing")).result(SOON_S)
        door.ask(b"nonsense\r\n\r\n").result(SOON_S)

        assert door.state.requests == {200: 3, 404: 1, 400: 1}
