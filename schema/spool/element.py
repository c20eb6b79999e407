"""What the file of one element holds: a message as a JSON object, as all writers of DQS queues do.

    {"header": {"name": "value"}, "body": "…", "text": true, "encoding": "base64+utf8+zlib"}

All keys are optional. Readers of other makes refuse keys beyond these, so there is no checksum.
"""

from __future__ import annotations

import json
from typing import Any

from sam_pipeline.schema.messages.message import Message

MAX_BODY_BYTES = 128 * 1024 * 1024
"""A compressed body may not grow above this."""

_ENCODINGS = {"base64", "utf8", "zlib"}


def serialise(message: Message) -> bytes:
    element: dict[str, Any] = {"header": dict(message.headers)}
    try:
        element.update(body=message.body.decode(), text=True)
    except UnicodeDecodeError:
        from binascii import b2a_base64

        body = b2a_base64(message.body, newline=False).decode()
        element.update(body=body, text=False, encoding="base64")
    try:
        return json.dumps(element, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # a lone surrogate in a header: bytes of an argument, no text
        return json.dumps(element).encode()


def parse(content: bytes) -> Message:
    """The message of an element.

    Raises:
        ValueError: it holds none, in words.
    """
    if not content:
        raise ValueError("the file is empty")
    try:
        element = json.loads(content)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(element, dict):
        raise ValueError("no JSON object")
    header, body, encoding = (
        element.get(key, default)
        for key, default in (("header", {}), ("body", ""), ("encoding", ""))
    )
    if not isinstance(header, dict):
        raise ValueError("the header is no JSON object")
    # nstream writes "destination": null where it was told none.
    header = {name: value for name, value in header.items() if value is not None}
    if not all(isinstance(value, str) for value in (body, encoding, *header.values())):
        raise ValueError("header or body is no text")
    return Message(header, _decoded(body, encoding.split("+") if encoding else []))


def _decoded(text: str, encoding: list[str]) -> bytes:
    unknown = set(encoding) - _ENCODINGS
    if unknown:
        raise ValueError(f"encoding {'+'.join(sorted(unknown))} is not known here")
    # A lone surrogate is for the reader of the records to judge, as other bad UTF-8 is.
    plain = text.encode("utf-8", "surrogatepass")
    body = _from_base64(plain) if "base64" in encoding else plain
    return _inflated(body) if "zlib" in encoding else body


def _from_base64(text: bytes) -> bytes:
    from base64 import b64decode

    return b64decode(b"".join(text.split()), validate=True)  # some writers break lines


def _inflated(packed: bytes) -> bytes:
    import zlib

    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(packed, MAX_BODY_BYTES)
    except zlib.error as error:
        raise ValueError(f"the compressed body is damaged: {error}") from error
    if not inflater.eof:
        raise ValueError("the compressed body is cut or too long")
    return body
