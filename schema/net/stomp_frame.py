"""STOMP 1.2 frames, as bytes on a connection and as values.

    data = encode("SEND", {"destination": "/queue/x"}, b"text")
    reader = FrameReader()
    for frame in reader.feed(data): ...

Both ends of the wire may use it. Nothing a peer sends makes the reader grow beyond its limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Optional

COMMANDS = frozenset(
    {
        *("CONNECT", "STOMP", "SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK"),
        *("BEGIN", "COMMIT", "ABORT", "DISCONNECT"),
        *("CONNECTED", "MESSAGE", "RECEIPT", "ERROR"),
    }
)
UNESCAPED = frozenset({"CONNECT", "CONNECTED"})
"""Frames whose headers travel as they are, as in STOMP 1.0: the version is not agreed on yet."""

CONTENT_LENGTH = "content-length"

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 16 * 1024 * 1024
SHOWN_BYTES = 40
"""How many bytes of an unparsable frame an error message quotes."""

_LINE_ENDS = b"\r\n"
# Most of what a publisher reads: in one step it takes a third of the time.
_PLAIN_RECEIPT = re.compile(rb"[\r\n]*RECEIPT\nreceipt-id:([\w.-]+)\n\n\0")
_ESCAPE = {"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c"}
_ESCAPED = str.maketrans(_ESCAPE)
_UNESCAPE = {escape: character for character, escape in _ESCAPE.items()}
_ESCAPE_SEQUENCE = re.compile(r"\\.?", re.DOTALL)


class FrameError(ValueError):
    """The peer's bytes are not STOMP 1.2, or exceed a limit of the reader."""


class Frame(NamedTuple):
    """Names and values of the headers are unescaped; of a repeated name the first counts."""

    command: str
    headers: dict[str, str]
    body: bytes = b""


def encode(command: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """The frame on the wire; a body with a NUL in it needs its `content-length` among the headers.

    Raises:
        ValueError: a header holds characters that no frame can carry.
    """
    head = "\n".join([command, *map(":".join, headers.items())])
    # Escapes are rarely needed, and counting is quicker than testing every header.
    clean = head.count("\n") == head.count(":") == len(headers)
    if not clean or "\\" in head or "\r" in head or "\0" in head:
        head = "\n".join([command, *_escaped(command, headers)])
    return b"".join((head.encode("utf-8", "replace"), b"\n\n", body, b"\0"))


class FrameReader:
    """Cuts the incoming bytes, in pieces of any size, into frames."""

    def __init__(
        self, max_head_bytes: int = MAX_HEAD_BYTES, max_body_bytes: int = MAX_BODY_BYTES
    ) -> None:
        self._max_head = max_head_bytes
        self._max_body = max_body_bytes
        self._buffer = bytearray()
        self._at = 0
        """The offset in the buffer before which everything is read."""
        self._head: Optional[Frame] = None
        """Command and headers of a frame whose body is not complete yet."""
        self._seen = 0
        """The offset up to which that body holds no NUL."""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete now; those not consumed come with the next call.

        Raises:
            FrameError: during iteration, after the frames that precede the malformed one.
        """
        del self._buffer[: self._at]
        self._seen = max(0, self._seen - self._at)
        self._at = 0
        self._buffer += data
        return self._frames()

    def _frames(self) -> Iterator[Frame]:
        while True:
            while self._head is None and (match := _PLAIN_RECEIPT.match(self._buffer, self._at)):
                self._at = match.end()
                yield Frame("RECEIPT", {"receipt-id": match[1].decode()})
            head = self._head or self._next_head()
            if head is None:
                return
            body = self._next_body(head)
            if body is None:
                self._head = head
                return
            self._head = None
            yield Frame(head.command, head.headers, body) if body else head

    def _next_head(self) -> Optional[Frame]:
        """Command and headers, if they are complete; then the body begins at `_at`."""
        buffer, start = self._buffer, self._at
        while start < len(buffer) and buffer[start] in _LINE_ENDS:  # heart-beats
            start += 1
        self._at = start
        limit = start + self._max_head
        end, width = buffer.find(b"\n\n", start, limit), 2
        crlf = buffer.find(b"\n\r\n", start, limit if end < 0 else end)
        if crlf >= 0:
            end, width = crlf, 3
        if end < 0:
            self._check_beginning(limit)
            return None
        self._at = self._seen = end + width
        return _parsed(buffer[start:end])

    def _check_beginning(self, limit: int) -> None:
        """Refuse bytes that can't begin a frame at once, before the peer has sent all of them."""
        line = bytes(self._buffer[self._at : self._at + SHOWN_BYTES])
        word = line.partition(b"\n")[0].rstrip(b"\r").decode("ascii", "replace")
        complete = b"\n" in line
        if not (word in COMMANDS if complete else any(name.startswith(word) for name in COMMANDS)):
            raise FrameError(f"no STOMP frame begins {_shown(line)}")
        if len(self._buffer) >= limit:
            raise FrameError(f"the headers of {word} exceed {self._max_head} bytes")

    def _next_body(self, head: Frame) -> Optional[bytes]:
        """The body, if it is complete; then the next frame begins at `_at`."""
        text = head.headers.get(CONTENT_LENGTH)
        end = self._end_by_nul(head) if text is None else self._end_by_length(head, text)
        if end is None:
            return None
        body = bytes(self._buffer[self._at : end])
        self._at = end + 1
        return body

    def _end_by_nul(self, head: Frame) -> Optional[int]:
        end = self._buffer.find(0, self._seen)
        self._seen = len(self._buffer) if end < 0 else end
        if self._seen - self._at > self._max_body:
            raise FrameError(f"the body of {head.command} exceeds {self._max_body} bytes")
        return None if end < 0 else end

    def _end_by_length(self, head: Frame, text: str) -> Optional[int]:
        if not (text.isascii() and text.isdigit()):
            raise FrameError(f"{head.command} has the content-length {text[:SHOWN_BYTES]!r}")
        if len(text) > len(str(self._max_body)) or int(text) > self._max_body:
            raise FrameError(f"the body of {head.command} exceeds {self._max_body} bytes")
        end = self._at + int(text)
        if end >= len(self._buffer):
            return None
        if self._buffer[end]:
            raise FrameError(f"{head.command} does not end after its {text} bytes")
        return end


def _escaped(command: str, headers: Mapping[str, str]) -> Iterator[str]:
    for name, value in headers.items():
        if "\0" in name or "\0" in value:
            raise ValueError(f"the header {name!r} holds a NUL, which ends a frame")
        if command not in UNESCAPED:
            yield f"{name.translate(_ESCAPED)}:{value.translate(_ESCAPED)}"
        elif any(end in name + value for end in "\r\n") or ":" in name:
            raise ValueError(f"the header {name!r} of {command} holds a line end or a colon")
        else:
            yield f"{name}:{value}"


def _parsed(data: bytearray) -> Frame:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise FrameError(f"headers that are no UTF-8: {_shown(bytes(data))}") from error
    if "\r" in text:
        text = text.replace("\r\n", "\n").rstrip("\r")
    lines = text.split("\n")
    command = lines[0]
    if command not in COMMANDS:
        raise FrameError(f"no STOMP frame begins {_shown(bytes(data))}")
    del lines[0]
    headers = _headers(lines)
    if "\\" in text and command not in UNESCAPED:
        headers = _unescaped_headers(headers)
    return Frame(command, headers)


def _headers(lines: list[str]) -> dict[str, str]:
    lines.reverse()  # of a repeated name the first counts, and a dict keeps the last
    try:
        return dict([line.split(":", 1) for line in lines])
    except ValueError:
        short = next(line for line in reversed(lines) if ":" not in line)
        raise FrameError(f"a header without a colon: {short[:SHOWN_BYTES]!r}") from None


def _unescaped_headers(headers: dict[str, str]) -> dict[str, str]:
    for name in [name for name, value in headers.items() if "\\" in value]:
        headers[name] = _unescaped(headers[name])
    if "\\" in "".join(headers):  # seldom; of two spellings of one name again the first counts
        return {_unescaped(name): value for name, value in headers.items()}
    return headers


def _unescaped(text: str) -> str:
    if text.count("\\") == text.count("\\c"):  # most often, and quicker to replace
        return text.replace("\\c", ":")
    try:
        return _ESCAPE_SEQUENCE.sub(lambda match: _UNESCAPE[match[0]], text)
    except KeyError as error:
        raise FrameError(f"a header with the escape {error} that STOMP does not know") from None


def _shown(data: bytes) -> str:
    """The first bytes, printable."""
    return repr(data[:SHOWN_BYTES])[1:]
