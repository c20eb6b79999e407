"""The file of one element: a message as a JSON object, in the format of all DQS queues.

    {"header": {"name": "value"}, "body": "…", "text": true, "encoding": "base64+utf8+zlib"}

All keys are optional. A checksum is missing, because other implementations refuse unknown keys.
"""

from __future__ import annotations

import json
import re
import zlib
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Iterator
from typing import Any

from sam_pipeline.schema.messages.message import Message

MAX_BODY_BYTES = 128 * 1024 * 1024
"""The limit on an inflated body."""
PIECE_BYTES = 64 * 1024
"""The size of the pieces in which a large element is read."""
NOT_TEXT = "a header or the body is not text"

_ENCODINGS = {"base64", "utf8", "zlib"}
_OTHER_COMPRESSIONS = {"lz4", "snappy"}
"""Those that other implementations know and the standard library of Python does not."""


def serialise(message: Message) -> bytes:
    """The content of the element of a message."""
    element: dict[str, Any] = {"header": dict(message.headers)}
    try:
        element.update(body=message.body.decode(), text=True)
    except UnicodeDecodeError:
        body = b2a_base64(message.body, newline=False).decode()
        element.update(body=body, text=False, encoding="base64")
    try:
        return json.dumps(element, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # a lone surrogate in a header: an argument that is not UTF-8
        return json.dumps(element).encode()


def parse(data: bytes) -> Message:
    """The message of an element; raises ValueError if its content is not one."""
    headers, body, encoding = parts(data)
    return Message(headers, b"".join(decoded([body], encoding)))


def parts(data: bytes) -> tuple[dict[str, str], bytes, str]:
    """The headers of an element, and its body with the encoding; raises ValueError."""
    if not data:
        raise ValueError("the file is empty")
    try:
        element = json.loads(data)
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    if not isinstance(element, dict):
        raise ValueError("the content is not a JSON object")
    header, body = element.get("header", {}), element.get("body", "")
    encoding = element.get("encoding", "")
    if not isinstance(header, dict):
        raise ValueError("the header is not a JSON object")
    # nstream writes "destination": null if it has none.
    header = {name: value for name, value in header.items() if value is not None}
    if not all(isinstance(value, str) for value in (body, encoding, *header.values())):
        raise ValueError(NOT_TEXT)
    return header, encoded(body), encoding


def encoded(text: str) -> bytes:
    """The bytes of a text; lone surrogates are left to the reader of records."""
    return text.encode("utf-8", "surrogatepass")


def decoded(pieces: Iterable[bytes], encoding: str) -> Iterable[bytes]:
    """The body, in pieces, from the text that stands in the element.

    Raises:
        ValueError: the encoding is unknown, or (during iteration) the body is damaged or too long.
    """
    encodings = set(encoding.split("+")) if encoding else set()
    if others := encodings & _OTHER_COMPRESSIONS:
        raise ValueError(f"the body is compressed by {others.pop()} (expected zlib or none)")
    if unknown := encodings - _ENCODINGS:
        raise ValueError(f"unknown encoding {'+'.join(sorted(unknown))}")
    if "base64" in encodings:
        pieces = _from_base64(pieces)
    return _inflated(pieces) if "zlib" in encodings else pieces


def _from_base64(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        rest += b"".join(piece.split())  # some writers break lines
        length = len(rest) // 4 * 4
        yield _plain(rest[:length])
        rest = rest[length:]
    yield _plain(rest)


def _plain(text: bytes) -> bytes:
    """Like `b64decode` with `validate`; `import base64` takes 0.5 ms, 1 % of a call."""
    if not re.fullmatch(rb"[A-Za-z0-9+/]*={0,2}", text):
        raise ValueError("the body is not base64")
    return a2b_base64(text)


def _inflated(pieces: Iterable[bytes]) -> Iterator[bytes]:
    inflater = zlib.decompressobj()
    length = 0
    try:
        for piece in pieces:
            while piece and length <= MAX_BODY_BYTES:
                content = inflater.decompress(piece, PIECE_BYTES)
                length += len(content)
                yield content
                piece = inflater.unconsumed_tail
        yield inflater.flush()
    except zlib.error as error:
        raise ValueError(f"the compressed body is damaged: {error}") from error
    if not inflater.eof or length > MAX_BODY_BYTES:
        raise ValueError("the compressed body is truncated or too long")
