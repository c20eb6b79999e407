"""What a consumer keeps of frames that are malformed or too large.

FrameReader(lenient=LENIENT)  # a publisher needs nothing of this
"""

from __future__ import annotations

from collections.abc import Iterable

from sam_pipeline.schema.messages.headers import CONTENT_LENGTH
from sam_pipeline.schema.messages.refused import KEPT_HEADERS, LimitedBody
from sam_pipeline.schema.net.stomp.frame import ESCAPE_SEQUENCE, UNESCAPE, Fault

OF_DELIVERY = frozenset({"subscription", "ack", "message-id", "redelivered"})
"""The headers that may differ when a message is delivered again."""
KEPT_NAMES = OF_DELIVERY | {CONTENT_LENGTH, *KEPT_HEADERS}
"""The headers that are kept of a head above the limit."""
LONGEST_LINE = 4096
"""The length of a header line in such a head above which the header is not kept."""


def first_headers(lines: Iterable[str]) -> dict[str, str]:
    """The headers in the lines that have a colon; of a repeated name the first counts."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers.setdefault(_unescaped(name), _unescaped(value))
    return headers


class LongHead:
    """A head above the limit, read line by line in little memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._command = ""
        self._beginning = bytearray()
        self._headers: dict[str, str] = {}
        self._count = self._kept = self._size = 0
        """How many headers there are, how many of them are kept, and their bytes.

        Headers of the delivery are not counted, so that the numbers are those of the message.
        """
        self._line = bytearray()
        """The beginning of a line that is incomplete."""
        self._line_size = 0

    @property
    def fault(self) -> Fault:
        size = f"{self._size} bytes, in a head above {self._limit}"
        problem = f"{self._count} headers of {size}; {self._kept} of them are kept"
        return Fault(self._command, self._headers, problem, head=bytes(self._beginning))

    def add(self, piece: bytearray) -> bool:
        """Add a line or a part of one; returns whether it was the empty line at the end."""
        self._beginning += piece[: self._limit - len(self._beginning)]
        self._line += piece[: LONGEST_LINE + 1 - len(self._line)]
        self._line_size += len(piece)
        if not piece.endswith(b"\n"):
            return False
        line = bytes(self._line).rstrip(b"\r\n").decode("utf-8", "backslashreplace")
        size, self._line_size = self._line_size, 0
        self._line.clear()
        if self._command and line:
            self._add_header(line, size)
        self._command = self._command or line
        return not line

    def _add_header(self, line: str, size: int) -> None:
        name, colon, value = line.partition(":")
        is_kept = bool(colon) and name in KEPT_NAMES and size <= LONGEST_LINE
        if is_kept:
            self._headers.setdefault(name, _unescaped(value))
        if name not in OF_DELIVERY:
            self._count += 1
            self._kept += is_kept
            self._size += size


def _unescaped(text: str) -> str:
    """Without escapes; unknown ones stay as they are."""
    return ESCAPE_SEQUENCE.sub(lambda match: UNESCAPE.get(match[0], match[0]), text)


class Leniency:
    """The parts of a frame that is not what it should be."""

    headers = staticmethod(first_headers)
    long_head = LongHead
    body = LimitedBody


LENIENT = Leniency()
