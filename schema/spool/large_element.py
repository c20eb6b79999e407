"""Reads elements of any size in little memory, for consumers."""

from __future__ import annotations

import codecs
import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Optional

from sam_pipeline.schema.messages.headers import KEPT_HEADERS
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.messages.refused import BAD_FRAME, KEPT_BYTES, LimitedBody, mark_refused
from sam_pipeline.schema.spool.directory import author_of, open_element, pieces_of, read_all
from sam_pipeline.schema.spool.element import NOT_TEXT, PIECE_BYTES, decoded, encoded, parts
from sam_pipeline.schema.spool.queue import DirectoryQueue

WHOLE_BYTES = 1024 * 1024
"""A larger element is read in pieces."""
MAX_HEADER_CHARS = 2 * 1024 * 1024
"""The limit on the headers, in characters; each header counts as EACH_HEADER more of them."""
EACH_HEADER = 64
MAX_HEADERS = 100_000
"""An element with more headers is not a message."""

_NOT_JSON = "the content is not JSON"
_BLANKS = re.compile(r"[ \t\r\n]*")
# As much of a string as is complete, up to its closing quote.
_STRING = re.compile(r'(?:[^"\\]+|\\[^u]|\\u.{4})*', re.DOTALL)
_LONGEST_ESCAPE = len(r"\u0000")
_DECODER = json.JSONDecoder()


def read_limited(
    queue: DirectoryQueue, name: str, max_body_bytes: int
) -> tuple[Message, Optional[int]]:
    """The message of an element, and the number of the account that has written it, if known.

    If its body exceeds `max_body_bytes`, or its headers MAX_HEADER_CHARS, it is marked as refused.
    The memory that reading takes does not depend on the element.

    Raises:
        DamagedElement: its content is not a message.
    """
    with queue.opened_for_reading(name) as at:
        # Of the file that is read: another account could replace it in the meantime.
        descriptor, status = open_element(*at)
        try:
            if status.st_size <= WHOLE_BYTES:
                message = parse_limited(read_all(descriptor, status.st_size), max_body_bytes)
            else:
                message = read_in_pieces(partial(pieces_of, descriptor), max_body_bytes)
            return message, author_of(status)
        finally:
            os.close(descriptor)


def parse_limited(data: bytes, max_body_bytes: int) -> Message:
    """The message of an element; if its body exceeds the limit, marked as TOO_LARGE.

    Raises:
        ValueError: the content is not a message.
    """
    headers, content, encoding = parts(data)
    if not encoding and len(content) <= max_body_bytes:
        return Message(headers, content)
    limited = LimitedBody(max_body_bytes)
    for piece in decoded([content], encoding):
        limited.add(piece)
    return limited.message(headers)


def read_in_pieces(read: Callable[[], Iterable[bytes]], max_body_bytes: int) -> Message:
    """The message of an element whose content is what each call of `read` yields.

    If a limit is exceeded it is marked as refused, and has only a part of the body or the headers.

    Raises:
        ValueError: the content is not a message.
    """
    body = LimitedBody(max_body_bytes)

    def take_body(pieces: Iterator[str]) -> None:
        for piece in decoded(map(encoded, pieces), encoding):
            body.add(piece)

    # The encoding is usually written after the body, so the element is read twice.
    _, _, encoding = _read_parts(read(), lambda pieces: deque(pieces, maxlen=0))
    headers, header_chars, _ = _read_parts(read(), take_body)
    if header_chars <= MAX_HEADER_CHARS:
        return body.message(headers)
    kept = {name: headers[name] for name in KEPT_HEADERS if name in headers}
    text = (
        f"headers of {header_chars} characters, above the limit of {MAX_HEADER_CHARS};"
        f" kept: {', '.join(kept) or 'none'}"
    )
    return mark_refused(body.message(kept), BAD_FRAME, text)


def _read_parts(
    pieces: Iterable[bytes], take_body: Callable[[Iterator[str]], object]
) -> tuple[dict[str, str], int, str]:
    """The headers, how many characters they have, and the encoding of the body.

    `take_body` is called with the pieces of the body as they stand in the element.
    """
    text = _Text(pieces)
    headers: dict[str, str] = {}
    header_chars, encoding = 0, ""
    for key in text.members():
        if key == "header":
            headers, header_chars = _read_headers(text)
        elif key == "body":
            text.expect('"', NOT_TEXT)
            take_body(text.string())
        elif key == "encoding":
            text.expect('"', NOT_TEXT)
            encoding, _ = text.beginning(PIECE_BYTES)
        else:
            text.value()
    if text.next():
        raise ValueError("there is more after the JSON object")
    return headers, header_chars, encoding


def _read_headers(text: _Text) -> tuple[dict[str, str], int]:
    """The headers within the limit and KEPT_HEADERS; how many characters all of them have."""
    headers: dict[str, str] = {}
    chars = 0
    for number, name in enumerate(text.members()):
        if number == MAX_HEADERS:  # reading all of them would take minutes
            raise ValueError(f"more than {MAX_HEADERS} headers")
        if text.next() != '"':
            if text.value() is not None:
                raise ValueError(NOT_TEXT)
            continue
        text.expect('"')
        value, length = text.beginning(MAX_HEADER_CHARS)
        chars += len(name) + length + EACH_HEADER
        if chars <= MAX_HEADER_CHARS or (name in KEPT_HEADERS and length <= KEPT_BYTES):
            headers[name] = value
    return headers, chars


class _Text:
    """A JSON text of which only the piece that is being read is in memory.

    All methods raise ValueError if it is malformed.
    """

    def __init__(self, pieces: Iterable[bytes]) -> None:
        utf8 = codecs.getincrementaldecoder("utf-8")("surrogatepass")
        self._pieces = map(utf8.decode, pieces)
        self._text = ""
        self._at = 0
        """The offset of the first character that was not read yet."""

    def members(self) -> Iterator[str]:
        """The keys of an object; the caller reads the value of each."""
        self.expect("{", "the content or the header is not a JSON object")
        while self.next() != "}":
            self.expect('"')
            key, _ = self.beginning(PIECE_BYTES)
            self.expect(":")
            yield key
            if self.next() == "}":
                break
            self.expect(",")
            if self.next() != '"':
                raise ValueError(_NOT_JSON)
        self.expect("}")

    def next(self) -> str:
        """The next character that is not blank; empty at the end."""
        while True:
            self._at = _BLANKS.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def expect(self, character: str, problem: str = _NOT_JSON) -> None:
        """Read past this character, which must be the next one that is not blank."""
        if self.next() != character:
            raise ValueError(problem)
        self._at += 1

    def string(self) -> Iterator[str]:
        """The pieces of a string whose opening quote has been read."""
        high = ""  # the first half of a character whose other half may be in the next piece
        while True:
            start = self._at
            self._at = _STRING.match(self._text, start).end()  # type: ignore[union-attr]
            piece = high + json.loads(f'"{self._text[start : self._at]}"')
            if high and len(piece) > 1:
                piece = piece.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
            if self._text[self._at : self._at + 1] == '"':
                self._at += 1
                yield piece
                return
            high = piece[-1:] if "\ud800" <= piece[-1:] <= "\udbff" else ""
            yield piece[: len(piece) - len(high)]
            if len(self._text) - self._at >= _LONGEST_ESCAPE or not self._more():
                raise ValueError("a string is not complete")

    def beginning(self, max_chars: int) -> tuple[str, int]:
        """The first characters of a string whose opening quote has been read, and its length."""
        kept, length = "", 0
        for piece in self.string():
            kept += piece[: max_chars - len(kept)]
            length += len(piece)
        return kept, length

    def value(self) -> object:
        """A value no longer than a piece."""
        self.next()
        while len(self._text) - self._at < PIECE_BYTES and self._more():
            pass
        try:
            value, self._at = _DECODER.raw_decode(self._text, self._at)
        except RecursionError:
            raise ValueError("the JSON is nested too deeply") from None
        return value

    def _more(self) -> bool:
        """Read another piece; False at the end."""
        piece = next(self._pieces, None)
        self._text = self._text[self._at :] + (piece or "")
        self._at = 0
        return piece is not None
