"""Channels of bytes: whatever the peer does, every call ends at the deadline."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import pytest

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.connection import open_channel
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.net.broker_url import parse_broker
from sam_pipeline.schema.net.channel import NO_ANSWER, NOT_READING, Channel, connect, error_text
from sam_pipeline.schema.net.deadline import Deadline
from tests.services import missing
from tests.support.brokers.fake_broker import black_hole, closed_port

HOST = "127.0.0.1"
SHORT_S = 0.2
SOON_S = 5.0
NOT_LONG_S = 1.5
MUCH = b"x" * 16_000_000  # more than the kernel keeps for both ends

Peer = Callable[[socket.socket], None]
OVER = threading.Event()
"""Set when a test is done with its channel."""


@contextmanager
def channel_to(peer: Peer = lambda connection: None, seconds: float = SOON_S) -> Iterator[Channel]:
    """A channel to a peer that runs this function in a thread and then closes."""

    def serve() -> None:
        connection, _ = listener.accept()
        connection.settimeout(SOON_S)
        with connection, suppress(OSError):
            peer(connection)

    OVER.clear()
    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(SOON_S)
        thread = threading.Thread(target=serve)
        thread.start()
        channel = connect(HOST, listener.getsockname()[1], Deadline.after(seconds))
        try:
            yield channel
        finally:
            channel.close()
            OVER.set()
            thread.join(SOON_S)
            assert not thread.is_alive()


def until_closed(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


def mute(connection: socket.socket) -> None:
    """Neither send nor read until the other end closes."""
    OVER.wait(SOON_S)


def drip(connection: socket.socket) -> None:
    while True:
        connection.sendall(b".")
        time.sleep(0.02)


def flood(connection: socket.socket) -> None:
    while True:
        connection.sendall(b"." * 65536)


def read_all(channel: Channel) -> bytes:
    received = b""
    while data := channel.receive():
        received += data
    return received


def test_bytes_are_sent_and_received_until_the_peer_closes() -> None:
    def echo(connection: socket.socket) -> None:
        connection.sendall(connection.recv(65536).upper())

    with channel_to(echo) as channel:
        channel.send(b"hello")

        assert read_all(channel) == b"HELLO"
        assert channel.receive() == b""
        assert not channel.forwarded


def test_many_bytes_arrive_completely_at_a_slow_reader() -> None:
    taken: list[int] = []

    def sip(connection: socket.socket) -> None:
        while data := connection.recv(500_000):
            taken.append(len(data))
            time.sleep(0.0005)

    with channel_to(sip) as channel:
        channel.send(MUCH)

    assert sum(taken) == len(MUCH)


@pytest.mark.parametrize("peer", [mute, until_closed], ids=["mute", "reads only"])
def test_reading_from_a_silent_peer_ends_at_the_deadline(peer: Peer) -> None:
    with channel_to(peer, SHORT_S) as channel:
        channel.send(b"x")
        started = time.monotonic()
        with pytest.raises(TimeoutError, match=NO_ANSWER):
            channel.receive()
        took = time.monotonic() - started

    assert SHORT_S / 2 < took < NOT_LONG_S


def test_sending_to_a_peer_that_does_not_read_ends_at_the_deadline() -> None:
    with channel_to(mute, SHORT_S) as channel:
        started = time.monotonic()
        with pytest.raises(TimeoutError, match=NOT_READING):
            channel.send(MUCH)
        took = time.monotonic() - started

    assert took < NOT_LONG_S


@pytest.mark.parametrize("peer", [drip, flood])
def test_a_steady_stream_of_bytes_does_not_extend_the_deadline(peer: Peer) -> None:
    with channel_to(peer, SHORT_S) as channel:
        started = time.monotonic()
        with pytest.raises(TimeoutError, match=NO_ANSWER):
            while True:
                channel.receive()
        took = time.monotonic() - started

    assert SHORT_S / 2 < took < NOT_LONG_S


def test_a_peer_that_reads_slowly_does_not_extend_the_deadline() -> None:
    def sip(connection: socket.socket) -> None:
        while connection.recv(2000):
            time.sleep(0.01)

    with channel_to(sip, SHORT_S) as channel:
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            channel.send(MUCH)
        took = time.monotonic() - started
        channel.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    assert took < NOT_LONG_S


def test_a_channel_can_be_used_again_with_a_new_deadline() -> None:
    go = threading.Event()

    def wait(connection: socket.socket) -> None:
        go.wait(SOON_S)
        connection.sendall(b"late")

    with channel_to(wait, 0.05) as channel:
        with pytest.raises(TimeoutError):
            channel.receive()
        go.set()
        channel.deadline = Deadline.after(SOON_S)

        assert channel.receive() == b"late"


def test_nothing_is_read_after_the_deadline_even_if_bytes_wait() -> None:
    with channel_to(lambda connection: connection.sendall(b"there")) as channel:
        assert channel.receive() == b"there"
        channel.deadline = Deadline.after(-1)

        with pytest.raises(TimeoutError, match=NO_ANSWER):
            channel.receive()


def test_a_reset_is_an_error_with_a_readable_text() -> None:
    def reset(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    # Perhaps it resets before we have done more than connect.
    with pytest.raises(ConnectionResetError) as caught, channel_to(reset) as channel:
        channel.receive()

    assert error_text(caught.value) == "connection reset by peer"


def test_sending_to_a_peer_that_closed_is_an_error_and_no_signal() -> None:
    with channel_to() as channel:
        assert channel.receive() == b""

        with pytest.raises(ConnectionError):
            for _ in range(100):
                channel.send(b"x" * 65536)


def test_incoming_bytes_are_passed_on_while_sending_is_blocked() -> None:
    """A broker that waits until its answers are read accepts no messages before that."""
    arrived: list[bytes] = []
    taken: list[int] = []

    def speak_first(connection: socket.socket) -> None:
        connection.sendall(MUCH)
        while sum(taken) < len(MUCH):
            taken.append(len(connection.recv(1_000_000)))

    with channel_to(speak_first) as channel:
        channel.arrived = arrived.append
        channel.send(MUCH)
        assert arrived
        arrived.append(read_all(channel))

    assert sum(taken) == len(MUCH)
    assert sum(map(len, arrived)) == len(MUCH)


def test_sending_ends_at_the_deadline_if_both_directions_are_blocked() -> None:
    def speak_first(connection: socket.socket) -> None:
        connection.sendall(MUCH)

    with channel_to(speak_first, SHORT_S) as channel:
        started = time.monotonic()
        with pytest.raises(TimeoutError, match=NOT_READING):
            channel.send(MUCH)
        took = time.monotonic() - started

    assert took < NOT_LONG_S


def test_incoming_bytes_may_end_sending() -> None:
    def say_no(connection: socket.socket) -> None:
        connection.sendall(b"no")
        mute(connection)

    def refuse(data: bytes) -> None:
        raise ConnectionAbortedError(data.decode())

    with channel_to(say_no) as channel:
        channel.arrived = refuse
        with pytest.raises(ConnectionAbortedError, match="no"):
            channel.send(MUCH)


def test_waiting_for_a_silent_peer_takes_no_cpu_time() -> None:
    with channel_to(mute, 0.3) as channel:
        channel.send(b"x")
        used = time.thread_time()
        with pytest.raises(TimeoutError):
            channel.receive()
        used = time.thread_time() - used

    assert used < 0.1


def test_a_refused_connection_has_a_readable_text() -> None:
    url = f"stomp://{HOST}:{closed_port()}"

    with pytest.raises(BrokerUnavailable) as refusal:
        open_channel(BrokerAddress(parse_broker(url), HOST), PublisherConfig(), soon())

    assert str(refusal.value) == f"{url}: connection refused"


def test_connecting_to_an_unreachable_peer_ends_at_the_deadline() -> None:
    with black_hole() as url:
        started = time.monotonic()
        with pytest.raises(BrokerUnavailable, match=NO_ANSWER):
            broker = parse_broker(url)
            open_channel(BrokerAddress(broker, HOST), PublisherConfig(), Deadline.after(SHORT_S))
        took = time.monotonic() - started

    assert SHORT_S / 2 < took < NOT_LONG_S


def test_no_connection_is_made_after_the_deadline() -> None:
    with black_hole() as url, pytest.raises(TimeoutError):
        connect(HOST, parse_broker(url).port, Deadline.after(-1))


def test_an_address_of_ipv6_is_reached() -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        missing("IPv6", "enable it on the loopback interface")

    with listener:
        channel = connect("::1", listener.getsockname()[1], soon())
        channel.close()

    assert channel.socket.family == socket.AF_INET6


def test_a_failed_connect_leaves_no_socket_open(recwarn: pytest.WarningsRecorder) -> None:
    with pytest.raises(OSError, match="refused"):
        connect(HOST, closed_port(), soon())

    assert not recwarn.list


def test_http_client_reads_through_a_channel_and_may_close_it_before() -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        connection.sendall(b"body")

    with channel_to(answer) as channel:
        client = http.client.HTTPConnection(HOST)
        client.sock = cast(Any, channel)
        client.request("GET", "/")
        response = client.getresponse()  # which closes the connection
        assert channel.socket.fileno() >= 0

        assert response.read() == b"body"
        assert channel.socket.fileno() == -1


def test_http_client_keeps_a_channel_for_the_next_request() -> None:
    def answer(connection: socket.socket) -> None:
        for body in (b"one", b"two"):
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n" + body)

    with channel_to(answer) as channel:
        client = http.client.HTTPConnection(HOST)
        client.sock = cast(Any, channel)
        bodies = []
        for _ in range(2):
            client.request("GET", "/")
            bodies.append(client.getresponse().read())

    assert bodies == [b"one", b"two"]


def test_http_client_waits_for_a_dripping_answer_no_longer_than_the_deadline() -> None:
    with channel_to(drip, SHORT_S) as channel:
        client = http.client.HTTPConnection(HOST)
        client.sock = cast(Any, channel)
        client.request("GET", "/")
        started = time.monotonic()
        with pytest.raises(TimeoutError, match=NO_ANSWER):
            client.getresponse()
        took = time.monotonic() - started

    assert took < NOT_LONG_S


def test_a_file_returns_received_bytes_in_parts() -> None:
    with (
        channel_to(lambda connection: connection.sendall(b"line 1\nline 2\nrest")) as channel,
        channel.makefile("rb") as file,
    ):
        assert file.readline() == b"line 1\n"
        assert file.read(4) == b"line"
        assert file.read() == b" 2\nrest"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(111, "Connection refused"), "connection refused"),
        (OSError("its own words"), "its own words"),
        (TimeoutError(), "TimeoutError"),
        (ValueError("what"), "what"),
    ],
)
def test_an_error_has_a_readable_text(error: Exception, text: str) -> None:
    assert error_text(error) == text


def soon() -> Deadline:
    return Deadline.after(SOON_S)
