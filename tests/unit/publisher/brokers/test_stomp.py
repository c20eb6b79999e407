"""The STOMP kind by itself: frames, answers and round trips."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from sam_pipeline.publisher import BrokerUnavailable, MessageRejected, PublisherConfig
from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.stomp.transport import (
    StompTransport,
    connect,
    preview,
    round_trip,
)
from sam_pipeline.publisher.brokers.transport import outcomes
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker_url import parse_broker
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.sender import MAX_UNCONFIRMED
from tests.support import builders
from tests.support.brokers.fake_broker import FakeBroker, Frame

TIMEOUT_S = 5.0


def metric_message(destination: str = "/queue/x", **headers: str) -> Message:
    return builders.metric_message(destination=destination, **headers)


def config_for(broker: FakeBroker) -> PublisherConfig:
    return PublisherConfig(brokers=(broker.url,))


def address_of(broker: FakeBroker) -> BrokerAddress:
    return BrokerAddress(parse_broker(broker.url), "127.0.0.1")


def connected(broker: FakeBroker, timeout_s: float = TIMEOUT_S) -> StompTransport:
    return connect(address_of(broker), config_for(broker), Deadline.after(timeout_s))


def send_all(
    transport: StompTransport, messages: Sequence[Message], timeout_s: float = TIMEOUT_S
) -> list[tuple[int, str | None]]:
    """Each position with the reason of its rejection, if any."""
    settled = outcomes(transport, messages, Deadline.after(timeout_s))
    return [(position, rejection and rejection.reason) for position, rejection in settled]


def proven(broker: FakeBroker, message: Message, timeout_s: float = TIMEOUT_S) -> str:
    deadline = Deadline.after(timeout_s)
    return round_trip(address_of(broker), config_for(broker), message, deadline)


@pytest.mark.parametrize(
    ("greeting", "stem"),
    [
        (b"CONNECTED\n\n\0", "speaks STOMP 1.0, not 1.2"),
        (b"CONNECTED\nversion:1.1\n\n\0", "speaks STOMP 1.1, not 1.2"),
        (
            b"ERROR\nversion:1.0,1.1\nmessage:Unsupported version\n\n\0",
            "Unsupported version: it speaks STOMP 1.0,1.1, not 1.2",
        ),
        (b"HTTP/1.1 400 Bad Request\r\n", r"no STOMP frame begins 'HTTP/1.1 400 Bad Request\r\n'"),
        (b"\x15\x03\x01\x00", "it speaks TLS on this port: use stomp+ssl://"),
        (b"CONNECTED\nversion:" + b"1" * 70_000, "the headers of CONNECTED exceed 65536 bytes"),
    ],
    ids=["1.0", "1.1", "ERROR", "HTTP", "TLS", "endless"],
)
def test_a_broker_that_does_not_speak_stomp_1_2_is_refused_at_once(
    greeting: bytes, stem: str
) -> None:
    started = time.monotonic()

    with FakeBroker(greeting=greeting) as broker, pytest.raises(BrokerUnavailable) as caught:
        connected(broker)

    assert stem in caught.value.reason
    assert time.monotonic() - started < TIMEOUT_S / 2  # long before the deadline


def test_an_incomplete_answer_ends_at_the_deadline() -> None:
    started = time.monotonic()

    with FakeBroker(greeting=b"CONNECTED\nversion:") as broker:
        with pytest.raises(BrokerUnavailable, match="no answer"):
            connected(broker, timeout_s=0.3)
        elapsed_s = time.monotonic() - started

    assert 0.3 <= elapsed_s < TIMEOUT_S / 2


def test_a_password_that_stomp_cannot_carry_is_reported_without_showing_it() -> None:
    with FakeBroker() as broker:
        config = PublisherConfig(brokers=(broker.url,), user="pro\nbe")
        with pytest.raises(BrokerUnavailable, match="'login' of CONNECT") as caught:
            connect(address_of(broker), config, Deadline.after(TIMEOUT_S))

    assert "pro" not in str(caught.value)


def test_a_broker_that_blocks_until_its_bytes_are_read_gets_everything() -> None:
    large = [Message(metric_message().headers, b"x" * 200_000) for _ in range(60)]

    with FakeBroker(floods=12_000_000) as broker:
        transport = connected(broker)
        settled = send_all(transport, large)
        transport.close()

    assert [position for position, _ in settled] == list(range(60))
    assert len(broker.taken) == 60


def test_a_connection_closed_between_two_messages_is_opened_again() -> None:
    first, second = metric_message(), metric_message()

    with FakeBroker(drops_after=1) as broker:
        transport = connected(broker)
        settled = send_all(transport, [first])
        broker.drops_after = None
        settled += send_all(transport, [second])
        transport.close()

    assert settled == [(0, None), (0, None)]
    assert broker.ids == [first.message_id, second.message_id]


def test_a_rejected_message_alone_is_sent_once() -> None:
    asked = []

    def refuse(frame: Frame) -> str:
        asked.append(frame)
        return "not authorized to write"

    with FakeBroker(rejects=refuse) as broker:
        transport = connected(broker)
        settled = send_all(transport, [metric_message()])
        transport.close()

    assert settled == [(0, "not authorized to write")]
    assert len(asked) == 1


def test_a_receipt_after_an_error_confirms_nothing() -> None:
    answers = b"ERROR\nmessage:not authorized\n\n\0RECEIPT\nreceipt-id:1\n\n\0"

    with FakeBroker(greeting=b"CONNECTED\nversion:1.2\n\n\0" + answers) as broker:
        transport = connected(broker)
        settled = send_all(transport, [metric_message()])
        transport.close()

    assert settled == [(0, "not authorized")]


def test_after_a_lost_connection_only_unconfirmed_messages_are_sent_singly() -> None:
    messages = [metric_message() for _ in range(2000)]

    with FakeBroker(server="ActiveMQ/6", drops_after=1250) as broker:
        transport = connected(broker)
        broken = broker.drops_after
        settled = []
        for outcome in outcomes(transport, messages, Deadline.after(TIMEOUT_S)):
            settled.append(outcome)
            broker.drops_after = None
        transport.close()

    assert broken == 1250
    assert sorted(position for position, _ in settled) == list(range(2000))
    assert len({frame.headers["samMessageId"] for frame in broker.taken}) == 2000


@pytest.mark.parametrize("server", ["RabbitMQ/3.10", "ActiveMQ/6.3.1"])
def test_at_most_a_window_of_messages_is_unconfirmed(server: str) -> None:
    messages = [metric_message() for _ in range(2 * MAX_UNCONFIRMED)]

    with FakeBroker(server=server, eats_receipts=True) as broker:
        transport = connected(broker)
        with pytest.raises(BrokerUnavailable, match="no answer"):
            send_all(transport, messages, timeout_s=0.5)
        transport.close()

    assert len(broker.taken) == MAX_UNCONFIRMED


def test_a_repeatedly_forbidden_destination_is_not_tried_for_each_message() -> None:
    forbidden = [metric_message(destination="/topic/forbidden") for _ in range(40)]
    allowed = [metric_message(destination="/topic/allowed") for _ in range(40)]
    mixed = [message for pair in zip(forbidden, allowed, strict=True) for message in pair]

    def refuse(frame: Frame) -> str:
        return "access denied" if frame.headers["destination"] == "/topic/forbidden" else ""

    with FakeBroker(rejects=refuse) as broker:
        transport = connected(broker)
        settled = dict(send_all(transport, mixed))
        transport.close()

    assert [settled[position] for position in range(80)] == ["access denied", None] * 40
    assert set(broker.ids) == {message.message_id for message in allowed}
    assert broker.connections < 15


def test_a_preview_is_the_frame_that_is_sent() -> None:
    message = metric_message(**{"x-note": "a:b"}, destination="/queue/x")

    with FakeBroker() as broker:
        shown = preview(parse_broker(broker.url), config_for(broker), message)
        transport = connected(broker)
        send_all(transport, [message])
        transport.close()

    head, _, body = shown.partition(b"\n\n")
    (frame,) = broker.taken
    assert head.splitlines()[0] == b"SEND"
    assert b"x-note:a\\cb" in head.splitlines()
    assert len(head.splitlines()) == 1 + len(frame.headers)
    assert body == frame.body + b"\0\n"


@pytest.mark.parametrize("destination", ["/topic/x", "/queue/x", "/amq/queue/x"])
def test_a_round_trip_consumes_its_own_message(destination: str) -> None:
    with FakeBroker() as broker:
        proof = proven(broker, metric_message(destination=destination))

    assert proof == "round trip"


def test_a_round_trip_consumes_nothing_else_from_a_queue() -> None:
    with FakeBroker(queue=[Frame("SEND", {"samMessageId": "real"})]) as broker:
        proof = proven(broker, metric_message(destination="/queue/x"))

    assert proof.startswith("confirmed, not read back: another message")
    assert broker.queue[0].headers["samMessageId"] == "real"
    assert len(broker.queue) == 2


def test_a_round_trip_without_the_right_to_subscribe_ends_with_the_receipt() -> None:
    with FakeBroker(forbids_subscribing="not authorized to read") as broker:
        proof = proven(broker, metric_message(destination="/topic/x"))

    assert proof == "confirmed, not read back: not allowed to subscribe (not authorized to read)"
    assert len(broker.taken) == 1


def test_a_destination_that_is_missing_fails_the_round_trip() -> None:
    with (
        FakeBroker(forbids_subscribing="NOT_FOUND - no queue 'x'") as broker,
        pytest.raises(MessageRejected, match="no queue 'x'"),
    ):
        proven(broker, metric_message(destination="/amq/queue/x"))

    assert broker.taken == []


def test_a_topic_that_loses_messages_fails_the_round_trip() -> None:
    message = metric_message(destination="/topic/x")

    with (
        FakeBroker(loses=True) as broker,
        pytest.raises(BrokerUnavailable, match="did not come back from /topic/x"),
    ):
        proven(broker, message, timeout_s=0.5)


def test_another_consumer_may_take_the_message_of_a_round_trip() -> None:
    with FakeBroker(loses=True) as broker:
        proof = proven(broker, metric_message(destination="/queue/x"), timeout_s=0.6)

    assert proof.startswith("confirmed, not read back: a consumer")


def test_a_broker_that_refuses_the_check_message_fails_the_round_trip() -> None:
    with (
        FakeBroker(rejects=lambda frame: "access refused") as broker,
        pytest.raises(MessageRejected, match="access refused"),
    ):
        proven(broker, metric_message(destination="/topic/x"))
