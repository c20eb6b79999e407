"""The bounded queue between the sources and the loop."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import pytest

from sam_pipeline.consumer.core.inbox import (
    NO_LIMIT,
    BatchRule,
    Delivery,
    Inbox,
    Session,
    acknowledge,
    answering,
)
from sam_pipeline.consumer.core.outcome import DATABASE, MessageOutcome
from sam_pipeline.schema.messages.message import Message
from tests.support.builders import metric_message

SOON_S = 5.0


class Connection:
    """Records the acks."""

    broker = "stomp://a:1"
    batch_size = NO_LIMIT
    answers = False

    def __init__(self) -> None:
        self.acked: list[object] = []

    def ack(self, tokens: Sequence[object]) -> None:
        self.acked += tokens


class AskingConnection(Connection):
    """Records the outcomes by token, and refuses acks."""

    answers = True

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[dict[object, MessageOutcome]] = []

    def ack(self, tokens: Sequence[object]) -> None:
        raise NotImplementedError

    def answer(self, outcomes: Sequence[tuple[object, MessageOutcome]]) -> None:
        self.calls.append(dict(outcomes))


def delivery(session: Session | None = None, token: object = None) -> Delivery:
    return Delivery(metric_message(), session or Connection(), token)


def filled(*deliveries: Delivery) -> Inbox:
    inbox = Inbox(len(deliveries))
    inbox.put(deliveries)
    return inbox


def test_a_batch_holds_deliveries_in_order_of_arrival_up_to_its_size() -> None:
    deliveries = [delivery() for _ in range(5)]
    inbox = filled(*deliveries)

    batches = [inbox.take(BatchRule(3, 0, 0), wait_s=0) for _ in range(3)]

    assert batches == [deliveries[:3], deliveries[3:], []]


def test_a_partial_batch_is_given_after_silence() -> None:
    only = delivery()
    inbox = filled(only)

    assert inbox.take(BatchRule(1000, SOON_S, 0.01), wait_s=0) == [only]


def test_a_batch_of_a_steady_trickle_is_given_after_a_maximum_time() -> None:
    times = iter([0.0, 0.1, 0.19, 0.2])

    def clock() -> float:
        inbox.put([delivery()])  # one more each time somebody looks
        return next(times)

    inbox = Inbox(10, clock=clock)
    inbox.put([delivery()])

    batch = inbox.take(BatchRule(1000, 0.2, 0.1), wait_s=0)

    assert len(batch) == 4


def test_a_source_waits_until_a_full_inbox_has_room() -> None:
    inbox = filled(delivery())
    answers: list[bool] = []
    waiting = threading.Thread(
        target=lambda: answers.append(inbox.wait_for_room("stomp://a:1", SOON_S))
    )

    assert not inbox.wait_for_room("stomp://a:1", 0)
    waiting.start()
    inbox.take(BatchRule(1, 0, 0), wait_s=0)
    waiting.join(SOON_S)

    assert answers == [True]


def test_a_paused_broker_is_not_read_while_the_others_are() -> None:
    now = [100.0]
    inbox = Inbox(10, clock=lambda: now[0])

    inbox.pause("stomp://a:1", 30)
    paused = inbox.any_paused
    a, b = inbox.has_room_for("stomp://a:1"), inbox.wait_for_room("stomp://b:1", 0)
    now[0] += 30

    assert (paused, a, b) == (True, False, True)
    assert (inbox.any_paused, inbox.wait_for_room("stomp://a:1", 0)) == (False, True)


def test_bytes_fill_an_inbox_like_messages_do() -> None:
    size = len(delivery().message.body)
    inbox = Inbox(1000, max_bytes=size + 1)

    inbox.put([delivery()])
    before = inbox.has_room
    inbox.put([delivery()])

    assert (before, inbox.has_room, inbox.size_bytes) == (True, False, 2 * size)
    inbox.take(BatchRule(1, 0, 0), wait_s=0)
    assert (inbox.has_room, inbox.size_bytes) == (True, size)


def test_a_batch_is_limited_in_bytes_but_has_at_least_one_message() -> None:
    deliveries = [delivery() for _ in range(3)]
    inbox = filled(*deliveries)
    size = len(deliveries[0].message.body)

    small = inbox.take(BatchRule(10, SOON_S, SOON_S, max_bytes=1), wait_s=0)
    second = inbox.take(BatchRule(10, SOON_S, SOON_S, max_bytes=2 * size), wait_s=0)

    assert (small, second) == (deliveries[:1], deliveries[1:])


def test_a_batch_does_not_wait_for_messages_that_a_broker_sends_only_after_an_ack() -> None:
    session = Connection()
    session.batch_size = 2
    deliveries = [delivery(session) for _ in range(3)]
    inbox = filled(*deliveries)

    first = inbox.take(BatchRule(1000, SOON_S, SOON_S), wait_s=0)

    assert first == deliveries[:2]


def test_deliveries_of_a_lost_session_are_discarded() -> None:
    lost, alive = Connection(), Connection()
    kept = delivery(alive)
    inbox = filled(delivery(lost), kept, delivery(lost))

    inbox.discard(lost)

    assert inbox.take(BatchRule(10, 0, 0), wait_s=0) == [kept]


def test_the_failure_of_a_thread_ends_the_loop_even_while_it_waits() -> None:
    inbox = Inbox(10)
    failing = threading.Timer(0.01, inbox.fail, [RuntimeError("out of file descriptors")])
    failing.start()

    with pytest.raises(RuntimeError, match="file descriptors"):
        inbox.take(BatchRule(10, SOON_S, SOON_S), wait_s=SOON_S)
    failing.join(SOON_S)


def test_the_acks_of_a_batch_reach_their_sessions_in_order() -> None:
    first, second = Connection(), Connection()

    acknowledge([delivery(first, 1), delivery(second, "a"), delivery(first, 2)])

    assert (first.acked, second.acked) == ([1, 2], ["a"])


def test_a_session_that_answers_gets_the_outcomes_of_a_batch_at_once_instead_of_acks() -> None:
    connection, door = Connection(), AskingConnection()
    batch = [delivery(door, "x"), delivery(connection, 1), delivery(door, "y")]
    outcomes = {at: MessageOutcome(DATABASE, rows=at) for at in answering(batch)}

    acknowledge(batch, outcomes)

    assert door.calls == [{"x": outcomes[0], "y": outcomes[2]}]
    assert connection.acked == [1]


def sized(size: int, headers: Mapping[str, str] | None = None) -> Delivery:
    return Delivery(Message(headers or {}, b"x" * size), Connection(), None)


def test_a_batch_does_not_exceed_its_bytes_unless_one_message_does() -> None:
    inbox = filled(sized(40), sized(40), sized(40), sized(200), sized(1))
    rule = BatchRule(10, SOON_S, 0, max_bytes=100)

    batches = [inbox.take(rule, wait_s=0) for _ in range(4)]

    sizes = [[len(delivery.message.body) for delivery in batch] for batch in batches]
    assert sizes == [[40, 40], [40], [200], [1]]


def test_heads_fill_an_inbox_like_bodies() -> None:
    inbox = Inbox(1000, max_bytes=1000)

    inbox.put([sized(10), sized(10)], head_bytes=1000)
    full = not inbox.has_room
    batch = inbox.take(BatchRule(10, 0, 0, max_bytes=600), wait_s=0)

    assert (full, len(batch), inbox.has_room) == (True, 1, True)
    assert inbox.size_bytes == 510


def test_thousands_of_tiny_headers_fill_an_inbox() -> None:
    inbox = Inbox(1000, max_bytes=100_000)

    inbox.put([sized(0, {str(number): "" for number in range(1000)})])

    assert not inbox.has_room


def test_the_messages_of_a_lost_session_leave_their_room() -> None:
    lost, kept = sized(600), sized(10)
    inbox = Inbox(1000, max_bytes=500)
    inbox.put([lost, kept], head_bytes=20)

    inbox.discard(lost.session)

    assert (inbox.has_room, inbox.size_bytes) == (True, 20)
    assert inbox.take(BatchRule(10, 0, 0), wait_s=0) == [kept]
