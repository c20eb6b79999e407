"""`/v1/messages`: our own requests, of one message or of many.

`POST /v1/messages/{class}` has one message, with its class, its id and its headers.

`POST /v1/messages` has one JSON document a line, each answered by a line in order. The answers
begin before all messages have arrived. A sender that does not read them while it sends is stopped
after about MAX_UNANSWERED messages.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple
from urllib.parse import unquote

from aiohttp import web

from sam_pipeline.consumer.sources.door.answers import (
    BAD_REQUEST,
    BUG,
    TOO_LARGE,
    UNREADABLE,
    UNSUPPORTED,
    HttpProblem,
    Reply,
    as_json,
    document_of,
    status_of,
)
from sam_pipeline.consumer.sources.door.exchange import (
    CHARSET,
    SERVER,
    UTF_8,
    Body,
    Exchange,
    media_type,
    response_to,
)
from sam_pipeline.consumer.sources.door.intake import Intake, Waiting
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
from sam_pipeline.schema.messages.refused import TOO_LARGE as REFUSED_AS_TOO_LARGE
from sam_pipeline.schema.messages.refused import refusal_of
from sam_pipeline.schema.records.text import BadRecord
from sam_pipeline.schema.spool.large_element import parse_limited

LONGEST_NAME = 200
"""The limit on classes and message ids, in characters."""

TEXT = "text/plain"
NDJSON = "application/x-ndjson"
JSON_LINES = ("application/jsonl", NDJSON)
MAX_COMMAS = 200_000
"""A body with more values is stored or refused by the sink: here it would delay other senders."""

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

FAIR = 50
"""After this number of messages, other requests have their turn."""
MAX_UNANSWERED = 10_000
"""The number of messages of one request whose answers are not written yet."""

logger = logging.getLogger(__name__)


def message_of(quoted_class: str, headers: Mapping[str, str], body: bytes) -> Message:
    """The message of `POST /v1/messages/{class}`; `quoted_class` is as in the path.

    Raises:
        HttpProblem: it has no class, or its content type can't be read.
    """
    message = {CLASS: _class_of(quoted_class)}
    if message_id := _id_of(headers):
        message[MESSAGE_ID] = message_id
    given = headers.get("Content-Type", TEXT)
    media, charset = media_type(given), CHARSET.search(given)
    if media in JSON_LINES:
        # As an array: a million records by themselves would take much memory.
        lines = body.strip().replace(b"\r\n", b"\n")
        while b"\n\n" in lines:
            lines = lines.replace(b"\n\n", b"\n")
        body = b"[" + lines.replace(b"\n", b",") + b"]"
        given = JSON
    elif media not in (TEXT, JSON) or (charset and charset[1].lower() not in UTF_8):
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
            document = json.loads(message.body)
            # A quick test, which nearly all messages pass: an object without nested values.
            if any(
                isinstance(record, dict)
                and record
                and not any(isinstance(value, (dict, list)) for value in record.values())
                for record in (document if isinstance(document, list) else [document])
            ):
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


class _Line(NamedTuple):
    """A message on its way, or why it is not."""

    message_id: str
    waiting: Waiting | None = None
    problem: HttpProblem | None = None
    ends: bool = False
    """The rest of the request is not read."""


async def post_messages(exchange: Exchange) -> web.StreamResponse:
    """Answers each message once it is stored."""
    identity = exchange.sender()
    media = media_type(exchange.request.headers.get("Content-Type", NDJSON))
    if media not in JSON_LINES:
        text = f"messages as {media[:80]!r} can't be read (expected {NDJSON})"
        raise HttpProblem(UNSUPPORTED, text, {"Accept-Post": NDJSON})
    lines = asyncio.Queue[_Line | None](MAX_UNANSWERED)
    reading = asyncio.create_task(_read(exchange, identity, lines))
    try:
        response = await _write(exchange, lines)
    except BaseException:
        reading.cancel()
        raise
    await reading
    return response


async def _write(exchange: Exchange, lines: asyncio.Queue[_Line | None]) -> web.StreamResponse:
    """Write the answers, as many at a time as are known."""
    line = await lines.get()
    if line is None:
        raise HttpProblem(BAD_REQUEST, "the request has no message")
    if line.problem and line.ends:
        raise line.problem
    response = web.StreamResponse(headers={"Content-Type": NDJSON, "Server": SERVER})
    await response.prepare(exchange.request)
    known: list[bytes] = []

    async def flush() -> None:
        await response.write(b"".join(known))
        known.clear()

    while line is not None:
        if line.waiting and not line.waiting.done():
            await flush()
        known += as_json(await _document(line)), b"\n"
        if line.ends:
            response.force_close()
        if lines.empty():
            await flush()
        line = await lines.get()
    await flush()
    return response


async def _document(line: _Line) -> dict[str, object]:
    """The answer to a message, once it is known."""
    problem = line.problem
    if line.waiting is not None:
        try:
            outcome = await line.waiting
        except HttpProblem as error:
            problem = error
        else:
            document = document_of(line.message_id, outcome)
            return {"messageId": line.message_id, "status": status_of(outcome), **document}
    assert problem is not None
    return (problem.of(line.message_id) if line.message_id else problem).document()


async def _read(exchange: Exchange, identity: str, lines: asyncio.Queue[_Line | None]) -> None:
    """Deliver all messages; None follows the last one."""
    mine: deque[Waiting] = deque()
    intake = exchange.intake
    try:
        async for content, size in _contents(exchange.body, 2 * intake.max_message_bytes):
            exchange.body.free(size)
            await lines.put(await _delivered(intake, content, identity, mine))
            if lines.qsize() % FAIR == 0:
                await asyncio.sleep(0)
    except HttpProblem as problem:
        await lines.put(_Line("", problem=problem, ends=True))
    except OSError:  # the sender has gone
        pass
    except Exception:
        logger.exception("reading messages failed")
        await lines.put(_Line("", problem=HttpProblem(BUG, "a bug: please report it"), ends=True))
    await lines.put(None)


async def _delivered(
    intake: Intake, content: bytes | None, identity: str, mine: deque[Waiting]
) -> _Line:
    """Deliver the message of a line; `mine` are the messages before it that still wait."""
    message_id = ""
    try:
        if content is None:
            text = f"the line is longer than 2 * max_message_bytes = {2 * intake.max_message_bytes}"
            raise HttpProblem(TOO_LARGE, text)
        try:
            message = parse_limited(content, intake.max_message_bytes)
        except ValueError as error:
            raise HttpProblem(UNREADABLE, f"the line is not a message: {error}") from None
        message_id = message.message_id
        refusal = refusal_of(message)
        if refusal and refusal.reason == REFUSED_AS_TOO_LARGE:
            raise HttpProblem(TOO_LARGE, refusal.text)
        await intake.wait_for_room(mine)
        mine += intake.deliver([message], identity)
        return _Line(message_id, mine[-1])
    except HttpProblem as problem:
        return _Line(message_id, problem=problem)


async def _contents(body: Body, max_bytes: int) -> AsyncIterator[tuple[bytes | None, int]]:
    """Each line that is not blank, or None if it is too long, and the bytes to free for it."""
    parts: list[bytes] = []
    length = held = 0
    async for piece in body.pieces():
        *ends, rest = piece.split(b"\n")
        empty = 0
        for end in ends:
            if not end and not parts:  # the fast way, or a body of nothing else would take long
                empty += 1
                continue
            content = b"".join((*parts, end)) if length + len(end) <= max_bytes else None
            size = held + len(end) + 1
            parts, length, held = [], 0, 0
            if content is None or content.strip():
                yield content, size
            else:
                body.free(size)
        body.free(empty)
        if not rest:
            continue
        length += len(rest)
        held += len(rest)
        parts.append(rest)
        if length > max_bytes:
            body.free(held)
            parts, held = [], 0
    content = b"".join(parts) if length <= max_bytes else None
    if content is None or content.strip():
        yield content, held
