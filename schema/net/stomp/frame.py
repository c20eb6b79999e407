"""STOMP 1.2 frames as values, and how they are written; `reader` reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Optional

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
UNESCAPE = {escape: character for character, escape in _ESCAPE.items()}
ESCAPE_SEQUENCE = re.compile(r"\\.?", re.DOTALL)


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
    """Command and headers from their bytes on the wire.

    Raises:
        FrameError: they are malformed.
    """
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        raise FrameError(f"headers that are not UTF-8: {quoted(head)}") from error
    if "\r" in text:
        text = text.replace("\r\n", "\n").rstrip("\r")
    command, *lines = text.split("\n")
    if command not in COMMANDS:
        raise NotAFrame(f"no STOMP frame begins {quoted(head)}")
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


def quoted(data: bytearray) -> str:
    """The first bytes, printable."""
    return repr(bytes(data[:QUOTED_BYTES]))[1:]
