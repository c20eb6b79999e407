"""The file of one element: a message as a JSON object, in the format of all DQS queues.

    {"header": {"name": "value"}, "body": "…", "text": true, "encoding": "base64+utf8+zlib"}

All keys are optional. There is no checksum, because other implementations refuse unknown keys.
"""

from __future__ import annotations

import json
from typing import Any

from sam_pipeline.schema.messages.message import Message

MAX_BODY_BYTES = 128 * 1024 * 1024
"""The limit on an inflated body."""

_ENCODINGS = {"base64", "utf8", "zlib"}


def serialise(message: Message) -> bytes:
    """The content of the element of a message."""
    element: dict[str, Any] = {"header": dict(message.headers)}
    try:
        element.update(body=message.body.decode(), text=True)
    except UnicodeDecodeError:
        from binascii import b2a_base64

        body = b2a_base64(message.body, newline=False).decode()
        element.update(body=body, text=False, encoding="base64")
    try:
        return json.dumps(element, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # a lone surrogate in a header: an argument that is not UTF-8
        return json.dumps(element).encode()


def parse(data: bytes) -> Message:
    """The message of an element.

    Raises:
        ValueError: the content is not a message.
    """
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
        raise ValueError("a header or the body is not text")
    encodings = set(encoding.split("+")) if encoding else set()
    if unknown := encodings - _ENCODINGS:
        raise ValueError(f"unknown encoding {'+'.join(sorted(unknown))}")
    # Lone surrogates are left to the reader of records, like other invalid UTF-8.
    content = body.encode("utf-8", "surrogatepass")
    if "base64" in encodings:
        from base64 import b64decode

        content = b64decode(b"".join(content.split()), validate=True)  # some writers break lines
    if "zlib" in encodings:
        import zlib

        inflater = zlib.decompressobj()
        try:
            content = inflater.decompress(content, MAX_BODY_BYTES)
        except zlib.error as error:
            raise ValueError(f"the compressed body is damaged: {error}") from error
        if not inflater.eof:
            raise ValueError("the compressed body is truncated or too long")
    return Message(header, content)
