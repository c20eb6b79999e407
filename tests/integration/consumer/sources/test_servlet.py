"""The door's form of ActiveMQ, side by side with the message servlet of ActiveMQ 5.18.

The same request goes to both. What a STOMP subscriber gets from the servlet is what the door makes
of the request, unless the servlet loses a part of it.
"""

from __future__ import annotations

import http.client
import uuid
from collections.abc import Mapping
from contextlib import closing
from typing import NamedTuple
from urllib.parse import quote, urlencode

import pytest

from sam_pipeline.consumer.sources.door.answers import HttpProblem
from sam_pipeline.consumer.sources.door.dialects.activemq import ID_HEADER, SENT, servlet_message
from sam_pipeline.consumer.sources.door.dialects.forms import FORM, parameters_of
from sam_pipeline.publisher.settings.secrets import basic_login
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.stomp_frame import Frame
from tests.services.activemq5 import ActiveMQ5Server
from tests.support.brokers.subscriber import subscribed

OF_DELIVERY = {"subscription", "message-id", "timestamp", "content-length", "JMSXUserID"}
MAX_BYTES = 100_000
"""Of a raw body in the servlet, without the line end that it adds."""


class Sent(NamedTuple):
    """A request with a destination NAME."""

    body: bytes
    query: str = "?type=topic"
    content_type: str = FORM
    path: str = "NAME"


def form(query: str = "?type=topic", path: str = "NAME", **fields: str) -> Sent:
    return Sent(urlencode(fields).encode(), query, path=path)


SAME = {
    "a body": form(body="a: b+c&d=e %41\r\n€\U0001f600\n\n"),
    "headers": form(
        body="x",
        messageClass="metricOutput",
        samMessageId="00-1",
        nagios_host="n:1",
        note="ü \\ =",
        empty="",
        **{"content-type": "application/json", "x-y": "1", "a b": "c", "1": "2"},
    ),
    "parameters in the URL": form("?type=topic&clientId=c&note=ü%20&p", body="x"),
    "a body in the URL": Sent(b"", "?type=topic&body=a+b%0A", ""),
    "a body in the URL before another": Sent(b"other", "?type=topic&body=x", "text/plain"),
    "two bodies": Sent(b"body=one&body=two"),
    "an empty body": form(body=""),
    "no kind": form("", body="x"),
    "a kind in capitals": form("?type=TOPIC", body="x"),
    "a path of a name": form(path="a/NAME", body="x"),
    "a destination": form("?type=queue&destination=topic://NAME", path="", body="x"),
    "a destination in the form": form(path="other", body="x", destination="topic://NAME"),
    "parameters of JMS": form(
        body="x", JMSCorrelationID="c", JMSType="t", JMSReplyTo="topic://r", JMSPriority="7"
    ),
    "a reply to a queue": form(body="x", JMSReplyTo="r", JMSExpiration="5"),
    "not persistent": form(body="x", JMSDeliveryMode="NON_PERSISTENT"),
    "persistent": form(body="x", JMSDeliveryMode=" Persistent"),
    "options of the servlet": form(body="x", sync="true", action="send", json="true", oneShot="1"),
    "150 kB": form(body="x" * 150_000),
}

LOST = {
    "the type and the line ends": Sent(b"a\r\nb", content_type="text/plain"),
    "the type of JSON": Sent(b'{"a": "\xc3\xbc"}\n', content_type="application/json"),
    "all beyond 100 000 bytes": Sent(b"x" * 150_000, content_type="text/plain"),
    "a body without a type": Sent(b"hostName: a\n", content_type=""),
    "what follows a NUL": form(body="a\0b"),
    "both of a repeated parameter": Sent(b"body=x&note=1&note=2"),
}

REFUSED = {
    "no destination": form(path="", body="x"),
    "bytes that are not UTF-8": Sent(b"body=%ff"),
    "a priority that is not a number": form(body="x", JMSPriority="high"),
}


@pytest.fixture
def name() -> str:
    return f"servlet.{uuid.uuid4().hex}"


def answer_of(server: ActiveMQ5Server, sent: Sent, name: str) -> tuple[int, str, str]:
    """Status, body and id of the message in the answer of the servlet."""
    headers = {"Authorization": basic_login(server.user, server.password)}
    if sent.content_type:
        headers["Content-Type"] = sent.content_type
    target = quote(f"/api/message/{sent.path}{sent.query}".replace("NAME", name), safe="/?&=%+:")
    connection = http.client.HTTPConnection(server.host, server.rest_port, timeout=20)
    with closing(connection):
        connection.request("POST", target, sent.body.replace(b"NAME", name.encode()), headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers.get(ID_HEADER, "")


def ours(sent: Sent, name: str) -> Message:
    """The message that the door makes of the request."""
    path, query = (text.replace("NAME", name) for text in (sent.path, sent.query))
    body = sent.body.replace(b"NAME", name.encode())
    parameters = parameters_of(query.removeprefix("?"), sent.content_type, body)
    return servlet_message(path, parameters, sent.content_type, body, 0)


def theirs(server: ActiveMQ5Server, sent: Sent, name: str) -> Frame:
    """What a subscriber gets from the servlet."""
    prefix = "a." if sent.path.startswith("a/") else ""
    with subscribed(server, f"/topic/{prefix}{name}") as frames:
        status, text, message_id = answer_of(server, sent, name)
        assert (status, text) == (200, SENT)
        assert message_id
        return next(frames)


def headers_of(frame: Frame) -> Mapping[str, str]:
    """The headers of a message, as far as its sender decides over them."""
    headers = {name: value for name, value in frame.headers.items() if name not in OF_DELIVERY}
    if headers.get("expires") == "0":
        del headers["expires"]
    return headers


@pytest.mark.parametrize("sent", SAME.values(), ids=SAME)
def test_the_message_is_that_of_the_servlet(
    activemq5: ActiveMQ5Server, name: str, sent: Sent
) -> None:
    message, frame = ours(sent, name), theirs(activemq5, sent, name)

    assert message.body == frame.body
    assert message.headers == headers_of(frame)


@pytest.mark.parametrize("sent", LOST.values(), ids=LOST)
def test_what_the_servlet_loses_is_kept(activemq5: ActiveMQ5Server, name: str, sent: Sent) -> None:
    message, frame = ours(sent, name), theirs(activemq5, sent, name)

    if sent.content_type == FORM:
        assert message.body.startswith(frame.body)
    else:
        assert message.body == sent.body
        lines = sent.body.replace(b"\r\n", b"\n").removesuffix(b"\n")
        assert frame.body == (lines[:MAX_BYTES] + b"\n" if sent.content_type else b"")
        assert "content-type" not in frame.headers
    assert (message.body, message.headers) != (frame.body, headers_of(frame))
    assert message.headers.items() > headers_of(frame).items() or message.body != frame.body


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED)
def test_what_the_servlet_refuses_is_refused(
    activemq5: ActiveMQ5Server, name: str, sent: Sent
) -> None:
    with pytest.raises(HttpProblem):
        ours(sent, name)
    assert answer_of(activemq5, sent, name)[0] in (400, 500)
