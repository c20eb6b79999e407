"""The bounded queue between the sources and the loop."""

from __future__ import annotations

import threading

import pytest

from consumer.inbox import Delivery, Inbox
from tests.builders import metric_message

SOON_S = 5.0


def delivery(session: object = None) -> Delivery:
    return Delivery(metric_message(), "stomp://a:1", session, ack=lambda: None)


def filled(*deliveries: Delivery) -> Inbox:
    inbox = Inbox(len(deliveries))
    for each in deliveries:
        assert inbox.put(each, 0)
    return inbox


def test_a_batch_holds_deliveries_in_order_of_arrival_up_to_its_size() -> None:
    deliveries = [delivery() for _ in range(5)]
    inbox = filled(*deliveries)

    batches = [inbox.take(3, wait_s=0, silence_s=0, age_s=0) for _ in range(3)]

    assert batches == [deliveries[:3], deliveries[3:], []]


def test_a_partial_batch_is_given_after_silence() -> None:
    only = delivery()
    inbox = filled(only)

    assert inbox.take(1000, wait_s=0, silence_s=0.01, age_s=SOON_S) == [only]


def test_a_trickle_that_is_never_silent_is_given_when_the_batch_is_old() -> None:
    times = iter([0.0, 0.1, 0.19, 0.2])

    def clock() -> float:
        inbox.put(delivery(), 0)  # one more each time somebody looks
        return next(times)

    inbox = Inbox(10, clock)
    inbox.put(delivery(), 0)

    batch = inbox.take(1000, wait_s=0, silence_s=0.1, age_s=0.2)

    assert len(batch) == 4


def test_a_full_inbox_lets_a_source_wait_until_there_is_room() -> None:
    inbox = filled(delivery())
    late = delivery()
    put = threading.Thread(target=inbox.put, args=(late, SOON_S))

    assert not inbox.put(delivery(), timeout_s=0)
    put.start()
    inbox.take(1, wait_s=0, silence_s=0, age_s=0)

    assert inbox.take(1, wait_s=SOON_S, silence_s=0, age_s=0) == [late]
    put.join(SOON_S)


def test_what_a_lost_session_delivered_is_forgotten() -> None:
    lost, alive = object(), object()
    kept = delivery(alive)
    inbox = filled(delivery(lost), kept, delivery(lost))

    inbox.discard(lost)

    assert inbox.take(10, wait_s=0, silence_s=0, age_s=0) == [kept]


def test_the_failure_of_a_thread_ends_the_loop_even_while_it_waits() -> None:
    inbox = Inbox(10)
    failing = threading.Timer(0.01, inbox.fail, [RuntimeError("out of file descriptors")])
    failing.start()

    with pytest.raises(RuntimeError, match="file descriptors"):
        inbox.take(10, wait_s=SOON_S, silence_s=SOON_S, age_s=SOON_S)
    failing.join(SOON_S)
