"""Reads frames that are malformed or too large, so that one message can't stop a broker.

Such a MESSAGE has a fault. Its headers are decoded as far as possible; of what exceeds a limit, the
beginning is kept while the rest streams past.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from sam_pipeline.consumer.sources.stomp.frame_form import FrameForm
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.messages.refused import (
    BAD_FRAME,
    KEPT_BYTES,
    KEPT_HEADERS,
    REFUSED_TEXT,
    TOO_LARGE,
    LimitedBody,
    mark_refused,
)
from sam_pipeline.schema.net.stomp_frame import (
    CONTENT_LENGTH,
    ESCAPE_SEQUENCE,
    QUOTED_BYTES,
    UNESCAPE,
    Frame,
    FrameError,
    FrameReader,
)

TOLERATED = frozenset({"MESSAGE", "ERROR"})
"""The other frames confirm something, so they must be right."""

OF_DELIVERY = frozenset({"subscription", "ack", "message-id", "redelivered"})
"""The headers that may differ when a message is delivered again."""
KEPT_NAMES = OF_DELIVERY | {CONTENT_LENGTH, *KEPT_HEADERS}
"""The headers that are kept of a head above the limit."""
LONGEST_LINE = 4096
"""The length of a header line in such a head above which the header is not kept."""

LONGEST_GAP = 16
"""The length of the bytes between a body and the next head."""
_NEXT_MESSAGE = re.compile(rb"\0[\r\n]*MESSAGE\r?\n")

FRAMES_BEFORE = 10
"""How many frames have the same header names before a form is made of them, which takes 0.3 ms."""
MOST_FORMS = 8
"""They are tried one after the other."""
MOST_COUNTED = 100


class Fault(NamedTuple):
    """What is wrong with a frame.

    `problem` and `head`: of a malformed head, and its first KEPT_BYTES as received. `large`: the
    body, if it exceeds the limit.
    """

    problem: str = ""
    head: bytes = b""
    large: LimitedBody | None = None

    def and_also(self, problem: str) -> Fault:
        """The fault with another problem."""
        return self._replace(problem="; ".join(filter(None, [self.problem, problem])))

    def refused(self, message: Message) -> Message:
        """The message, marked with this fault."""
        reason, text = BAD_FRAME, self.problem
        if self.large:
            message = self.large.message(message.headers)
            reason, text = TOO_LARGE, message.headers[REFUSED_TEXT]
            if self.problem:
                text = f"{text}; {self.problem}"
        return mark_refused(message, reason, text, self.head)


class LostTrack(FrameError):
    """The end of a MESSAGE is not known, so nothing after it can be read.

    `frame` has a fault, and as its body what came before the first NUL.
    """

    def __init__(self, problem: str, frame: Frame) -> None:
        super().__init__(problem)
        self.frame = frame


class LenientReader(FrameReader):
    """Frames as of FrameReader; a MESSAGE or an ERROR may have a Fault."""

    def __init__(self, max_message_bytes: int) -> None:
        super().__init__(KEPT_BYTES, max(max_message_bytes, KEPT_BYTES))
        self._max_message_bytes = max_message_bytes
        self._long_head = _LongHead()
        self._forms: list[FrameForm] = []
        self._counts: Counter[tuple[str, ...]] = Counter()
        """How many frames without a form had these header names."""

    @property
    def is_within_frame(self) -> bool:
        """Whether a frame has arrived in part."""
        return self._head is not None or self._in_long_head

    def be_wary(self) -> None:
        """Expect lengths that are not those of the bodies, as publishers can fake them."""
        self._is_wary = True

    def unread(self) -> bytes:
        """The beginning of the bytes that were not read."""
        return bytes(self._buffer[self._at : self._at + KEPT_BYTES])

    @property
    def may_have_ended(self) -> bool:
        """Whether the frame that has arrived in part may be all, its length being a fake."""
        return self._is_wary and self._head is not None and CONTENT_LENGTH in self._head.headers

    def ended(self) -> FrameError:
        """The error that ends this frame before its length."""
        assert self._head is not None
        length = self._head.headers[CONTENT_LENGTH][:QUOTED_BYTES]
        return self._lost_track(self._head, f"{self._head.command} ends before its {length} bytes")

    def _usual_frames(self) -> Iterator[Frame]:
        began = -1
        while began < self._at:
            began = self._at
            for form in self._forms:
                while usual := form.read(self._buffer, self._at):
                    frame, self._at = usual
                    yield frame

    def _read_head(self) -> Frame | None:
        head = super()._read_head()
        learns = len(self._forms) < MOST_FORMS and self._fault is None
        if learns and head and head.command == "MESSAGE":
            names = tuple(head.headers)
            self._counts[names] += 1
            if self._counts[names] == FRAMES_BEFORE and FrameForm.fits(names):
                self._forms.append(FrameForm(names))
            if len(self._counts) > MOST_COUNTED:
                self._counts.clear()
        return head

    def _read_malformed_head(self, head: bytearray, error: FrameError) -> Frame:
        text = head.decode("utf-8", "backslashreplace").replace("\r\n", "\n").rstrip("\r")
        command, *lines = text.split("\n")
        if command not in TOLERATED:
            raise error
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if colon:
                headers.setdefault(_unescaped(name), _unescaped(value))
        self._fault = Fault(str(error), bytes(head))
        return Frame(command, headers)

    def _read_long_head(self) -> Frame | None:
        buffer, long_head = self._buffer, self._long_head
        if not self._in_long_head:
            command = bytes(buffer[self._at : buffer.find(b"\n", self._at)]).rstrip(b"\r").decode()
            if command not in TOLERATED:
                return super()._read_long_head()
            self._in_long_head = True
        while (end := buffer.find(b"\n", self._at)) >= 0:
            is_last = long_head.add(buffer[self._at : end + 1])
            self._at = end + 1
            if is_last:
                self._searched = self._at
                self._in_long_head, self._long_head = False, _LongHead()
                self._fault = Fault(long_head.problem, bytes(long_head.beginning))
                return Frame(long_head.command, long_head.headers)
        long_head.add(buffer[self._at :])
        self._at = len(buffer)
        return None

    def _skip(self, head: Frame, end: int) -> None:
        if head.command not in TOLERATED:
            super()._skip(head, end)
        fault = self._fault or Fault()
        large = fault.large or LimitedBody(self._max_message_bytes)
        if self._is_wary and end == len(self._buffer):  # for the next look
            end = max(self._at, end - LONGEST_GAP)
        large.add(bytes(memoryview(self._buffer)[self._at : end]))
        self._fault = fault._replace(large=large)
        self._skipped += end - self._at
        self._at = self._searched = end

    def _need_length(self, head: Frame, length: str) -> None:
        rest = self.unread()
        if head.command != "MESSAGE" or b"\0" in rest or len(rest) == KEPT_BYTES:
            super()._need_length(head, length)

    def _look_for_next(self, head: Frame, end: int) -> None:
        if _NEXT_MESSAGE.search(self._buffer, max(self._at, self._searched - LONGEST_GAP), end):
            length = head.headers[CONTENT_LENGTH]
            problem = f"within the {length} bytes of a MESSAGE another one begins"
            raise self._lost_track(head, problem)
        self._searched = end

    def _lost_track(self, head: Frame, problem: str) -> FrameError:
        if head.command != "MESSAGE":
            return super()._lost_track(head, problem)
        fault = self._fault or Fault()
        skipped = fault.large.message({}).body if fault.large else b""
        body = (skipped + self.unread()).partition(b"\0")[0][:KEPT_BYTES]
        fault = fault.and_also(problem)._replace(large=None)
        return LostTrack(problem, Frame(head.command, head.headers, body, fault))


class _LongHead:
    """A head above the limit, read line by line in little memory."""

    def __init__(self) -> None:
        self.command = ""
        self.beginning = bytearray()
        self.headers: dict[str, str] = {}
        self._count = self._kept = self._size = 0
        """How many headers there are, how many of them are kept, and their bytes.

        Headers of the delivery are not counted, so that the numbers are those of the message.
        """
        self._line = bytearray()
        """The beginning of a line that is incomplete."""
        self._line_size = 0

    @property
    def problem(self) -> str:
        size = f"{self._size} bytes, in a head above {KEPT_BYTES}"
        return f"{self._count} headers of {size}; {self._kept} of them are kept"

    def add(self, piece: bytearray) -> bool:
        """Add a line or a part of one; returns whether it was the empty line at the end."""
        self.beginning += piece[: KEPT_BYTES - len(self.beginning)]
        self._line += piece[: LONGEST_LINE + 1 - len(self._line)]
        self._line_size += len(piece)
        if not piece.endswith(b"\n"):
            return False
        line = bytes(self._line).rstrip(b"\r\n").decode("utf-8", "backslashreplace")
        size, self._line_size = self._line_size, 0
        self._line.clear()
        if self.command and line:
            self._add_header(line, size)
        self.command = self.command or line
        return not line

    def _add_header(self, line: str, size: int) -> None:
        name, colon, value = line.partition(":")
        is_kept = bool(colon) and name in KEPT_NAMES and size <= LONGEST_LINE
        if is_kept:
            self.headers.setdefault(name, _unescaped(value))
        if name not in OF_DELIVERY:
            self._count += 1
            self._kept += is_kept
            self._size += size


def _unescaped(text: str) -> str:
    """Without escapes; unknown ones stay as they are."""
    return ESCAPE_SEQUENCE.sub(lambda match: UNESCAPE.get(match[0], match[0]), text)
