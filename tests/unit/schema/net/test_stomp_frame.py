"""STOMP frames: encoding prevents injection, decoding enforces limits."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.schema.net.stomp_frame import Frame, FrameError, FrameReader, encode

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
NAMES = TEXT.filter(lambda name: name not in ("", "content-length"))
COMMANDS = st.sampled_from(["SEND", "MESSAGE", "RECEIPT", "ERROR", "SUBSCRIBE"])
PIECES = st.lists(st.integers(1, 9), min_size=1, max_size=5)


def frames_of(*pieces: bytes, reader: FrameReader | None = None) -> list[Frame]:
    reader = reader or FrameReader()
    return [frame for piece in pieces for frame in reader.feed(piece)]


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
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
    frames = frames_of(*cut(data + b"\n" + data, sizes))
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
    assert frames_of(*cut(data, [1])) == frames_of(data) == frames


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
        (b"HTTP/1.1 400 Bad\r\n", r"no STOMP frame begins 'HTTP/1.1 400 Bad\r\n'"),
        (b"\x16\x03\x03\x00\x02", r"no STOMP frame begins '\x16\x03\x03\x00\x02'"),
        (b"x" * 100_000, f"no STOMP frame begins '{'x' * 40}'"),
    ],
)
def test_a_malformed_frame_is_an_error_with_a_reason(data: bytes, stem: str) -> None:
    with pytest.raises(FrameError) as caught:
        frames_of(data)
    assert stem.replace("\\\\", "\\") in str(caught.value)


def test_a_frame_without_end_is_an_error() -> None:
    with pytest.raises(FrameError, match="headers of ERROR exceed 1000"):
        frames_of(b"ERROR\n", *[b"a:1\n"] * 1000, reader=FrameReader(max_head_bytes=1000))
    with pytest.raises(FrameError, match="body of ERROR exceeds 1000"):
        frames_of(b"ERROR\n\n", *[b"x"] * 1002, reader=FrameReader(max_body_bytes=1000))
    exact = encode("MESSAGE", {"content-length": "9"}, b"x" * 9)
    assert len(frames_of(exact, reader=FrameReader(max_body_bytes=9))) == 1


def test_frames_before_an_error_and_beyond_the_requested_one_are_kept() -> None:
    reader, frames = FrameReader(), []
    first = next(iter(reader.feed(RECEIPT % 1 + RECEIPT % 2)))
    with pytest.raises(FrameError):
        frames.extend(reader.feed(RECEIPT % 3 + b"garbage"))
    assert [frame.headers["receipt-id"] for frame in (first, *frames)] == ["1", "2", "3"]
