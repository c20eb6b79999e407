"""The door's form of ActiveMQ, side by side with the message servlet of ActiveMQ 5.18.

The same request goes to both. A STOMP subscriber of the broker gets the same message from both,
unless the servlet loses a part of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote, urlencode

import pytest

from sam_pipeline.consumer.sources.door.activemq import ID_HEADER, SENT
from sam_pipeline.consumer.sources.door.exchange import FORM
from sam_pipeline.schema.identity.identity import IDENTITY
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.secret_file import basic_login
from tests.services.activemq5 import ActiveMQ5Server
from tests.services.broker import PASSWORD, USER
from tests.services.process import HOST
from tests.support.brokers.subscriber import subscribed
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.door import Door, listening, new_door, servlet_site
from tests.support.consumer.site import make_site

OF_DELIVERY = {
    *("subscription", "message-id", "timestamp", "content-length", "JMSXUserID", IDENTITY)
}
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
        **{"content-type": "application/json", "x-y": "1", "1": "2"},
    ),
    "parameters in the URL": form("?type=topic&clientId=c&note=ü%20&p", body="x"),
    "a body in the URL": Sent(b"", "?type=topic&body=a+b%0A", ""),
    "two bodies": Sent(b"body=one&body=two"),
    "no kind": form("", body="x"),
    "a path of a name": form(path="a/NAME", body="x"),
    "a destination": form("?type=queue&destination=topic://NAME", path="", body="x"),
    "a destination in the form": form(path="other", body="x", destination="topic://NAME"),
    "parameters of JMS": form(
        body="x", JMSCorrelationID="c", JMSReplyTo="topic://r", JMSPriority="7"
    ),
    "a reply to a queue": form(body="x", JMSReplyTo="r", JMSExpiration="5"),
    "options of the servlet": form(body="x", sync="true", action="send", json="true", oneShot="1"),
    "150 kB": form(body="x" * 150_000),
}

LOST = {
    "the type and the line ends": Sent(b"a\r\nb", content_type="text/plain"),
    "all beyond 100 000 bytes": Sent(b"x" * 150_000, content_type="text/plain"),
    "a body without a type": Sent(b"hostName: a\n", content_type=""),
    "what follows a NUL": form(body="a\0b"),
    "both of a repeated parameter": Sent(b"body=x&note=1&note=2"),
    "the message if the broker is killed": form(body="x", JMSDeliveryMode="NON_PERSISTENT"),
}


@pytest.fixture
def name() -> str:
    return f"servlet.{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def door(activemq5: ActiveMQ5Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """A door in front of the same broker."""
    door = new_door()
    site = servlet_site(tmp_path_factory.mktemp("door"), door)
    with listening(site, door, "--to", activemq5.url):
        yield door


def answer_of(port: int, sent: Sent, name: str, method: str = "POST") -> tuple[int, str, str]:
    """Status, body and id of the message in the answer of the servlet or the door."""
    headers = {"Authorization": basic_login(USER, PASSWORD)}
    if sent.content_type:
        headers["Content-Type"] = sent.content_type
    target = quote(f"/api/message/{sent.path}{sent.query}".replace("NAME", name), safe="/?&=%+:")
    with closing(HTTPConnection(HOST, port, timeout=20)) as connection:
        connection.request(method, target, sent.body.replace(b"NAME", name.encode()), headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers.get(ID_HEADER, "")


def received(
    server: ActiveMQ5Server, port: int, sent: Sent, name: str, method: str = "POST"
) -> Message:
    """What a subscriber gets of a request, without what brokers and their connections add."""
    prefix = "a." if sent.path.startswith("a/") else ""
    with subscribed(server, f"/topic/{prefix}{name}") as frames:
        status, text, message_id = answer_of(port, sent, name, method)
        assert (status, text) == (200, SENT)
        assert message_id
        frame = next(frames)
    headers = {name: value for name, value in frame.headers.items() if name not in OF_DELIVERY}
    return Message(headers, frame.body)


@pytest.mark.parametrize("sent", SAME.values(), ids=SAME)
def test_the_message_is_that_of_the_servlet(
    activemq5: ActiveMQ5Server, door: Door, name: str, sent: Sent
) -> None:
    ours = received(activemq5, door.port, sent, name)

    assert ours == received(activemq5, activemq5.rest_port, sent, name)
    assert ours == received(activemq5, door.port, sent, name, "PUT")


@pytest.mark.parametrize("sent", LOST.values(), ids=LOST)
def test_what_the_servlet_loses_is_kept(
    activemq5: ActiveMQ5Server, door: Door, name: str, sent: Sent
) -> None:
    ours = received(activemq5, door.port, sent, name)
    theirs = received(activemq5, activemq5.rest_port, sent, name)

    assert theirs.headers.items() <= ours.headers.items()
    assert len(ours.headers) > len(theirs.headers) or len(ours.body) > len(theirs.body)
    if sent.content_type == FORM:
        assert ours.body.startswith(theirs.body)
    else:
        assert ours.body == sent.body
        lines = sent.body.replace(b"\r\n", b"\n").removesuffix(b"\n")
        assert theirs.body == (lines[:MAX_BYTES] + b"\n" if sent.content_type else b"")


@pytest.mark.parametrize("message_id", ["i" * 5000, "a\r\nSet-Cookie: b", "ü\0"])
def test_the_id_of_a_message_is_harmless_in_answers(door: Door, name: str, message_id: str) -> None:
    status, text, shown = answer_of(door.port, form(body="x", samMessageId=message_id), name)

    assert (status, text) == (200, SENT)
    assert message_id.startswith(unquote(shown)) and 0 < len(shown) < 1000


def test_a_client_that_unsubscribes_sends_nothing_and_nothing_can_be_read(
    activemq5: ActiveMQ5Server, door: Door, name: str
) -> None:
    with subscribed(activemq5, f"/topic/{name}") as frames:
        goodbye = answer_of(door.port, form(action="unsubscribe", clientId="c"), name)
        answer_of(door.port, form(body="next"), name)

        assert goodbye[:2] == (200, "")
        assert next(frames).body == b"next"
    for method in ("GET", "DELETE"):
        assert answer_of(door.port, Sent(b"", content_type=""), name, method)[0] == 405


def test_a_message_without_a_class_has_that_of_its_destination(tmp_path: Path) -> None:
    """The consumer of the broker had added it; a door in front of the database does it, too."""
    door = new_door()
    destination = "/topic/site.results"
    site = make_site(tmp_path, f"sqlite:///{tmp_path / 'sam.db'}", [door.listen_url], destination)
    site.config.write_text(f'{site.config.read_text()}rename = {{ test = "metricName" }}\n')
    text = metric_message(metric_result(metricName="org.sam.Old")).body.decode()
    foreign = text.replace("metricName:", "test:")

    with listening(site, door):
        answer = answer_of(door.port, form(path="site.results", body=foreign), "")
        other = answer_of(door.port, form(path="site.other", body=foreign), "")

    assert [answer[0], other[0]] == [200, 200]
    assert site.column("SELECT metricName FROM metricOutput") == ["org.sam.Old"]
    assert site.column("SELECT reason FROM dead_letter") == ["unknown-class"]
