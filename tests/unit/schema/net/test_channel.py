"""Channels end at their deadline; STOMP frames prevent injection and have limits."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.schema.net.channel import NO_ANSWER, NOT_READING, Channel, connect
from sam_pipeline.schema.net.deadline import Deadline, within
from sam_pipeline.schema.net.stomp.frame import Fault, Frame, FrameReader, encode
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


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
NAMES = TEXT.filter(lambda name: name not in ("", "content-length"))
COMMANDS = st.sampled_from(["SEND", "MESSAGE", "RECEIPT", "ERROR", "SUBSCRIBE"])
PIECES = st.lists(st.integers(1, 9), min_size=1, max_size=5)


def frames_of(*pieces: bytes, reader: FrameReader | None = None) -> list[Frame | Fault]:
    reader = reader or FrameReader()
    return [frame for piece in pieces for frame in reader.feed(piece)]


def in_parts(data: bytes, sizes: list[int]) -> list[bytes]:
    """The data in chunks of these sizes, repeated in a cycle."""
    ends = itertools.accumulate(itertools.cycle(sizes), initial=0)
    within = [*itertools.takewhile(lambda end: end < len(data), ends), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(within)]


@given(COMMANDS, st.dictionaries(NAMES, TEXT, max_size=5), st.binary(max_size=50), PIECES)
def test_encoded_frames_are_read_back_from_any_chunks(
    command: str, headers: dict[str, str], body: bytes, sizes: list[int]
) -> None:
    headers = {**headers, "content-length": str(len(body))}
    data = encode(command, headers, body)
    frames = frames_of(*in_parts(data + b"\n" + data, sizes))
    assert frames == [Frame(command, headers, body)] * 2


def test_a_header_cannot_inject_another_header_or_frame() -> None:
    evil = "x\ndestination:/queue/other\r\n\n\0"
    with pytest.raises(ValueError, match="holds a NUL"):
        encode("SEND", {"note": evil})
    data = encode("SEND", {"no:te\n": evil.replace("\0", "")})
    assert data == b"SEND\nno\\cte\\n:x\\ndestination\\c/queue/other\\r\\n\\n\n\n\0"


def test_connect_is_not_escaped_and_refuses_values_that_need_escapes() -> None:
    assert encode("CONNECT", {"passcode": "a:b\\c"}) == b"CONNECT\npasscode:a:b\\c\n\n\0"
    for value in ("a\nb", "a\rb", "a\0b"):
        with pytest.raises(ValueError, match="'passcode'") as caught:
            encode("CONNECT", {"passcode": value})
        assert "a" + value[1] not in str(caught.value)


RECEIPT = b"RECEIPT\nreceipt-id:%d\n\n\0"


@pytest.mark.parametrize(
    ("data", "frames"),
    [
        # CONNECTED has no escapes, and the first of repeated headers counts.
        (b"CONNECTED\nserver:a\\nb:c\n\n\0", [Frame("CONNECTED", {"server": "a\\nb:c"})]),
        (
            b"ERROR\ncontent-length:1\ncontent-length:9\na:1\na:2\n\nx\0",
            [Frame("ERROR", {"content-length": "1", "a": "1"}, b"x")],
        ),
        # Heart-beats are skipped, and lines may end with carriage return and line feed.
        (
            b"\n\n\r\nMESSAGE\r\na:1\r\n\r\nx\n\ny\0\r\nRECEIPT\r\nreceipt-id:1\r\n\r\n\0\n",
            [Frame("MESSAGE", {"a": "1"}, b"x\n\ny"), Frame("RECEIPT", {"receipt-id": "1"})],
        ),
    ],
)
def test_a_frame_is_read_as_written(data: bytes, frames: list[Frame]) -> None:
    assert frames_of(*in_parts(data, [1])) == frames_of(data) == frames


@pytest.mark.parametrize(
    ("data", "stem"),
    [
        (b"MESSAGE\ncontent-length:2\n\nabc\0", "does not end after its 2 bytes"),
        (b"MESSAGE\ncontent-length:4\n\nabc\0MESSAGE\n", "does not end after its 4 bytes"),
        ("MESSAGE\ncontent-length:٣\n\nabc\0".encode(), "content-length '٣'"),
        (b"MESSAGE\ncontent-length:" + b"9" * 5000 + b"\n\n", "content-length '999"),
        (b"MESSAGE\ncontent-length:16777217\n\n", "exceeds 16777216 bytes"),
        (b"MESSAGE\nno colon\n\n\0", "without a colon: 'no colon'"),
        (b"MESSAGE\na:b\\\n\n\0", r"escape '\\\\'"),
        (b"MESSAGE\na:\xff\n\n\0", "not UTF-8"),
        (b"HTTP/1.1 400 Bad\r\n", r"not a STOMP frame: 'HTTP/1.1 400 Bad\r\n'"),
        (b"\x16\x03\x03\x00\x02", r"not a STOMP frame: '\x16\x03\x03\x00\x02'"),
        (b"x" * 100_000, f"not a STOMP frame: '{'x' * 40}'"),
    ],
)
def test_a_malformed_frame_is_the_last_fault_with_a_reason(data: bytes, stem: str) -> None:
    [fault] = frames_of(data, RECEIPT % 1)
    assert isinstance(fault, Fault)
    assert fault.is_last
    assert stem.replace("\\\\", "\\") in fault.problem


@pytest.mark.parametrize(
    ("begin", "piece", "limits", "problem"),
    [
        (b"ERROR\n", b"a:1\n", {"max_head_bytes": 1000}, "headers of ERROR exceed 1000"),
        (b"ERROR\n\n", b"x", {"max_body_bytes": 1000}, "body of ERROR exceeds 1000"),
    ],
)
def test_a_frame_without_end_is_the_last_fault(
    begin: bytes, piece: bytes, limits: dict[str, int], problem: str
) -> None:
    [fault] = frames_of(begin, *[piece] * 1002, reader=FrameReader(**limits))
    assert isinstance(fault, Fault)
    assert fault.is_last
    assert problem in fault.problem


def test_a_body_of_exactly_the_limit_is_read() -> None:
    exact = encode("MESSAGE", {"content-length": "9"}, b"x" * 9)
    assert len(frames_of(exact, reader=FrameReader(max_body_bytes=9))) == 1


def test_frames_before_a_fault_and_beyond_the_requested_one_are_kept() -> None:
    reader = FrameReader()
    first = next(iter(reader.feed(RECEIPT % 1 + RECEIPT % 2)))
    *frames, fault = reader.feed(RECEIPT % 3 + b"garbage")
    assert [frame.headers["receipt-id"] for frame in (first, *frames)] == ["1", "2", "3"]
    assert isinstance(fault, Fault)
