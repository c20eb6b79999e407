"""A message: headers and a body of one or more records, the same on the wire and in the spool."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Callable, NamedTuple, TypeVar

from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.schema.times import format_time

T = TypeVar("T")


def chunks(
    items: Iterable[T], size_of: Callable[[T], int], max_items: int, max_bytes: int
) -> Iterator[list[T]]:
    """Lists of at most `max_items` items and `max_bytes`; a larger item gets a list of its own.

    A full list is yielded before the next item is read.
    """
    chunk: list[T] = []
    size = 0
    for item in items:
        item_size = size_of(item)
        if chunk and size + item_size > max_bytes:
            yield chunk
            chunk, size = [], 0
        chunk.append(item)
        size += item_size
        if len(chunk) == max_items or size >= max_bytes:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


CLASS = "messageClass"
COUNT = "recordCount"
MESSAGE_ID = "samMessageId"
HOST, PROGRAM, USER = "samHost", "samProgram", "samUser"
"""Headers in which the publisher names the origin of a message: unverified claims."""
KEY_NAME, SIGNED_AT, SIGNATURE = "samKey", "samSignedAt", "samSignature"
"""Headers of a signed message."""
FORMAT, RENAME = "samFormat", "samRename"
"""Headers that say how to read the records of a foreign writer."""
CONTENT_TYPE = "content-type"
DESTINATION = "destination"
"""The header that names the topic or queue; it is also stored in the spool."""
USER_HEADERS = ("JMSXUserID", "user-id")
"""The headers in which ActiveMQ and RabbitMQ name the login of the publisher, if configured."""
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


MAX_RECORDS = 100
MAX_BYTES = 64 * 1024


class Message(NamedTuple):
    """The headers as on the wire, and the body."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def message_class(self) -> str | None:
        """The class named in the headers, or None."""
        return self.headers.get(CLASS) or None

    @property
    def message_id(self) -> str:
        """The publisher's id, or for a foreign message a hash of its class and body."""
        message_id = self.headers.get(MESSAGE_ID)
        if message_id:
            return message_id
        from hashlib import sha256  # 2.8 ms, and needed for foreign messages only

        digest = sha256((self.message_class or "").lower().encode("utf-8", "replace"))
        digest.update(b"\0" + self.body)
        return f"sha256:{digest.hexdigest()}"

    @property
    def record_count(self) -> int | None:
        """The number of records that the sender announced, or None."""
        count = self.headers.get(COUNT, "")
        return int(count) if count.isascii() and count.isdigit() and len(count) < 10 else None

    @property
    def is_json(self) -> bool:
        """Whether the content type is that of JSON, whatever its parameters."""
        content_type = self.headers.get(CONTENT_TYPE, "")
        return content_type.split(";")[0].strip().lower() == JSON

    def with_default_class(self, name: str | None) -> Message:
        """The message, with the class `name` if its headers name none."""
        if self.message_class or not name:
            return self
        return Message({**self.headers, CLASS: name}, self.body)


def body_size(message: Message) -> int:
    """The size of its body, for `chunks`."""
    return len(message.body)


def new_message(
    message_class: str,
    body: str,
    *,
    record_count: int | None = None,
    content_type: str = TEXT,
    headers: Mapping[str, str] | None = None,
    message_id: str | None = None,
) -> Message:
    """A persistent message; generates an id unless one is given."""
    standard = {
        CLASS: message_class,
        MESSAGE_ID: message_id or new_message_id(),
        CONTENT_TYPE: content_type,
        "persistent": "true",
    }
    if record_count is not None:
        standard[COUNT] = str(record_count)
    return Message({**standard, **(headers or {})}, body.encode("utf-8", "replace"))


def new_message_id() -> str:
    """A unique id that sorts by time: microseconds, then 72 random bits, in hexadecimal."""
    return f"{time.time_ns() // 1000:014x}-{os.urandom(9).hex()}"


def made_at(message_id: str) -> str:
    """The time in an id of `new_message_id`, in our format; "" for an id of another form."""
    if not re.fullmatch("[0-9a-f]{14}-[0-9a-f]{18}", message_id):
        return ""
    return format_time(datetime.fromtimestamp(int(message_id[:14], 16) // 1_000_000, timezone.utc))


def pack(
    records: Iterable[Mapping[str, str]],
    message_class: str,
    max_records: int = MAX_RECORDS,
    headers: Mapping[str, str] | None = None,
) -> Iterator[Message]:
    """Messages of at most `max_records` and MAX_BYTES; a larger record travels alone."""

    def size_of(text: str) -> int:
        return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))

    for texts in chunks(map(write_wlcg, records), size_of, max_records, MAX_BYTES):
        yield new_message(message_class, "".join(texts), record_count=len(texts), headers=headers)


def default_destination(message_class: str) -> str:
    """The destination of a class for which none is configured: `/topic/grid.probe.<class>`."""
    return f"/topic/grid.probe.{message_class}"


LONGEST_CLAIM = 100
"""The most characters of a claim; a longer one is cut."""


class Origin(NamedTuple):
    """The values of the headers, empty without one."""

    host: str = ""
    program: str = ""
    user: str = ""

    def __str__(self) -> str:
        """`USER@HOST`, or the program if neither is known."""
        return "@".join(filter(None, (self.user, self.host))) or self.program


def claimed_origin(headers: Mapping[str, str]) -> Origin:
    """The origin that the headers of a message claim; it may be forged."""
    return Origin(*(headers.get(name, "")[:LONGEST_CLAIM] for name in (HOST, PROGRAM, USER)))
