"""STOMP 1.2 frames, as bytes on a connection and as values.

    data = encode("SEND", {"destination": "/queue/x"}, b"text")
    reader = FrameReader()
    for frame in reader.feed(data): ...

Both ends of the wire may use it. Nothing a peer sends makes the reader grow beyond its limits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Optional

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
LONGEST_LENGTH = 15
"""The digits of a content-length, at most."""
QUOTED_BYTES = 40
"""How many bytes of an unparsable frame an error message quotes."""

TLS_ALERT = b"\x15\x03"
"""What a TLS server answers to a frame."""

_LINE_ENDS = b"\r\n"
# Most of what a publisher reads: in one step it takes a third of the time.
_PLAIN_RECEIPT = re.compile(rb"[\r\n]*RECEIPT\nreceipt-id:([\w.-]+)\n\n\0")
_ESCAPE = {"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c"}
UNESCAPE = {escape: character for character, escape in _ESCAPE.items()}
ESCAPE_SEQUENCE = re.compile(r"\\.?", re.DOTALL)


class FrameError(ValueError):
    """The peer's bytes are not STOMP 1.2, or exceed a limit of the reader."""


class NotAFrame(FrameError):
    """Where a frame should begin, there is something else."""


class Frame(NamedTuple):
    """Names and values of the headers are unescaped; of a repeated name the first counts.

    `fault`: what a reader that tolerates malformed frames found wrong with this one.
    """

    command: str
    headers: dict[str, str]
    body: bytes = b""
    fault: Any = None


def encode(command: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """The frame on the wire; a body with a NUL in it needs its `content-length` among the headers.

    Raises:
        ValueError: a header holds characters that no frame can carry.
    """
    head = "\n".join([command, *map(":".join, headers.items())])
    # Escapes are rarely needed, and counting is quicker than testing every header.
    clean = head.count("\n") == head.count(":") == len(headers)
    if not clean or "\\" in head or "\r" in head or "\0" in head:
        lines = [command]
        for name, value in headers.items():
            if "\0" in name or "\0" in value:
                raise ValueError(f"the header {name!r} holds a NUL, which ends a frame")
            if command not in UNESCAPED:
                lines.append(f"{_escaped(name)}:{_escaped(value)}")
            elif any(end in name + value for end in "\r\n") or ":" in name:
                raise ValueError(f"the header {name!r} of {command} holds a line end or a colon")
            else:
                lines.append(f"{name}:{value}")
        head = "\n".join(lines)
    return b"".join((head.encode("utf-8", "replace"), b"\n\n", body, b"\0"))


def _escaped(text: str) -> str:
    for character, escape in _ESCAPE.items():  # a tenth of the time of str.translate()
        text = text.replace(character, escape)
    return text


class FrameReader:
    """Cuts the incoming bytes, in pieces of any size, into frames.

    A subclass may tolerate malformed and large frames, by methods that raise an error here.
    """

    def __init__(
        self, max_head_bytes: int = MAX_HEAD_BYTES, max_body_bytes: int = MAX_BODY_BYTES
    ) -> None:
        self._max_head = max_head_bytes
        self._max_body = max_body_bytes
        self._buffer = bytearray()
        self._at = 0
        """The offset of the first byte that was not parsed yet."""
        self._head: Optional[Frame] = None
        """Command and headers of a frame whose body is not complete yet."""
        self._searched = 0
        """The offset up to which that body was searched for a NUL without finding one."""
        self._skipped = 0
        """How many bytes of that body are not in the buffer any more."""
        self._fault: Any = None
        """What is wrong with that frame."""
        self._in_long_head = False
        self._is_wary = False

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete now; those not consumed come with the next call.

        Raises:
            FrameError: during iteration, after the frames that precede the malformed one.
        """
        del self._buffer[: self._at]
        self._searched = max(0, self._searched - self._at)
        self._at = 0
        self._buffer += data
        return self._frames()

    def _frames(self) -> Iterator[Frame]:
        while True:
            if self._head is None and not self._in_long_head:
                yield from self._usual_frames()
            head = self._head = self._head or self._read_head()
            if head is None:
                return
            end = self._end_of_body(head)
            if end is None:
                return
            body = bytes(self._buffer[self._at : end])
            self._at = end + 1
            self._head = None
            if self._fault is None:
                yield Frame(head.command, head.headers, body) if body else head
            else:
                fault, self._fault, self._skipped = self._fault, None, 0
                yield Frame(head.command, head.headers, body, fault)

    def _usual_frames(self) -> Iterator[Frame]:
        """The next frames, as long as they are of a kind that can be read in one step."""
        while match := _PLAIN_RECEIPT.match(self._buffer, self._at):
            self._at = match.end()
            yield Frame("RECEIPT", {"receipt-id": match[1].decode()})

    def _read_head(self) -> Optional[Frame]:
        """Command and headers, if they are complete; then the body begins at `_at`."""
        if self._in_long_head:
            return self._read_long_head()
        buffer, start = self._buffer, self._at
        while start < len(buffer) and buffer[start] in _LINE_ENDS:  # heart-beats
            start += 1
        self._at = start
        limit = start + self._max_head
        end, width = buffer.find(b"\n\n", start, limit), 2
        crlf = buffer.find(b"\n\r\n", start, limit if end < 0 else end)
        if crlf >= 0:
            end, width = crlf, 3
        if end >= 0:
            head = buffer[start:end]
            try:
                frame = parse_head(head)
            except FrameError as error:
                frame = self._read_malformed_head(head, error)
            self._at = self._searched = end + width
            return frame
        # Bytes that can't begin a frame are refused before the peer has sent all of them.
        line, newline, _ = bytes(buffer[start : start + QUOTED_BYTES]).partition(b"\n")
        command = line.rstrip(b"\r").decode("ascii", "replace")
        known = command in COMMANDS if newline else any(c.startswith(command) for c in COMMANDS)
        if not known:
            if buffer.startswith(TLS_ALERT, start):
                raise NotAFrame("it speaks TLS on this port: use stomp+ssl://")
            raise NotAFrame(f"no STOMP frame begins {_quoted(buffer[start:])}")
        return self._read_long_head() if len(buffer) >= limit else None

    def _end_of_body(self, head: Frame) -> Optional[int]:
        """The offset of the NUL after the body, which begins at `_at`; None until it arrives."""
        length = head.headers.get(CONTENT_LENGTH)
        if length is None:
            end = self._buffer.find(0, self._searched)
            self._searched = len(self._buffer) if end < 0 else end
            if self._skipped or self._searched - self._at > self._max_body:
                self._skip(head, self._searched)
            return None if end < 0 else end
        if not (length.isascii() and length.isdigit() and len(length) <= LONGEST_LENGTH):
            self._need_length(head, length)
            return None
        size = int(length)
        end = self._at + size - self._skipped
        if self._is_wary:
            self._look_for_next(head, min(end, len(self._buffer)))
        if size > self._max_body:
            self._skip(head, min(end, len(self._buffer)))
        if end >= len(self._buffer):
            return None
        if self._buffer[end]:
            raise self._lost_track(head, f"{head.command} does not end after its {length} bytes")
        return end

    def _read_malformed_head(self, head: bytearray, error: FrameError) -> Frame:
        """A frame with such a head."""
        raise error

    def _read_long_head(self) -> Optional[Frame]:
        """A head that exceeds the limit; of its first bytes at `_at` the command is known."""
        command = self._buffer[self._at : self._buffer.find(b"\n", self._at)].decode().rstrip()
        raise FrameError(f"the headers of {command} exceed {self._max_head} bytes")

    def _skip(self, head: Frame, end: int) -> None:
        """Drop the part of a body above the limit that ends at this offset."""
        raise FrameError(f"the body of {head.command} exceeds {self._max_body} bytes")

    def _need_length(self, head: Frame, length: str) -> None:
        """Called while the frame arrives, whose content-length makes no sense."""
        problem = f"{head.command} has the content-length {length[:QUOTED_BYTES]!r}"
        raise self._lost_track(head, problem)

    def _look_for_next(self, head: Frame, end: int) -> None:
        """Called if `_is_wary`: look for frames in a body of a given length, up to this offset."""

    def _lost_track(self, head: Frame, problem: str) -> FrameError:
        """The error for a frame whose end is not known."""
        return FrameError(problem)


def parse_head(head: bytearray) -> Frame:
    """Command and headers from their bytes on the wire.

    Raises:
        FrameError: they are malformed.
    """
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        raise FrameError(f"headers that are not UTF-8: {_quoted(head)}") from error
    if "\r" in text:
        text = text.replace("\r\n", "\n").rstrip("\r")
    command, *lines = text.split("\n")
    if command not in COMMANDS:
        raise NotAFrame(f"no STOMP frame begins {_quoted(head)}")
    lines.reverse()  # of a repeated name the first counts, and a dict keeps the last
    try:
        headers = dict([line.split(":", 1) for line in lines])
    except ValueError:
        short = next(line for line in reversed(lines) if ":" not in line)
        raise FrameError(f"a header without a colon: {short[:QUOTED_BYTES]!r}") from None
    if "\\" not in text or command in UNESCAPED:
        return Frame(command, headers)
    for name in [name for name, value in headers.items() if "\\" in value]:
        headers[name] = _unescaped(headers[name])
    if "\\" in "".join(headers):  # rare; of two spellings of one name again the first counts
        headers = {_unescaped(name): value for name, value in headers.items()}
    return Frame(command, headers)


def _unescaped(text: str) -> str:
    if text.count("\\") == text.count("\\c"):  # nearly always, and faster
        return text.replace("\\c", ":")
    try:
        return ESCAPE_SEQUENCE.sub(lambda match: UNESCAPE[match[0]], text)
    except KeyError as error:
        raise FrameError(f"a header with the escape {error} that STOMP does not know") from None


def _quoted(data: bytearray) -> str:
    """The first bytes, printable."""
    return repr(bytes(data[:QUOTED_BYTES]))[1:]
