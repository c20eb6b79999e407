"""STOMP 1.2 frames as values, their headers, and how they are written; `reader` reads them.

A SEND frame has our headers, and none that a broker would act on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Optional

from sam_pipeline.schema.messages.message import (
    CLASS,
    COUNT,
    DESTINATION,
    HOST,
    MESSAGE_ID,
    PROGRAM,
    USER,
    Message,
)

if TYPE_CHECKING:
    from sam_pipeline.schema.messages.refused import LimitedBody

CONTENT_LENGTH = "content-length"
RECEIPT = "receipt"
TRANSACTION = "transaction"

REJECTED = "samRejected"
"""Why no broker took a message that a relay keeps; for people, and not sent on."""

OURS = frozenset(
    map(str.lower, (DESTINATION, "persistent", CLASS, COUNT, MESSAGE_ID, HOST, PROGRAM, USER))
)
"""Headers this program writes itself."""

SESSION = frozenset(
    {
        *("ack", "heart-beat", "host", "id", "login", "message-id", "passcode", "subscription"),
        *(CONTENT_LENGTH, RECEIPT, "receipt-id", TRANSACTION, "user-id"),
    }
)
"""Headers of STOMP itself, and the one by which RabbitMQ vouches for a sender."""

# An `ack` from a publisher breaks consumers on Artemis, and a `priority` or an `_AMQ_ROUTING_TYPE`
# of 99 stops its queue for ever; it drops messages that repeat an `_AMQ_DUPL_ID`. ActiveMQ closes
# the connection without an ERROR because of a bad `timestamp`, `transformation` or
# `AMQ_SCHEDULED_DELAY`, and `expires` makes it drop a message after its receipt. RabbitMQ refuses a
# `CC` over STOMP.
BROKERS = frozenset(
    {
        *SESSION,
        *("expiration", "expires", "priority", "redelivered", "selector", "timestamp"),
        *("transformation", "type", "destination-type", "routing-type", "cc", "bcc"),
    }
)
"""Headers that some broker acts on."""
PRIORITY = "priority"
PRIORITIES = frozenset("0123456789")
"""The only values that all brokers understand; a message keeps them."""
PREFIXES = ("JMS", "AMQ", "HQ_")
"""So begin the names of others, after any underscores: `JMSXGroupID`, `_AMQ_DUPL_ID`."""


def belongs_to_broker(name: str) -> bool:
    """Whether some broker acts on a header of this name."""
    return name.lower() in BROKERS or name.upper().lstrip("_").startswith(PREFIXES)


def is_header_name(name: str) -> bool:
    """Whether STOMP can carry the name without escapes."""
    return bool(name) and not any(c <= " " or c in ":\\\x7f" for c in name)


def send_headers(message: Message) -> dict[str, str]:
    """The headers of the SEND of a message that has a destination.

    Headers that can't be sent are left out: an element of a foreign spool may have some.
    """
    headers = {name: value for name, value in message.headers.items() if can_travel(name)}
    if "\0" in "".join(headers.values()):  # it would end the frame
        headers = {name: value.replace("\0", "") for name, value in headers.items()}
    headers["persistent"] = "true"
    if message.headers.get(PRIORITY) in PRIORITIES:
        headers[PRIORITY] = message.headers[PRIORITY]
    # With a content-length ActiveMQ makes it a BytesMessage, so text is sent without one.
    try:
        message.body.decode()
        is_text = b"\0" not in message.body
    except UnicodeDecodeError:
        is_text = False
    if not is_text:
        headers[CONTENT_LENGTH] = str(len(message.body))
    return headers


@lru_cache(maxsize=64)  # nearly all messages of a call have the same header names
def can_travel(name: str) -> bool:
    """Whether a header of this name reaches a consumer and changes nothing on the way."""
    return is_header_name(name) and not belongs_to_broker(name) and name != REJECTED


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
