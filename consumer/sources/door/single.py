"""`POST /v1/messages/{class}`: one message, with its class, its id and its headers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from urllib.parse import unquote

from aiohttp import web

from sam_pipeline.consumer.sources.door.answers import (
    BAD_REQUEST,
    UNREADABLE,
    UNSUPPORTED,
    HttpProblem,
    Reply,
    as_json,
    document_of,
    status_of,
)
from sam_pipeline.consumer.sources.door.exchange import Exchange, response_to
from sam_pipeline.schema.errors import MessageRefused
from sam_pipeline.schema.messages.decode import read
from sam_pipeline.schema.messages.message import (
    CLASS,
    CONTENT_TYPE,
    COUNT,
    DESTINATION,
    FORMAT,
    JSON,
    KEY_NAME,
    MESSAGE_ID,
    RENAME,
    SIGNATURE,
    SIGNED_AT,
    Message,
)
from sam_pipeline.schema.records.text import BadRecord

LONGEST_NAME = 200
"""The limit on classes and message ids, in characters."""

TEXT = "text/plain"
JSON_LINES = ("application/jsonl", "application/x-ndjson")
MAX_COMMAS = 200_000
"""A body with more values is stored or refused by the sink: here it would delay other senders."""
CHARSETS = ("", "utf-8", "utf8", "us-ascii")

_FIRST_LINE = re.compile(rb"\s*[\w.-]+[ \t]*:")

HEADERS = {
    "Sam-Record-Count": COUNT,
    "Sam-Format": FORMAT,
    "Sam-Rename": RENAME,
    "Sam-Destination": DESTINATION,
    "Sam-Key": KEY_NAME,
    "Sam-Signed-At": SIGNED_AT,
    "Sam-Signature": SIGNATURE,
    "Nagios-Host": "nagios_host",
}
"""The headers of a request that become headers of its message."""

LONG_MESSAGE_BYTES = 64 * 1024
"""A message whose records take several milliseconds to look at."""


def message_of(quoted_class: str, headers: Mapping[str, str], body: bytes) -> Message:
    """The message of `POST /v1/messages/{class}`; `quoted_class` is as in the path.

    Raises:
        HttpProblem: it has no class, or its content type can't be read.
    """
    message = {CLASS: _class_of(quoted_class)}
    if message_id := _id_of(headers):
        message[MESSAGE_ID] = message_id
    given = headers.get("Content-Type", TEXT)
    media, _, parameters = given.partition(";")
    media = media.strip().lower()
    if media in JSON_LINES:
        # As an array: a million records by themselves would take much memory.
        lines = body.strip().replace(b"\r\n", b"\n")
        while b"\n\n" in lines:
            lines = lines.replace(b"\n\n", b"\n")
        body = b"[" + lines.replace(b"\n", b",") + b"]"
        given = JSON
    elif media not in (TEXT, JSON) or _charset_of(parameters) not in CHARSETS:
        known = ", ".join((TEXT, JSON, *JSON_LINES))
        text = (
            f"records as {given[:LONGEST_NAME]} can't be read (expected one of {known}, in UTF-8)"
        )
        raise HttpProblem(UNSUPPORTED, text, {"Accept-Post": known})
    message[CONTENT_TYPE] = given
    message |= {ours: headers[name] for name, ours in HEADERS.items() if name in headers}
    return Message(message, body)


def require_records(message: Message) -> None:
    """Raises HttpProblem if no record of the message can be read; nothing of it is stored then."""
    if FORMAT in message.headers or message.body.count(b",") > MAX_COMMAS:
        return
    status = UNREADABLE
    if message.is_json:
        try:
            if _has_record(json.loads(message.body)):
                return
        except (ValueError, RecursionError):
            status = BAD_REQUEST
    elif _FIRST_LINE.match(message.body):
        return
    else:
        status = BAD_REQUEST
    try:
        records = read(message)
    except MessageRefused:  # it becomes a dead letter, like any message beyond a limit
        return
    bad = [record for record in records if isinstance(record, BadRecord)]
    if bad and len(bad) == len(records):
        problem = HttpProblem(status, bad[0].text, record=1, reason=bad[0].reason)
        if bad[0].reason == "nested":
            for key, value in json.loads(bad[0].raw).items():
                if isinstance(value, (dict, list)):
                    shown = json.dumps(value)[:LONGEST_NAME]
                    problem.facts |= {"key": key[:LONGEST_NAME], "value": shown}
                    break
        raise problem


def _has_record(document: object) -> bool:
    """A quick test, which nearly all messages pass: whether an object has no nested value."""
    return any(
        isinstance(record, dict)
        and record
        and not any(isinstance(value, (dict, list)) for value in record.values())
        for record in (document if isinstance(document, list) else [document])
    )


def _class_of(quoted: str) -> str:
    try:
        name = unquote(quoted, errors="strict")
    except UnicodeDecodeError:
        raise HttpProblem(BAD_REQUEST, f"the class {quoted[:LONGEST_NAME]} is not UTF-8") from None
    has_separator = " " in name or "/" in name
    if not name.isprintable() or has_separator or not 0 < len(name) <= LONGEST_NAME:
        form = f"1 to {LONGEST_NAME} characters without blanks and slashes"
        raise HttpProblem(BAD_REQUEST, f"the class {name[:LONGEST_NAME]!r} is not a name ({form})")
    return name


def _id_of(headers: Mapping[str, str]) -> str:
    """The id that the sender has given, or ""."""
    name = "Sam-Message-Id" if "Sam-Message-Id" in headers else "Idempotency-Key"
    message_id = headers.get(name, "").strip()
    if len(message_id) > 1 and message_id[0] == message_id[-1] == '"':  # as its draft wants it
        message_id = message_id[1:-1]
    if not message_id.isprintable() or len(message_id) > LONGEST_NAME:
        raise HttpProblem(
            BAD_REQUEST, f"{name}: expected at most {LONGEST_NAME} printable characters"
        )
    return message_id


def _charset_of(parameters: str) -> str:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip('"').lower()
    return ""


async def post_message(exchange: Exchange) -> web.StreamResponse:
    """Answers once the message is stored."""
    identity = exchange.sender()
    content = await exchange.body.whole()
    message = message_of(exchange.rest, exchange.request.headers, content)
    message_id = message.message_id
    try:
        if len(content) < LONG_MESSAGE_BYTES:
            require_records(message)
        else:
            await asyncio.to_thread(require_records, message)
        (waiting,) = exchange.deliver([message], identity)
        outcome = await waiting
    except HttpProblem as problem:
        raise problem.of(message_id) from None
    return response_to(Reply(status_of(outcome), as_json(document_of(message_id, outcome))))
