"""A message that passes, as text and as JSON."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sam_pipeline.schema.errors import MessageRefused
from sam_pipeline.schema.identity.identity import identity_of
from sam_pipeline.schema.messages.decode import read
from sam_pipeline.schema.messages.message import DESTINATION, Message, claimed_origin
from sam_pipeline.schema.messages.refused import refusal_of
from sam_pipeline.schema.program.wording import plural, printable
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.schema.records.text import BadRecord, Reading
from sam_pipeline.schema.times import format_time

SHOWN_LINES = 12
"""Lines of a message on a terminal, each as wide as that."""


def reading_of(message: Message, limits: Limits) -> Reading | MessageRefused:
    """The records of a message, or why it can't be read."""
    if refusal := refusal_of(message):
        return refusal
    try:
        return read(message, limits=limits)
    except MessageRefused as refused:
        return refused


def head_lines(at: datetime, broker: str, message: Message, limits: Limits) -> list[str]:
    """When a message arrived, what it is, and where it comes from."""
    headers, reading = message.headers, reading_of(message, limits)
    origin = list(filter(None, claimed_origin(headers)))
    count = (
        f"can't be read: {reading.reason}: {reading.text}"
        if isinstance(reading, MessageRefused)
        else plural(len(reading), "record")
    )
    return [
        f"{format_time(at)}  {message.message_class or 'no class'}  {message.message_id}",
        f"  from {broker} {headers.get(DESTINATION, '')}".rstrip(),
        f"  identity {identity_of(message)}"
        + (f"; claims to come from {', '.join(origin)}" if origin else ""),
        f"  {count}, {plural(len(message.body), 'byte')}",
    ]


def body_lines(message: Message) -> list[str]:
    """The records as they are; bytes that are not UTF-8 are escaped."""
    text = message.body.decode(errors="backslashreplace").rstrip("\n")
    return [f"    {line}" for line in text.split("\n")] if text else []


def shortened(lines: Sequence[str]) -> list[str]:
    """The first of the lines, cut to the width of the terminal."""
    width = max(shutil.get_terminal_size().columns, 20)
    shown = [printable(line) for line in lines[:SHOWN_LINES]]
    cut = [line if len(line) <= width else f"{line[: width - 1]}…" for line in shown]
    more = len(lines) - len(shown)
    return [*cut, f"    … {plural(more, 'more line')} (--all)"] if more else cut


def head_document(at: datetime, broker: str, message: Message) -> dict[str, Any]:
    """The same facts as in `head_lines`, and all headers."""
    headers = message.headers
    return {
        "time": at,
        "broker": broker,
        "destination": headers.get(DESTINATION),
        "class": message.message_class,
        "message_id": message.message_id,
        "identity": identity_of(message),
        "origin": claimed_origin(headers)._asdict(),
        "headers": dict(headers),
        "bytes": len(message.body),
    }


def records_document(message: Message, limits: Limits) -> dict[str, Any]:
    """The records of a message as read; one that can't be read has its reason and its text."""
    reading = reading_of(message, limits)
    if isinstance(reading, MessageRefused):
        problem = {"reason": reading.reason, "error": reading.text}
        body = message.body.decode(errors="backslashreplace")
        return {"record_count": None, "records": [], "problem": problem, "body": body}
    records = [
        {"reason": record.reason, "error": record.text, "raw": record.raw.decode(errors="replace")}
        if isinstance(record, BadRecord)
        else record.fields
        for record in reading
    ]
    return {"record_count": len(records), "records": records}
