"""ActiveMQ's message servlet: requests that it accepts become the messages that it would send.

`POST /api/message/NAME?type=topic`, with the text of the message in the form field `body`, or as
the body of the request. The other parameters are its headers, those beginning with JMS what JMS
knows of a message. The servlet cuts a body to 100,000 bytes, replaces its line ends, and loses its
content type, a form without `body` and a body without a type; none of this happens here. Nor does
a message expire or get lost with its broker, as the answer says that it is kept: JMSTimeToLive and
JMSDeliveryMode are ignored, like JMSType and JMSExpiration.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from urllib.parse import quote, unquote

from aiohttp import web

from sam_pipeline.consumer.sources.door.answers import (
    BAD_REQUEST,
    OK,
    UNREADABLE,
    UNSUPPORTED,
    HttpProblem,
    Reply,
)
from sam_pipeline.consumer.sources.door.exchange import (
    CHARSET,
    FORM,
    UTF_8,
    Exchange,
    media_type,
    parameters_in,
    response_to,
)
from sam_pipeline.consumer.sources.door.messages import LONGEST_NAME, TEXT
from sam_pipeline.schema.messages.destination import QUEUES, TOPICS, problem_of_destination
from sam_pipeline.schema.messages.headers import PRIORITIES, PRIORITY
from sam_pipeline.schema.messages.message import CONTENT_TYPE, DESTINATION, KEY_NAME, Message

SENT = "Message sent"
"""The body of the answer, whose header `messageID` names the message."""
ID_HEADER = "messageID"

BODY = "body"
DEFAULT_PRIORITY = "5"
"""The priority of a message without one; a STOMP broker would give it 4."""

_NOT_HEADERS = {
    *("destination", "type", BODY, "JMSDeliveryMode", "JMSPriority", "JMSTimeToLive"),
    *("JMSExpiration", "JMSReplyTo", "JMSCorrelationID", "JMSType"),
}
_KINDS = {"topic": TOPICS, "queue": QUEUES[0], "channel": QUEUES[0]}
CHARSETS = (
    *("ascii", "big5", "cp", "euc", "gb", "iso", "koi8", "mac", "shift_jis"),
    *("utf-8", "utf-16", "utf-32"),
)
"""How Python's names of character sets begin. Codecs for other purposes may take quadratic time."""


def servlet_message(
    path: str, parameters: Mapping[str, str], content_type: str, body: bytes
) -> Message:
    """The message that the servlet would send; `path` is what follows `/api/message/`.

    Raises:
        HttpProblem: the request has no message, or a parameter is invalid.
    """
    kind = "topic" if parameters.get("type", "topic").lower() == "topic" else "queue"
    name = parameters.get("destination") or path.replace("/", ".")
    headers = {DESTINATION: _destination(name, kind)}
    if problem := problem_of_destination(headers[DESTINATION]):
        raise HttpProblem(BAD_REQUEST, problem)
    headers["persistent"] = "true"
    headers[PRIORITY] = parameters.get("JMSPriority", DEFAULT_PRIORITY)
    if headers[PRIORITY] not in PRIORITIES:
        raise HttpProblem(BAD_REQUEST, f"JMSPriority {headers[PRIORITY][:40]!r} is not 0 to 9")
    if reply_to := parameters.get("JMSReplyTo"):
        headers["reply-to"] = _destination(reply_to, "queue")
    if correlation_id := parameters.get("JMSCorrelationID"):
        headers["correlation-id"] = correlation_id
    headers |= {name: value for name, value in parameters.items() if name not in _NOT_HEADERS}
    if "" in headers:
        raise HttpProblem(BAD_REQUEST, "a parameter has no name")
    if BODY in parameters:
        return Message(headers, parameters[BODY].encode())
    if media_type(content_type) == FORM:
        text = f"the form has no field {BODY}; a text by itself needs a type, such as text/plain"
        raise HttpProblem(BAD_REQUEST, text)
    match = CHARSET.search(content_type)
    if match and match[1].lower() not in UTF_8:  # a text in another character set becomes UTF-8
        try:
            codec = codecs.lookup(match[1])
            if not codec.name.startswith(CHARSETS):
                raise LookupError("it is not a character set of texts")
            body = body.decode(codec.name).encode()
        except (LookupError, ValueError) as error:
            text = f"the body can't be read as text in {match[1][:40]!r}: {error}"
            raise HttpProblem(UNSUPPORTED, text) from None
        content_type = CHARSET.sub("; charset=utf-8", content_type)
    if content_type and KEY_NAME not in headers:  # a signature covers the content type
        headers.setdefault(CONTENT_TYPE, content_type)
    return Message(headers, body)


def _destination(name: str, kind: str) -> str:
    """The destination `queue://x` or `x`, as STOMP writes it."""
    before, scheme, after = name.partition("://")
    return _KINDS.get(before, _KINDS[kind]) + after if scheme else _KINDS[kind] + name


async def post_form(exchange: Exchange) -> web.StreamResponse:
    """Answers once the message is stored, as the servlet does once it has sent it."""
    request = exchange.request
    identity = exchange.sender()
    content = await exchange.body.whole_or_empty()
    parameters = await parameters_in(request, content)
    if parameters.get("action") == "unsubscribe" and "clientId" in parameters:
        # A client ends its session; there are no sessions here.
        return response_to(Reply(OK, b"", TEXT))
    path, content_type = unquote(exchange.rest), request.headers.get("Content-Type", "")
    message = servlet_message(path, parameters, content_type, content)
    (waiting,) = exchange.deliver([message], identity)
    try:
        await waiting
    except HttpProblem as problem:
        if problem.status != UNREADABLE:
            raise
        # Senders know 400 of the servlet; by another status, everything would be refused.
        raise HttpProblem(BAD_REQUEST, str(problem)) from None
    headers = {ID_HEADER: quote(message.message_id[:LONGEST_NAME], safe=":")}
    return response_to(Reply(OK, SENT.encode(), TEXT, headers))
