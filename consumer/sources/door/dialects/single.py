"""`POST /v1/messages/{class}`: one message."""

from __future__ import annotations

import asyncio

from aiohttp import web

from sam_pipeline.consumer.sources.door.answers import (
    HttpProblem,
    Reply,
    as_json,
    document_of,
    status_of,
)
from sam_pipeline.consumer.sources.door.exchange import Exchange, response_to
from sam_pipeline.consumer.sources.door.messages import message_of, require_records

LONG_BYTES = 64 * 1024
"""A message whose records take several milliseconds to look at."""


async def post_message(exchange: Exchange) -> web.StreamResponse:
    """Answers once the message is stored."""
    identity = exchange.sender()
    content = await exchange.body.whole()
    message = message_of(exchange.rest, exchange.request.headers, content)
    message_id = message.message_id
    try:
        if len(content) < LONG_BYTES:
            require_records(message)
        else:
            await asyncio.to_thread(require_records, message)
        (waiting,) = exchange.deliver([message], identity)
        outcome = await waiting
    except HttpProblem as problem:
        raise problem.of(message_id) from None
    return response_to(Reply(status_of(outcome), as_json(document_of(message_id, outcome))))
