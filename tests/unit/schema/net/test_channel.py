"""Channels end at their deadline, whatever the peer does."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest

from sam_pipeline.schema.net.channel import NO_ANSWER, NOT_READING, Channel, connect
from sam_pipeline.schema.net.deadline import Deadline, within
from tests.services import missing

HOST = "127.0.0.1"
SHORT_S = 0.2
SOON_S = 5.0
MUCH = b"x" * 16_000_000  # more than the kernel keeps for both ends
AT_ONCE = struct.pack("ii", 1, 0)

Peer = Callable[[socket.socket], None]
OVER = threading.Event()
"""Set when a test is done with its channel."""


@contextmanager
def channel_to(peer: Peer, seconds: float) -> Iterator[Channel]:
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
