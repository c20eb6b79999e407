"""STOMP 1.2 frames as values: writing them, and cutting the bytes of a connection into them.

    reader = FrameReader()
    for frame in reader.feed(data): ...

Both ends of the wire may use the reader; nothing a peer sends makes it grow beyond its limits.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Optional

from sam_pipeline.schema.messages.headers import CONTENT_LENGTH, KEPT_HEADERS

if TYPE_CHECKING:
    from sam_pipeline.schema.messages.refused import LimitedBody

COMMANDS = frozenset(
    {
        *("CONNECT", "STOMP", "SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK"),
        *("BEGIN", "COMMIT", "ABORT", "DISCONNECT"),
        *("CONNECTED", "MESSAGE", "RECEIPT", "ERROR"),
    }
)
UNESCAPED = frozenset({"CONNECT", "CONNECTED"})
"""Frames whose headers travel as they are, as in STOMP 1.0: the version is not agreed on yet."""


QUOTED_BYTES = 40
"""How many bytes of an unparsable frame an error message quotes."""

_ESCAPE = {"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c"}
_UNESCAPE = {escape: character for character, escape in _ESCAPE.items()}
_ESCAPE_SEQUENCE = re.compile(r"\\.?", re.DOTALL)


class FrameError(ValueError):
    """The head of a frame is malformed."""


class NotAFrame(FrameError):
    """Where a frame should begin, there is something else."""


class Frame(NamedTuple):
    """Names and values of the headers are unescaped; of a repeated name the first counts."""

    command: str
    headers: dict[str, str]
    body: bytes = b""


class Fault(NamedTuple):
    """A frame that is malformed or too large, as far as it could be read.

    `command` and `headers` are empty if the bytes do not begin a frame. `head`: the beginning of a
    malformed head, as received. `large`: the body, if it exceeds the limit. `is_last`: nothing
    after the frame can be read, since its end is not known or its command is not tolerated.
    """

    command: str
    headers: dict[str, str]
    problem: str = ""
    body: bytes = b""
    head: bytes = b""
    large: Optional[LimitedBody] = None
    is_last: bool = False

    def and_also(self, problem: str) -> Fault:
        """The fault with another problem."""
        return self._replace(problem="; ".join(filter(None, [self.problem, problem])))


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


def parse_head(head: bytearray) -> Frame:
    """Command and headers from their bytes on the wire; raises FrameError."""
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        raise FrameError(f"headers that are not UTF-8: {quoted(head)}") from error
    if "\r" in text:
        text = text.replace("\r\n", "\n").rstrip("\r")
    command, *lines = text.split("\n")
    if command not in COMMANDS:
        raise NotAFrame(f"not a STOMP frame: {quoted(head)}")
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


def _unescaped(text: str, lenient: bool = False) -> str:
    """The text without escapes; if `lenient`, unknown ones are left as they are."""
    if text.count("\\") == text.count("\\c"):  # nearly always, and faster
        return text.replace("\\c", ":")
    try:
        return _ESCAPE_SEQUENCE.sub(lambda match: _UNESCAPE[match[0]], text)
    except KeyError as error:
        if lenient:
            return _ESCAPE_SEQUENCE.sub(lambda match: _UNESCAPE.get(match[0], match[0]), text)
        raise FrameError(f"a header with the unknown escape {error}") from None


def quoted(data: bytearray) -> str:
    """The first bytes, printable."""
    return repr(bytes(data[:QUOTED_BYTES]))[1:]


MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 16 * 1024 * 1024
LONGEST_LENGTH = 15
"""The most digits of a content-length."""

TOLERATED = frozenset({"MESSAGE", "ERROR"})
"""The other frames confirm something, so they must be right."""

LONGEST_GAP = 16
"""The length of the bytes between a body and the next head."""
_NEXT_MESSAGE = re.compile(rb"\0[\r\n]*MESSAGE\r?\n")

FRAMES_BEFORE = 10
"""How many frames have the same header names before a form is made of them, which takes 0.3 ms."""
MOST_FORMS = 8
"""The limit on forms, which are tried one after another."""
MOST_COUNTED = 100

TLS_ALERT = b"\x15\x03"
"""What a TLS server answers to a frame."""

_LINE_ENDS = b"\r\n"
# Most frames that a publisher reads: in one step they take a third of the time.
_PLAIN_RECEIPT = re.compile(rb"[\r\n]*RECEIPT\nreceipt-id:([\w.-]+)\n\n\0")

OF_DELIVERY = frozenset({"subscription", "ack", "message-id", "redelivered"})
"""The headers that may differ when a message is delivered again."""
KEPT_NAMES = OF_DELIVERY | {CONTENT_LENGTH, *KEPT_HEADERS}
"""The headers that are kept of a head above the limit."""
LONGEST_LINE = 4096
"""The length of a header line in such a head above which the header is not kept."""


class _Unreadable(Exception):
    """Nothing can be read after this fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.problem)
        self.fault = fault


class FrameReader:
    """Cuts the incoming bytes, in pieces of any size, into frames.

    The first bad frame is the last one, unless the reader is lenient. Then a MESSAGE or an ERROR
    with a malformed head or of any size is a Fault and the next frame is read: headers are decoded
    as far as possible, and of what exceeds a limit the beginning is kept while the rest streams
    past. A MESSAGE without a known end still is the last one.
    """

    def __init__(
        self,
        max_head_bytes: int = MAX_HEAD_BYTES,
        max_body_bytes: int = MAX_BODY_BYTES,
        lenient: bool = False,
    ) -> None:
        """A lenient reader reads a body of `max_head_bytes` in any case."""
        self._max_head = max_head_bytes
        self._max_body = max(max_body_bytes, max_head_bytes) if lenient else max_body_bytes
        self._stated_max_body = max_body_bytes
        self._lenient = lenient
        self._buffer = bytearray()
        self._at = 0
        """The offset of the first byte that was not parsed yet."""
        self._head: Frame | Fault | None = None
        """What is known of a frame whose body is not complete yet."""
        self._long_head: _LongHead | None = None
        """A head above the limit that is not complete yet."""
        self._searched = 0
        """The offset up to which that body was searched for a NUL without finding one."""
        self._skipped = 0
        """Bytes of that body already dropped from the buffer."""
        self._is_wary = self._has_ended = False
        self._forms: list[FrameForm] = []
        self._counts: Counter[tuple[str, ...]] = Counter()
        """How many frames without a form had these header names."""

    def feed(self, data: bytes) -> Iterator[Frame | Fault]:
        """The frames that are complete now; those not consumed come with the next call."""
        if self._has_ended:
            return iter(())
        del self._buffer[: self._at]
        self._searched = max(0, self._searched - self._at)
        self._at = 0
        self._buffer += data
        return self._frames()

    @property
    def is_within_frame(self) -> bool:
        """Whether a frame has arrived in part."""
        return self._head is not None or self._long_head is not None

    def be_wary(self) -> None:
        """Expect lengths that are not those of the bodies, as publishers can fake them."""
        self._is_wary = True

    @property
    def may_have_ended(self) -> bool:
        """Whether the frame that has arrived in part may be all, its length being a fake."""
        if self._has_ended or not self._is_wary or self._head is None:
            return False
        return CONTENT_LENGTH in self._head.headers

    def end_frame(self) -> Fault:
        """The fault of this frame, which has ended before its length."""
        assert self._head is not None
        self._has_ended = True
        length = self._head.headers[CONTENT_LENGTH][:QUOTED_BYTES]
        return self._lost_track(f"{self._head.command} ends before its {length} bytes").fault

    def _frames(self) -> Iterator[Frame | Fault]:
        try:
            while True:
                if self._head is None:
                    if self._long_head is None:
                        yield from self._usual_frames()
                        self._head = self._read_head()
                    else:
                        self._head = self._read_long_head(self._long_head)
                if self._head is None:
                    return
                end = self._end_of_body(self._head)
                if end is None:
                    return
                body = bytes(self._buffer[self._at : end])
                head, self._head = self._head, None
                self._at = end + 1
                self._skipped = 0
                if isinstance(head, Fault):
                    yield head._replace(body=body)
                else:
                    yield Frame(head.command, head.headers, body) if body else head
        except _Unreadable as unreadable:
            self._has_ended = True
            yield unreadable.fault

    def _usual_frames(self) -> Iterator[Frame]:
        """The next frames, as long as they are of a form that can be read in one step."""
        most = min(self._max_head, self._max_body)
        began = -1
        while began < self._at:
            began = self._at
            while match := _PLAIN_RECEIPT.match(self._buffer, self._at):
                self._at = match.end()
                yield Frame("RECEIPT", {"receipt-id": match[1].decode()})
            for form in self._forms:
                while usual := form.read(self._buffer, self._at, most):
                    frame, self._at = usual
                    yield frame

    def _read_head(self) -> Frame | Fault | None:
        """What is known of a frame whose head is complete; then the body begins at `_at`."""
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
            head = self._parsed(buffer[start:end])
            self._at = self._searched = end + width
            return head
        # Bytes that can't begin a frame are refused before the peer has sent all of them.
        line, newline, _ = bytes(buffer[start : start + QUOTED_BYTES]).partition(b"\n")
        command = line.rstrip(b"\r").decode("ascii", "replace")
        known = command in COMMANDS if newline else any(c.startswith(command) for c in COMMANDS)
        if not known:
            if buffer.startswith(TLS_ALERT, start):
                raise self._not_a_frame("it speaks TLS on this port: use stomp+ssl://")
            raise self._not_a_frame(f"not a STOMP frame: {quoted(buffer[start:])}")
        if len(buffer) < limit:
            return None
        if not self._lenient or command not in TOLERATED:
            problem = f"the headers of {command} exceed {self._max_head} bytes"
            raise _Unreadable(Fault(command, {}, problem, is_last=True))
        self._long_head = _LongHead(self._max_head)
        return self._read_long_head(self._long_head)

    def _parsed(self, head: bytearray) -> Frame | Fault:
        """Command and headers; of a malformed head as far as possible, if that is tolerated."""
        try:
            frame = parse_head(head)
        except NotAFrame as error:
            raise self._not_a_frame(str(error)) from error
        except FrameError as error:
            text = head.decode("utf-8", "backslashreplace").replace("\r\n", "\n").rstrip("\r")
            command, *lines = text.split("\n")
            if not self._lenient or command not in TOLERATED:
                raise _Unreadable(Fault(command, {}, str(error), is_last=True)) from error
            headers: dict[str, str] = {}
            for line in lines:
                name, colon, value = (_unescaped(part, True) for part in line.partition(":"))
                if colon:  # of a repeated name the first counts
                    headers.setdefault(name, value)
            return Fault(command, headers, str(error), head=bytes(head))
        if frame.command == "MESSAGE" and len(self._forms) < MOST_FORMS:
            names = tuple(frame.headers)
            self._counts[names] += 1
            if self._counts[names] == FRAMES_BEFORE and FrameForm.fits(names):
                self._forms.append(FrameForm(names))
            if len(self._counts) > MOST_COUNTED:
                self._counts.clear()
        return frame

    def _read_long_head(self, long_head: _LongHead) -> Fault | None:
        """What is kept of a head above the limit; None until it is complete."""
        while (end := self._buffer.find(b"\n", self._at)) >= 0:
            is_last = long_head.add(self._buffer[self._at : end + 1])
            self._at = end + 1
            if is_last:
                self._searched = self._at
                self._long_head = None
                return long_head.fault
        long_head.add(self._buffer[self._at :])
        self._at = len(self._buffer)
        return None

    def _end_of_body(self, head: Frame | Fault) -> int | None:
        """The offset of the NUL after the body, which begins at `_at`; None until it arrives."""
        length = head.headers.get(CONTENT_LENGTH)
        if length is None:
            end = self._buffer.find(0, self._searched)
            self._searched = len(self._buffer) if end < 0 else end
            if self._skipped or self._searched - self._at > self._max_body:
                self._skip(head, self._searched)
            return None if end < 0 else end
        if not (length.isascii() and length.isdigit() and len(length) <= LONGEST_LENGTH):
            rest = self._unread()
            is_kept = head.command == "MESSAGE" and self._lenient
            if is_kept and b"\0" not in rest and len(rest) < self._max_head:
                return None
            problem = f"{head.command} has the content-length {length[:QUOTED_BYTES]!r}"
            raise self._lost_track(problem)
        size = int(length)
        end = self._at + size - self._skipped
        if self._is_wary:
            # Perhaps the length is a fake, and other frames follow a shorter body.
            looked, until = max(self._at, self._searched - LONGEST_GAP), min(end, len(self._buffer))
            if _NEXT_MESSAGE.search(self._buffer, looked, until):
                problem = f"within the {length} bytes of a MESSAGE another one begins"
                raise self._lost_track(problem)
            self._searched = until
        if size > self._max_body:
            self._skip(head, min(end, len(self._buffer)))
        if end >= len(self._buffer):
            return None
        if self._buffer[end]:
            raise self._lost_track(f"{head.command} does not end after its {length} bytes")
        return end

    def _skip(self, head: Frame | Fault, end: int) -> None:
        """Drop the part of a body above the limit that ends at this offset."""
        if not self._lenient or head.command not in TOLERATED:
            problem = f"the body of {head.command} exceeds {self._max_body} bytes"
            raise _Unreadable(Fault(head.command, head.headers, problem, is_last=True))
        from sam_pipeline.schema.messages.refused import LimitedBody  # 2.8 ms, with `hashlib`

        fault = head if isinstance(head, Fault) else Fault(head.command, head.headers)
        large = fault.large or LimitedBody(self._stated_max_body)
        if self._is_wary and end == len(self._buffer):  # for the next look
            end = max(self._at, end - LONGEST_GAP)
        large.add(bytes(memoryview(self._buffer)[self._at : end]))
        self._head = fault._replace(large=large)
        self._skipped += end - self._at
        self._at = self._searched = end

    def _unread(self) -> bytes:
        """The beginning of the bytes that were not parsed."""
        return bytes(self._buffer[self._at : self._at + self._max_head])

    def _lost_track(self, problem: str) -> _Unreadable:
        """The end of the present frame is not known; its body is what came before the first NUL."""
        head = self._head
        assert head is not None
        fault = head if isinstance(head, Fault) else Fault(head.command, head.headers)
        body = fault.large.message({}).body if fault.large else b""
        body = (body + self._unread()).partition(b"\0")[0][: self._max_head]
        fault = fault.and_also(problem)._replace(body=body, large=None, is_last=True)
        return _Unreadable(fault)

    def _not_a_frame(self, problem: str) -> _Unreadable:
        body = self._unread().partition(b"\0")[0]
        return _Unreadable(Fault("", {}, problem, body, is_last=True))


class _LongHead:
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
            name, colon, value = line.partition(":")
            is_kept = bool(colon) and name in KEPT_NAMES and size <= LONGEST_LINE
            if is_kept:
                self._headers.setdefault(name, _unescaped(value, True))
            if name not in OF_DELIVERY:
                self._count += 1
                self._kept += is_kept
                self._size += size
        self._command = self._command or line
        return not line


class FrameForm:
    """The form of MESSAGE frames with these headers, the last one first.

    The messages of a broker have the same headers, with other values. A pattern made of their names
    finds all values and the body in half the time that it takes to cut a frame line by line. What
    the pattern is not certain about is left to the reader of any frame.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        lines = [re.escape(name.encode()) + b":(.*)\n" for name in reversed(names)]
        self._match = re.compile(rb"[\r\n]*MESSAGE\n%b\n([^\0]*)\0" % b"".join(lines)).match

    @staticmethod
    def fits(names: Sequence[str]) -> bool:
        """Whether the pattern of these names would be certain about them."""
        return all(re.fullmatch(r"[\w.-]+", name, re.ASCII) for name in names)

    def read(self, buffer: bytearray, at: int, most: int) -> tuple[Frame, int] | None:
        """The frame that begins at this offset, and where it ends.

        None unless it is complete, of this form, within the limit on bytes, and the reader of any
        frame would agree.
        """
        match = self._match(buffer, at)
        if match is None or match.end() - at > most:
            return None
        *values, body = match.groups()
        values.reverse()
        try:
            text = b"\n".join(values).decode()
        except UnicodeDecodeError:
            return None
        if "\\" in text:
            text = text.replace("\\c", ":")  # the only escape that brokers need
        if "\\" in text or "\r" in text:
            return None
        headers = dict(zip(self._names, text.split("\n")))
        length = headers.get(CONTENT_LENGTH)
        if length is not None and length != str(len(body)):
            return None
        return Frame("MESSAGE", headers, body), match.end()
