"""The kinds that use HTTP, against small servers: requests, and what counts as confirmed."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from sam_pipeline.publisher.brokers.transport import kind_of
from sam_pipeline.publisher.errors import BrokerUnavailable, MessageRejected
from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.deadline import Deadline
from tests.support.brokers.ams_stand_in import TOKEN, AmsStandIn
from tests.support.brokers.http_stand_in import Asked, HttpStandIn, json_reply, reply
from tests.support.brokers.stand_in import HOST
from tests.support.builders import metric_message
from tests.support.publishing import TOPIC, ids, rejection_of, secret, sent_to

SENT = reply(200, b"Message sent", messageID="ID:1")
ROUTED, DROPPED = (json_reply(200, {"routed": routed}) for routed in (True, False))
OURS = ("messageClass", "recordCount", "samMessageId", "nagios_host")


@pytest.fixture
def ams() -> Iterator[AmsStandIn]:
    with AmsStandIn() as server:
        yield server


def to_ams(ams: AmsStandIn, sent: Sequence[Message]) -> dict[int, str | None]:
    return sent_to(ams.url, sent, ams_config(ams))


def ams_config(ams: AmsStandIn) -> PublisherConfig:
    token, ca = secret(Path("token"), TOKEN), ams.write_ca(Path("ca.pem"))
    return PublisherConfig(brokers=(ams.url,), token_file=token, ca_file=ca)


def message_to(destination: str = TOPIC, body: bytes | None = None, **headers: str) -> Message:
    message = metric_message(destination=destination, **headers)
    return message if body is None else Message(message.headers, body)


def servlet(server: HttpStandIn) -> str:
    return f"activemq-rest+http://{HOST}:{server.port}/api/message"


def api(server: HttpStandIn, path: str = "%2F/amq.topic") -> str:
    return f"rabbitmq-api+http://{HOST}:{server.port}/{path}"


def answering(*answers: bytes) -> HttpStandIn:
    """These answers in order, the last one repeatedly."""
    left = list(answers)
    return HttpStandIn(lambda request: left.pop(0) if len(left) > 1 else left[0])


def posts(server: HttpStandIn) -> list[Asked]:
    return [request for request in server.asked if b"unsubscribe" not in request.body]


def test_the_servlet_gets_a_message_as_a_form_without_headers_that_it_would_act_on() -> None:
    theirs = {"action": "unsubscribe", "body": "x", "clientId": "y", "JMSDeliveryMode": "z"}
    message = message_to(body="a: b+c&d=e %41\r\n€\U0001f600\n".encode(), nagios_host="n:1")
    sent = [Message({**message.headers, **theirs, "type": "t"}, message.body)]

    with answering(SENT) as server:
        assert sent_to(servlet(server), sent) == {0: None}
        sent_to(servlet(server), [message_to("/queue/in.box")])

    request, of_queue = posts(server)
    path, _, query = request.target.partition("?")
    assert (request.method, path) == ("POST", "/api/message/grid.probe.metricOutput")
    assert query.startswith("type=topic&clientId=sam-")
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert request.form["body"].encode() == message.body
    for name in (*OURS, "content-type"):
        assert request.form[name] == message.headers[name]
    forbidden = {"destination", "persistent", "type", *theirs.keys() - {"body"}}
    assert not forbidden & request.form.keys()
    assert of_queue.target.startswith("/api/message/in.box?type=queue&clientId=")


def test_many_messages_share_a_connection_and_a_broker_session_that_is_ended() -> None:
    with answering(SENT) as server:
        assert sent_to(servlet(server), [message_to()] * 20) == dict.fromkeys(range(20))

    (client,) = {request.target.partition("clientId=")[2] for request in server.asked}
    assert server.connections == 1
    assert server.asked[-1].form == {"action": "unsubscribe", "clientId": client}


@pytest.mark.parametrize(
    ("message", "stem"),
    [
        (message_to(body=b""), "the body is empty"),
        (message_to(body=b"\xff"), "the body is not UTF-8 text"),
        (message_to(body=b"a\0b"), "the body contains a NUL"),
        (message_to(body=b"x" * 200_000), "limit of 200000"),
        (message_to("/exchange/a/b"), "'/exchange/a/b' is neither /topic/NAME nor /queue/NAME"),
        (message_to("/topic/a?b"), "'/topic/a?b' is neither /topic/NAME"),
        (message_to("/topic/"), "'/topic/' is neither /topic/NAME"),
    ],
)
def test_what_the_servlet_would_change_is_never_posted(message: Message, stem: str) -> None:
    with answering(SENT) as server:
        assert stem in rejection_of(servlet(server), message)

    assert posts(server) == []


def test_the_api_gets_a_message_as_a_document() -> None:
    message = message_to(body="ß\n".encode(), nagios_host="n:1")
    binary = message_to("/queue/in.box", body=bytes(range(256)))

    with answering(ROUTED) as server:
        assert sent_to(api(server), [message]) == {0: None}
        sent_to(api(server, "site/mine"), [binary])

    request, of_queue = server.asked
    assert request.target == "/api/exchanges/%2F/amq.topic/publish"
    document = request.json
    headers = document["properties"].pop("headers")
    assert document == {
        "properties": {"delivery_mode": 2, "content_type": "text/plain; charset=utf-8"},
        "routing_key": "grid.probe.metricOutput",
        "payload": "ß\n",
        "payload_encoding": "string",
    }
    for name in OURS:
        assert headers[name] == message.headers[name]
    assert not {"destination", "persistent", "content-type"} & headers.keys()
    # A queue is reached through the default exchange.
    assert of_queue.target == "/api/exchanges/site/amq.default/publish"
    assert (of_queue.json["routing_key"], of_queue.json["payload_encoding"]) == ("in.box", "base64")
    assert base64.b64decode(of_queue.json["payload"]) == bytes(range(256))


@pytest.mark.parametrize(
    ("url_of", "answer", "stem"),
    [
        (servlet, reply(200, b"Message sent"), "unexpected answer"),
        (servlet, reply(200, b"", messageID="ID:1"), "unexpected answer"),
        (servlet, reply(200, b"<html><title>Log in"), "unexpected answer"),
        (servlet, reply(202, b"Message sent", messageID="ID:1"), "202"),
        (servlet, reply(500, b"disk full"), "disk full"),
        (servlet, reply(404), "no message servlet there; disabled by default since 5.19.7"),
        (api, reply(404), "no such virtual host"),
        (api, reply(204), "204"),
        (api, reply(200, b"no json"), "not JSON"),
        (api, reply(200, b"[]"), "unexpected answer"),
    ],
)
def test_only_the_answer_to_a_stored_message_confirms_it(
    url_of: Callable[[HttpStandIn], str], answer: bytes, stem: str
) -> None:
    with answering(answer) as server, pytest.raises(BrokerUnavailable, match=stem):
        sent_to(url_of(server), [message_to()])


DENIED = reply(500, b"<title>Error 500 javax.jms.JMSException: User x is not authorized</title>")
BAD = json_reply(400, {"error": "bad_request", "reason": "routing key too long"})


@pytest.mark.parametrize(
    ("url_of", "good", "refusal", "destination", "stem"),
    [
        (servlet, SENT, DENIED, TOPIC, "500 Reason: User x is not authorized"),
        (api, ROUTED, BAD, TOPIC, "routing key too long"),
        (api, ROUTED, DROPPED, TOPIC, "no queue is bound to amq.topic with the key grid.probe.m"),
        (api, ROUTED, DROPPED, "/queue/x", "there is no queue x"),
    ],
)
def test_a_message_that_is_refused_does_not_affect_the_others(
    url_of: Callable[[HttpStandIn], str], good: bytes, refusal: bytes, destination: str, stem: str
) -> None:
    with answering(good, refusal, good) as server:
        result = sent_to(url_of(server), [message_to(destination)] * 3)

    assert result[0] is result[2] is None
    assert stem in str(result[1])


def test_many_messages_go_to_ams_in_few_calls_of_about_a_megabyte(ams: AmsStandIn) -> None:
    messages = [message_to(nagios_host=f"n{at}") for at in range(250)]
    large = [message_to(body=b"\xff" * 300_000)] * 5

    assert to_ams(ams, messages) == dict.fromkeys(range(250))
    assert ams.connections == 1
    assert to_ams(ams, large) == dict.fromkeys(range(5))

    stored = ams.stored["grid-probe-metricOutput"]
    assert ams.published == [100, 100, 50, 2, 2, 1]
    assert max(len(request.body) for request in ams.asked) < 1_048_576
    assert ids(stored[:250]) == ids(messages)
    assert stored[7].body == messages[7].body
    for name in (*OURS, "content-type"):
        assert stored[7].headers[name] == messages[7].headers[name]
    assert not {"destination", "persistent"} & stored[7].headers.keys()


def test_a_message_that_ams_refuses_does_not_affect_the_others(ams: AmsStandIn) -> None:
    messages = [message_to() for _ in range(60)]
    messages[20] = too_large = message_to(body=b"x" * 1_100_000)
    ams.rejects = messages[41].message_id

    result = to_ams(ams, messages)

    stored = {*ids(ams.stored["grid-probe-metricOutput"])}
    assert {position for position, reason in result.items() if reason} == {20, 41}
    assert "413" in str(result[20]) and "too large" in str(result[20])
    assert "Invalid Message Arguments" in str(result[41])
    assert stored == {*ids(messages)} - {ams.rejects, too_large.message_id}
    assert len(ams.asked) < 20


def test_a_topic_that_ams_refuses_is_tried_once(ams: AmsStandIn) -> None:
    ams.topics += ("closed",)
    ams.forbidden = ("closed",)
    destinations = ("/topic/closed", TOPIC, "/topic/missing") * 40

    result = to_ams(ams, [message_to(where) for where in destinations])

    assert len(ams.stored["grid-probe-metricOutput"]) == 40
    assert all(result[at] is None for at in range(1, 120, 3))
    assert all("topic closed: 403" in str(result[at]) for at in range(0, 120, 3))
    assert all("Topic doesn't exist" in str(result[at]) for at in range(2, 120, 3))
    assert len(ams.asked) == 3


@pytest.mark.parametrize(
    ("message", "stem"),
    [
        (message_to("/queue/x"), "AMS has only topics"),
        (message_to("/topic/a:b"), "topic a:b: AMS allows only letters, digits, - and _"),
        (message_to(note='say "x"'), "header note: AMS loses messages with a quote"),
    ],
)
def test_what_ams_cannot_carry_is_never_sent(ams: AmsStandIn, message: Message, stem: str) -> None:
    assert stem in str(to_ams(ams, [message])[0])

    assert ams.asked == []


def test_ams_confirms_nothing_without_an_id_for_each_message(ams: AmsStandIn) -> None:
    ams.answer = lambda request: json_reply(200, {"messageIds": ["1"]})

    with pytest.raises(BrokerUnavailable, match="without an id for each of 2 messages"):
        to_ams(ams, [message_to()] * 2)


def test_a_check_of_ams_needs_a_topic_that_exists(ams: AmsStandIn) -> None:
    target = ams_config(ams).targets[0]._replace(ip=HOST)
    deadline = Deadline.after(30)
    round_trip = kind_of(target.broker).round_trip

    proof = round_trip(target, message_to(), deadline)

    assert proof.startswith("confirmed: the topic exists")
    with pytest.raises(MessageRejected, match="topic missing: 404 Reason: Topic doesn't exist"):
        round_trip(target, message_to("/topic/missing"), deadline)
