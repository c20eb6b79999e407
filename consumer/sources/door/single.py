"""`POST /v1/messages/{class}`: one message."""

from __future__ import annotations

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


async def post_message(exchange: Exchange) -> web.StreamResponse:
    """Answers once the message is stored."""
    identity = exchange.sender()
    content = await exchange.body.whole()
    message = message_of(exchange.rest, exchange.request.headers, content)
    message_id = message.message_id
    try:
        require_records(message)
        (waiting,) = exchange.intake.deliver([message], identity)
        outcome = await waiting
    except HttpProblem as problem:
        raise problem.of(message_id) from None
    return response_to(Reply(status_of(outcome), as_json(document_of(message_id, outcome))))
