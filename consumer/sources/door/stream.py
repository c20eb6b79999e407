"""`POST /v1/messages`: many messages, one JSON document a line, each answered by a line in order.

The answers begin before all messages have arrived. A sender that does not read them while it sends
is stopped after MAX_UNANSWERED messages or so.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from typing import NamedTuple

from aiohttp import web

from sam_pipeline.consumer.sources.door.answers import (
    BAD_REQUEST,
    BUG,
    TOO_LARGE,
    UNREADABLE,
    UNSUPPORTED,
    HttpProblem,
    as_json,
    document_of,
    status_of,
)
from sam_pipeline.consumer.sources.door.exchange import SERVER, Body, Exchange
from sam_pipeline.consumer.sources.door.intake import Intake, Waiting
from sam_pipeline.consumer.sources.door.single import JSON_LINES
from sam_pipeline.schema.messages.refused import TOO_LARGE as REFUSED_AS_TOO_LARGE
from sam_pipeline.schema.messages.refused import refusal_of
from sam_pipeline.schema.spool.large_element import parse_limited

NDJSON = "application/x-ndjson"
FAIR = 50
"""After this number of messages, other requests have their turn."""
MAX_UNANSWERED = 10_000
"""The number of messages of one request whose answers are not written yet."""

logger = logging.getLogger(__name__)


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
    media = exchange.request.headers.get("Content-Type", NDJSON).partition(";")[0].strip().lower()
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
