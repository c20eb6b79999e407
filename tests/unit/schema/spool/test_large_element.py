"""Elements that are read in pieces: the same messages, or marked ones, in little memory."""

from __future__ import annotations

import base64
import hashlib
import json
import tracemalloc
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sam_pipeline.schema.messages.message import CLASS, MESSAGE_ID, Message
from sam_pipeline.schema.messages.refused import BAD_FRAME, KEPT_BYTES, TOO_LARGE, refusal_of
from sam_pipeline.schema.spool.element import parse, serialise
from sam_pipeline.schema.spool.large_element import MAX_HEADER_CHARS, MAX_HEADERS, read_in_pieces
from sam_pipeline.schema.spool.queue import WHOLE_BYTES, DirectoryQueue
from tests.support.builders import metric_message

MB = 1_000_000
LIMIT = 4 * MB
HEADERS = {CLASS: "metricOutput", MESSAGE_ID: "m-1"}

texts = st.text(st.characters(), max_size=40) | st.text(
    '\\"\0\n\ud83d\ude00\U0001f600a', max_size=40
)
encodings = st.sampled_from(["", "utf8", "base64", "zlib+base64"])


def element(body: bytes, encoding: str = "", headers: Mapping[str, object] = HEADERS) -> bytes:
    """An element in the order of another writer: the encoding comes first."""
    if "zlib" in encoding:
        body = zlib.compress(body)
    if "base64" in encoding:
        body = base64.encodebytes(body)
    text = body.decode("utf-8", "surrogatepass")
    return json.dumps({"encoding": encoding, "body": text, "header": headers}).encode()


def cut(content: bytes, size: int) -> Iterator[bytes]:
    return (content[start : start + size] for start in range(0, len(content), size))


def in_pieces(content: bytes, size: int = 1000, limit: int = LIMIT) -> Message:
    return read_in_pieces(lambda: cut(content, size), limit)


def read(directory: Path, content: bytes, limit: int = LIMIT) -> Message:
    queue = DirectoryQueue(directory / "spool")
    message, _ = queue.read_limited(queue.store(content), limit)
    return message


@given(
    st.dictionaries(texts, texts | st.none(), max_size=3),
    texts,
    encodings,
    st.booleans(),
    st.data(),
)
@example({}, "\U0001f600" * 3, "", True, None)
def test_an_element_is_the_same_message_in_whatever_pieces_it_is_read(
    headers: dict[str, str | None], text: str, encoding: str, escaped: bool, data: st.DataObject
) -> None:
    body = text.encode("utf-8", "surrogatepass")
    content = element(body, encoding, headers)
    if not escaped:
        parts = json.loads(content)
        content = json.dumps(parts, ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass")
    size = data.draw(st.integers(1, len(content))) if data else 7

    assert in_pieces(content, size) == parse(content)


NO_MESSAGES = (
    *(b"[1]", b'{"body": 1}', b'{"body": null}', b'{"header": {"a": 1}}', b'{"header": {"a": {}}}'),
    *(b'{"header": []}', b'{"encoding": "rot13", "body": "a"}', b'{"encoding": 1}'),
    *(b'{"body": "a"} {}', b'{"body": "a",}', b'{"body": "\\x"}', b'{"body": "\n"}'),
    *(b'{"body": "\\ud8"}', b'{"body": "!", "encoding": "base64"}', b'{"body": "\xff"}'),
    *(b'{"body": "AAAA", "encoding": "base64+zlib"}', b'{"more": ' + b"[" * 100_000),
    b'{"body": "eJxLTEoGAAJN", "encoding": "base64+zlib"}',  # of b"abc", without its last bytes
)


def test_what_is_no_message_or_a_part_of_one_is_none_in_pieces() -> None:
    for content in NO_MESSAGES:
        for read in (parse, in_pieces):
            with pytest.raises(ValueError, match=r"\w"):
                read(content)
    whole = element(b"a\nb", headers={"name": "\u00e9\n"})
    for end in range(1, 40):
        with pytest.raises(ValueError, match=r"\w"):
            in_pieces(whole[:-end])
    unknown_keys = b'{"more": {"a": [1, NaN]}, "body": "b", "text": true, "priority": 4}'
    assert in_pieces(unknown_keys, 1) == Message({}, b"b")


@pytest.mark.parametrize("encoding", ["", "base64", "base64+zlib"])
@pytest.mark.parametrize("spare", [1, 0, -1])
def test_the_limit_is_that_of_the_body_itself(tmp_path: Path, encoding: str, spare: int) -> None:
    body = b'"' * (WHOLE_BYTES - spare)

    message = read(tmp_path, element(body, encoding), limit=WHOLE_BYTES)

    refusal = refusal_of(message)
    assert (message.message_id, message.message_class) == ("m-1", "metricOutput")
    assert message.body == (body if spare >= 0 else body[:KEPT_BYTES])
    assert (refusal and refusal.reason) == (None if spare >= 0 else TOO_LARGE)
    assert not refusal or hashlib.sha256(body).hexdigest() in refusal.text


@pytest.mark.parametrize("encoding", ["", "base64", "base64+zlib"])
def test_a_large_body_is_never_in_memory(tmp_path: Path, encoding: str) -> None:
    queue = DirectoryQueue(tmp_path / "spool")
    name = queue.store(element(b"ab\n\0" * 3 * MB, encoding))
    tracemalloc.start()
    try:
        message, _ = queue.read_limited(name, MB)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    refusal = refusal_of(message)
    assert refusal and refusal.text.startswith(f"{12 * MB} bytes")
    assert peak < 6 * MB


def test_headers_above_their_limit_are_a_bad_frame_with_those_that_matter(tmp_path: Path) -> None:
    many = {f"header-{number}": "" for number in range(1000)}
    headers = {**many, **HEADERS, "long": "x" * MAX_HEADER_CHARS}

    message = read(tmp_path, element(b"body", headers=headers))

    refusal = refusal_of(message)
    assert refusal and refusal.reason == BAD_FRAME
    assert (message.message_id, message.message_class) == ("m-1", "metricOutput")
    assert message.body == b"body"
    assert sum(map(len, message.headers.values())) < 1000
    # More headers than any message has are not read.
    most = element(b"", headers={str(number): "" for number in range(MAX_HEADERS + 1)})
    with pytest.raises(ValueError, match=f"more than {MAX_HEADERS} headers"):
        in_pieces(most, MB)


def test_without_a_limit_all_of_a_body_is_read(tmp_path: Path) -> None:
    message = metric_message()._replace(body=b"x" * 9 * MB)
    queue = DirectoryQueue(tmp_path / "spool")
    assert queue.read(queue.store(serialise(message))) == message
