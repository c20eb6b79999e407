"""Channels of bytes and look-ups of names: whatever the peer does, a call ends at its deadline."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.connection import open_channel
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.net.broker_url import parse_broker
from sam_pipeline.schema.net.channel import NO_ANSWER, NOT_READING, Channel, connect, error_text
from sam_pipeline.schema.net.deadline import Deadline, within
from sam_pipeline.schema.net.resolver import Resolver
from tests.services import missing
from tests.support.brokers.fake_broker import black_hole, closed_port

HOST = "127.0.0.1"
SHORT_S = 0.2
SOON_S = 5.0
MUCH = b"x" * 16_000_000  # more than the kernel keeps for both ends
AT_ONCE = struct.pack("ii", 1, 0)

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


def sip(connection: socket.socket) -> None:
    while connection.recv(2000):
        time.sleep(0.01)


def speak_first(connection: socket.socket) -> None:
    connection.sendall(MUCH)


def soon() -> Deadline:
    return Deadline.after(SOON_S)


@pytest.mark.parametrize("peer", [mute, until_closed, drip, flood])
def test_reading_ends_at_the_deadline_whatever_the_peer_sends(peer: Peer) -> None:
    with channel_to(peer, SHORT_S) as channel:
        channel.send(b"x")
        used = time.thread_time()
        with pytest.raises(TimeoutError, match=NO_ANSWER):
            while True:
                channel.receive()
        used = time.thread_time() - used

    assert peer is flood or used < 0.1  # waiting takes no CPU time


@pytest.mark.parametrize("peer", [mute, sip, speak_first])
def test_sending_to_a_peer_that_hardly_reads_ends_at_the_deadline(peer: Peer) -> None:
    with channel_to(peer, SHORT_S) as channel:
        with pytest.raises(TimeoutError, match=NOT_READING):
            channel.send(MUCH)
        channel.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)


def test_a_channel_can_be_used_again_with_a_new_deadline_but_not_after_it() -> None:
    go = threading.Event()

    def wait(connection: socket.socket) -> None:
        go.wait(SOON_S)
        connection.sendall(b"late")

    with channel_to(wait, 0.05) as channel:
        with pytest.raises(TimeoutError):
            channel.receive()
        go.set()
        channel.deadline = soon()
        assert channel.receive() == b"late"
        channel.deadline = Deadline.after(-1)
        with pytest.raises(TimeoutError, match=NO_ANSWER):
            channel.receive()


def test_a_reset_or_closed_connection_is_an_error_with_a_readable_text() -> None:
    def reset(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)

    # Perhaps it resets before we have done more than connect.
    with pytest.raises(ConnectionResetError) as caught, channel_to(reset) as channel:
        channel.receive()
    assert error_text(caught.value) == "connection reset by peer"
    assert error_text(OSError("its own words")) == "its own words"
    assert error_text(TimeoutError()) == "TimeoutError"

    with channel_to() as channel:
        assert channel.receive() == b""
        with pytest.raises(ConnectionError):  # and no signal
            for _ in range(100):
                channel.send(b"x" * 65536)


def test_a_connection_not_made_in_time_is_an_error(recwarn: pytest.WarningsRecorder) -> None:
    def opened(url: str, deadline: Deadline) -> Channel:
        return open_channel(BrokerAddress(parse_broker(url), HOST), PublisherConfig(), deadline)

    url = f"stomp://{HOST}:{closed_port()}"
    with pytest.raises(BrokerUnavailable, match=f"^{url}: connection refused$"):
        opened(url, soon())
    with black_hole() as url:
        with pytest.raises(BrokerUnavailable, match=NO_ANSWER):
            opened(url, Deadline.after(SHORT_S))
        with pytest.raises(TimeoutError):
            connect(HOST, parse_broker(url).port, Deadline.after(-1))
    assert not recwarn.list  # no socket is left open


def test_an_address_of_ipv6_is_reached() -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        missing("IPv6", "enable it on the loopback interface")
    with listener, closing(connect("::1", listener.getsockname()[1], soon())) as channel:
        assert channel.socket.family == socket.AF_INET6


def test_a_call_ends_at_its_deadline_or_returns_or_raises_normally() -> None:
    over = threading.Event()
    with pytest.raises(TimeoutError):
        within(Deadline.after(0.1), over.wait, 60)
    over.set()

    assert within(soon(), int, "7") == 7
    assert 0 < Deadline.after(10).share(4).remaining() <= 2.5
    with pytest.raises(ValueError, match="invalid literal"):
        within(soon(), int, "seven")


def test_a_slow_look_up_answers_the_next_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, queries, real = threading.Event(), 0, socket.getaddrinfo

    def slow(host: str, port: int, *arguments: Any) -> Any:
        nonlocal queries
        if arguments[-1] & socket.AI_NUMERICHOST:
            return real(host, port, *arguments)
        queries += 1
        answer.wait(10)
        if queries == 2:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return real(f"192.0.2.{queries}", port, *arguments)

    def ips_of(timeout_s: float) -> list[str]:
        return resolver.ips_of("msg.example.org", 61613, Deadline.after(timeout_s))

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    resolver = Resolver()
    for _ in range(3):
        with pytest.raises(OSError, match="name resolution failed: no answer in time"):
            ips_of(0.05)
    answer.set()

    assert ips_of(10) == ["192.0.2.1"]
    with pytest.raises(OSError, match="resolution failed: temporary failure"):
        ips_of(10)
    assert ips_of(10) == ["192.0.2.3"]  # what was answered is not remembered
