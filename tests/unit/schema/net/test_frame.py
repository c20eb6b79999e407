"""STOMP frames: what a strict reader accepts, and what a lenient one keeps of bad or large ones."""

from __future__ import annotations

import hashlib
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.consumer.sources.stomp.session import refused
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.messages.refused import (
    BAD_FRAME,
    HEAD,
    KEPT_BYTES,
    REFUSED,
    REFUSED_TEXT,
    TOO_LARGE,
)
from sam_pipeline.schema.net.stomp.frame import (
    FRAMES_BEFORE,
    MOST_COUNTED,
    MOST_FORMS,
    Fault,
    Frame,
    FrameReader,
    encode,
)

MAX_BODY = KEPT_BYTES + 1000
PIECES = st.lists(st.integers(1, 40), min_size=1, max_size=5)
OURS = b"subscription:0\nack:a-1\nmessage-id:m-1\nmessageClass:metricOutput\nsamMessageId:s-1\n"
LONG = b"x" * KEPT_BYTES
RECEIPT = b"RECEIPT\nreceipt-id:%d\n\n\0"
GOOD = b"MESSAGE\n" + OURS + b"\ngood\0\n"
HEADERS = dict(line.split(":") for line in OURS.decode().split())

_ACKS = [b"", b"a:1", rb"a\c1", rb"a\\c1", rb"a\x", b"a\r", b"a\0", b"\xe9", b"\xc3\xa9", b"LONG"]
_CHANGES = [
    *((b"a-1", ack) for ack in _ACKS),
    *((b"ack:", b"ack"), (b"ack", rb"a\cc"), (b"\n", b"\r\n"), (b"ack", b"ack:0\nack")),
]
_LENGTHS = [b"0", b"4", b"04", b"5", b"9", b"-1", b"x", b"70000"]
HEADS = [
    *(b"\nMESSAGE\n" + OURS.replace(*change) for change in [(b"", b""), *_CHANGES]),
    *(b"MESSAGE\n" + OURS + b"content-length:" + length + b"\n" for length in _LENGTHS),
    *(b"MESSAGE\n", b"ERROR\n", b"RECEIPT\nreceipt-id:1\n", b"junk"),
]
BODIES = [b"body", b"body", b"b\0dy", b"", b"na\xefve", b"bo\0\nMESSAGE\n\n", b"LONG", b"LONG\r"]
FRAMES = st.builds(b"%b\n%b\0".__mod__, st.tuples(st.sampled_from(HEADS), st.sampled_from(BODIES)))
"""Frames that differ a little from GOOD."""


def lenient(max_body: int = MAX_BODY, wary: bool = False) -> FrameReader:
    reader = FrameReader(max_body_bytes=max_body, lenient=True)
    if wary:
        reader.be_wary()
    return reader


def frames_of(*pieces: bytes, reader: FrameReader | None = None) -> list[Frame | Fault]:
    reader = reader or lenient()
    return [frame for piece in pieces for frame in reader.feed(piece)]


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    """The data in pieces of these sizes, repeated in a cycle."""
    pieces: list[bytes] = []
    while data:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[:size])
        data = data[size:]
    return pieces


def kept(frame: Frame | Fault, is_last: bool = False) -> Message:
    assert isinstance(frame, Fault)
    assert frame.is_last == is_last
    return refused(Message(frame.headers, frame.body), frame)


@pytest.mark.parametrize(
    ("line", "problem", "header"),
    [
        (b"comment:caf\xe9", "not UTF-8", ("comment", r"caf\xe9")),
        (b"no colon", "without a colon", ("ack", "a-1")),
        (rb"comment:a\tb\c", r"escape", ("comment", r"a\tb:")),
        (b"\xff:1", "not UTF-8", (r"\xff", "1")),
    ],
)
@given(sizes=PIECES)
def test_a_malformed_head_is_a_fault_and_the_body_is_whole(
    line: bytes, problem: str, header: tuple[str, str], sizes: list[int]
) -> None:
    head = b"MESSAGE\n" + OURS + line + b"\nack:forged"

    bad, good = frames_of(*cut(head + b"\n\nbody\0" + GOOD, sizes))
    message = kept(bad)

    assert header in message.headers.items()
    assert message.headers["ack"] == "a-1"
    assert message.headers[REFUSED] == BAD_FRAME
    assert problem in message.headers[REFUSED_TEXT]
    assert message.headers[HEAD].encode() == head.replace(b"\xe9", rb"\xe9").replace(
        b"\xff", rb"\xff"
    )
    assert (message.body, message.message_id) == (b"body", "s-1")
    assert good == Frame("MESSAGE", dict(HEADERS), b"good")


@given(
    st.integers(0, 30),
    st.sampled_from([b"\n", b"\r\n"]),
    st.lists(st.integers(1000, 90_000), min_size=1, max_size=4),
)
def test_a_long_head_is_kept_as_far_as_it_matters(
    before: int, end: bytes, sizes: list[int]
) -> None:
    others = [b"h%d:" % number + b"x" * 9000 for number in range(30)]
    lines = [b"MESSAGE", *others[:before], *OURS.split(), *others[before:], b"ack:forged"]
    head = end.join(lines) + end + end

    bad, good = frames_of(*cut(head + b"body\0" + GOOD, sizes))
    message = kept(bad)

    assert bad.headers == HEADERS
    assert message.headers[REFUSED] == BAD_FRAME
    assert message.headers[REFUSED_TEXT].startswith("32 headers of 270")
    assert message.headers[HEAD].encode() == head[:KEPT_BYTES]
    assert message.body == b"body"
    assert good == Frame("MESSAGE", dict(HEADERS), b"good")


@pytest.mark.parametrize("sized", [True, False])
@given(
    length=st.integers(MAX_BODY - 1, 3 * MAX_BODY),
    sizes=st.lists(st.integers(1000, 90_000), min_size=1, max_size=5),
)
def test_a_body_above_the_limit_is_skipped(sized: bool, length: int, sizes: list[int]) -> None:
    body = bytes(range(1, 251)) * (length // 250) + b"x" * (length % 250)
    header = b"content-length:%d\n" % length if sized else b""

    large, good = frames_of(*cut(b"MESSAGE\n" + OURS + header + b"\n" + body + b"\0" + GOOD, sizes))

    assert good == Frame("MESSAGE", dict(HEADERS), b"good")
    if length <= MAX_BODY:
        assert isinstance(large, Frame)
        assert large.body == body
        return
    message = kept(large)
    assert message.headers[REFUSED] == TOO_LARGE
    assert f"{length} bytes" in message.headers[REFUSED_TEXT]
    assert hashlib.sha256(body).hexdigest() in message.headers[REFUSED_TEXT]
    assert message.body == body[:KEPT_BYTES]
    assert HEAD not in message.headers


@pytest.mark.parametrize("begin", [b"\n", b"content-length:60000000\n\n", b"a:"])
def test_a_large_body_or_header_takes_little_memory(begin: bytes) -> None:
    count, limit, piece = 60, 4_000_000, b"x" * 1_000_000
    end = b"\n\nbody\0" if begin == b"a:" else b"\0"

    tracemalloc.start()
    pieces = (b"MESSAGE\n" + OURS + begin, *[piece] * count, end + GOOD)
    large, good = frames_of(*pieces, reader=lenient(limit))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < (6_000_000 if begin == b"a:" else 6 * limit)
    assert large.headers["ack"] == "a-1"
    assert good.body == b"good"


@pytest.mark.parametrize(
    ("length", "body", "problem"),
    [
        (b"many", b"body\0", "content-length 'many'"),
        (b"2", b"body\0", "does not end after its 2 bytes"),
        (b"9", b"body\0" + GOOD, "does not end after its 9 bytes"),
        (b"9" * 99, b"body\0", "content-length '999"),
        (b"80000", b"body\0" + b"x" * 90_000, "does not end after its 80000 bytes"),
    ],
)
def test_a_message_without_a_known_end_is_the_last_fault(
    length: bytes, body: bytes, problem: str
) -> None:
    [fault] = frames_of(b"MESSAGE\n" + OURS + b"content-length:" + length + b"\n\n", body, GOOD)
    message = kept(fault, is_last=True)

    assert (fault.command, fault.headers["ack"]) == ("MESSAGE", "a-1")
    assert (message.body, message.headers[REFUSED]) == (b"body", BAD_FRAME)
    assert problem in message.headers[REFUSED_TEXT]


@pytest.mark.parametrize("length", [4 + 1 + len(GOOD) - 2, 500, 5_000_000])
@given(sizes=PIECES)
def test_a_faked_length_does_not_swallow_the_next_messages(length: int, sizes: list[int]) -> None:
    head = b"MESSAGE\n" + OURS + b"content-length:%d\n\n" % length

    [fault] = frames_of(*cut(head + b"body\0\n" + GOOD * 20, sizes), reader=lenient(wary=True))

    assert "another one begins" in kept(fault, is_last=True).headers[REFUSED_TEXT]
    assert fault.body == b"body"


@pytest.mark.parametrize("command", [b"RECEIPT\nreceipt-id:1", b"CONNECTED\nversion:1.2"])
@pytest.mark.parametrize("rest", [b"a:\xe9\n\n\0", b"a:" + LONG, b"\n" + b"x" * 80_000])
def test_a_malformed_frame_confirms_nothing(command: bytes, rest: bytes) -> None:
    [fault] = frames_of(command + b"\n" + rest, RECEIPT % 9)

    assert isinstance(fault, Fault)
    assert fault.is_last


@given(st.binary(max_size=200), PIECES, st.booleans())
def test_any_bytes_are_frames_or_faults(data: bytes, sizes: list[int], wary: bool) -> None:
    frames = frames_of(*cut(b"MESSAGE\n" + data, sizes), reader=lenient(50, wary))

    faults = [frame for frame in frames if isinstance(frame, Fault)]
    assert all(kept(fault, fault.is_last).headers[REFUSED_TEXT] for fault in faults)
    assert not any(fault.is_last for fault in faults if fault is not frames[-1])


@given(
    st.lists(FRAMES, max_size=6).map(b"".join),
    st.lists(st.one_of(st.integers(1, 40), st.just(200_000)), min_size=1, max_size=5),
    st.booleans(),
)
def test_later_frames_are_read_like_the_first(data: bytes, sizes: list[int], wary: bool) -> None:
    def outcome(reader: FrameReader) -> list[object]:
        pieces = (piece.replace(b"LONG", b"x" * (MAX_BODY + 1)) for piece in cut(data, sizes))
        return [
            (kept(frame, frame.is_last), frame[:-2]) if isinstance(frame, Fault) else frame
            for frame in frames_of(*pieces, reader=reader)
        ]

    sized = b"MESSAGE\n" + OURS + b"content-length:4\n\ngood\0"
    experienced = lenient(wary=wary)
    frames_of((GOOD + sized) * FRAMES_BEFORE, reader=experienced)

    assert len(experienced._forms) == 2
    assert outcome(experienced) == outcome(lenient(wary=wary))


def test_a_reader_learns_a_few_forms_of_frames_and_counts_a_few_more() -> None:
    reader = lenient()

    for number in range(3 * MOST_COUNTED):
        frames_of(b"MESSAGE\nh%d:1\n\n\0" % number, reader=reader)
        assert len(reader._counts) <= MOST_COUNTED
    for number in range(2 * MOST_FORMS):
        frames_of(b"MESSAGE\nh%d:1\n\n\0" % number * 2 * FRAMES_BEFORE, reader=reader)

    assert len(reader._forms) == MOST_FORMS


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
NAMES = TEXT.filter(lambda name: name not in ("", "content-length"))
COMMANDS = st.sampled_from(["SEND", "MESSAGE", "RECEIPT", "ERROR", "SUBSCRIBE"])
SMALL_PIECES = st.lists(st.integers(1, 9), min_size=1, max_size=5)


def strictly(*pieces: bytes, **limits: int) -> list[Frame | Fault]:
    return frames_of(*pieces, reader=FrameReader(**limits))


@given(COMMANDS, st.dictionaries(NAMES, TEXT, max_size=5), st.binary(max_size=50), SMALL_PIECES)
def test_encoded_frames_are_read_back_from_any_chunks(
    command: str, headers: dict[str, str], body: bytes, sizes: list[int]
) -> None:
    headers = {**headers, "content-length": str(len(body))}
    data = encode(command, headers, body)
    frames = strictly(*cut(data + b"\n" + data, sizes))
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
    assert strictly(*cut(data, [1])) == strictly(data) == frames


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
    [fault] = strictly(data, RECEIPT % 1)
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
    [fault] = strictly(begin, *[piece] * 1002, **limits)
    assert isinstance(fault, Fault)
    assert fault.is_last
    assert problem in fault.problem


def test_a_body_of_exactly_the_limit_is_read() -> None:
    exact = encode("MESSAGE", {"content-length": "9"}, b"x" * 9)
    assert len(strictly(exact, max_body_bytes=9)) == 1


def test_frames_before_a_fault_and_beyond_the_requested_one_are_kept() -> None:
    reader = FrameReader()
    first = next(iter(reader.feed(RECEIPT % 1 + RECEIPT % 2)))
    *frames, fault = reader.feed(RECEIPT % 3 + b"garbage")
    assert [frame.headers["receipt-id"] for frame in (first, *frames)] == ["1", "2", "3"]
    assert isinstance(fault, Fault)
