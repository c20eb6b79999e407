"""The kinds that use HTTP, against small servers: requests, and what counts as confirmed."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.transport import kind_of
from sam_pipeline.publisher.errors import BrokerUnavailable, MessageRejected
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker_url import parse_broker
from sam_pipeline.schema.net.deadline import Deadline
from tests.support.brokers.ams_stand_in import TOKEN, AmsStandIn
from tests.support.brokers.http_stand_in import Asked, HttpStandIn, json_reply, reply
from tests.support.brokers.sending import rejection_of, sent_to
from tests.support.brokers.stand_in import HOST
from tests.support.builders import metric_message, metric_result

TOPIC = "/topic/grid.probe.metricOutput"
SENT = reply(200, b"Message sent", messageID="ID:1")
ROUTED = json_reply(200, {"routed": True})


@pytest.fixture(autouse=True)
def no_secrets_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SAM_PUBLISHER_PASSWORD", "SAM_PUBLISHER_TOKEN", "BEARER_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def ams() -> Iterator[AmsStandIn]:
    with AmsStandIn() as server:
        yield server


@pytest.fixture
def ams_config(ams: AmsStandIn, tmp_path: Path) -> PublisherConfig:
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    token.chmod(0o600)
    return PublisherConfig((ams.url,), token_file=token, ca_file=ams.write_ca(tmp_path / "ca.pem"))


def message_to(destination: str = TOPIC, body: bytes | None = None, **headers: str) -> Message:
    message = metric_message(destination=destination, **headers)
    return message if body is None else Message(message.headers, body)


def activemq_url(server: HttpStandIn) -> str:
    return f"activemq-rest+http://{HOST}:{server.port}/api/message"


def rabbitmq_url(server: HttpStandIn, path: str = "%2F/amq.topic") -> str:
    return f"rabbitmq-api+http://{HOST}:{server.port}/{path}"


def answering(*answers: bytes) -> Callable[[Asked], bytes]:
    """These answers in order, the last one repeatedly."""
    left = list(answers)
    return lambda request: left.pop(0) if len(left) > 1 else left[0]


def posts(server: HttpStandIn) -> list[Asked]:
    return [request for request in server.asked if b"unsubscribe" not in request.body]


# ActiveMQ's message servlet


def test_the_servlet_gets_a_message_as_a_form() -> None:
    message = message_to(body="a: b+c&d=e %41\r\n€\U0001f600\n".encode(), nagios_host="n:1")

    with HttpStandIn(answering(SENT)) as server:
        assert sent_to(activemq_url(server), [message]) == {0: None}

    (request,) = posts(server)
    path, _, query = request.target.partition("?")
    assert (request.method, path) == ("POST", "/api/message/grid.probe.metricOutput")
    assert query.startswith("type=topic&clientId=sam-")
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert request.form["body"].encode() == message.body
    for name in ("messageClass", "recordCount", "samMessageId", "content-type", "nagios_host"):
        assert request.form[name] == message.headers[name]
    assert not {"destination", "persistent"} & request.form.keys()


def test_a_queue_is_posted_as_a_queue_to_the_servlet() -> None:
    with HttpStandIn(answering(SENT)) as server:
        sent_to(activemq_url(server), [message_to("/queue/in.box")])

    assert posts(server)[0].target.startswith("/api/message/in.box?type=queue&clientId=")


def test_headers_with_a_meaning_for_the_servlet_are_not_sent() -> None:
    theirs = {"action": "unsubscribe", "body": "x", "clientId": "y", "JMSDeliveryMode": "z"}
    message = message_to(type="t", note="kept")
    message = Message({**message.headers, **theirs}, message.body)

    with HttpStandIn(answering(SENT)) as server:
        sent_to(activemq_url(server), [message])

    form = server.asked[0].form
    assert form["note"] == "kept"
    assert form["body"] == message_to().body.decode()
    assert not {"action", "clientId", "JMSDeliveryMode", "type"} & form.keys()


def test_many_messages_share_a_connection_and_a_broker_session_that_is_ended() -> None:
    with HttpStandIn(answering(SENT)) as server:
        assert sent_to(activemq_url(server), [message_to()] * 20) == dict.fromkeys(range(20))

    clients = {request.target.partition("clientId=")[2] for request in server.asked}
    assert server.connections == 1
    assert len(clients) == 1
    assert server.asked[-1].form == {"action": "unsubscribe", "clientId": clients.pop()}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(reply(200, b"Message sent"), id="no id"),
        pytest.param(reply(200, b"", messageID="ID:1"), id="no words"),
        pytest.param(reply(200, b"<html><title>Log in"), id="a page"),
        pytest.param(reply(202, b"Message sent", messageID="ID:1"), id="another status"),
        pytest.param(reply(500, b"disk full"), id="fault"),
        pytest.param(reply(404), id="no servlet"),
        pytest.param(reply(403), id="forbidden"),
    ],
)
def test_only_the_text_and_an_id_of_the_servlet_confirm_a_message(answer: bytes) -> None:
    with HttpStandIn(answering(answer)) as server, pytest.raises(BrokerUnavailable):
        sent_to(activemq_url(server), [message_to()])


def test_a_missing_servlet_is_reported_with_the_versions_that_disable_it() -> None:
    with (
        HttpStandIn(answering(reply(404))) as server,
        pytest.raises(BrokerUnavailable, match=r"no message servlet there; .*5\.19\.7"),
    ):
        sent_to(activemq_url(server), [message_to()])


def test_a_message_that_the_servlet_refuses_does_not_affect_the_others() -> None:
    refusal = reply(500, b"<title>Error 500 javax.jms.JMSException: User x is not authorized to w")
    with HttpStandIn(answering(SENT, refusal, SENT)) as server:
        result = sent_to(activemq_url(server), [message_to()] * 3)

    assert result[0] is result[2] is None
    assert result[1] is not None and "User x is not authorized" in result[1]


@pytest.mark.parametrize(
    ("message", "stem"),
    [
        (message_to(body=b""), "the body is empty"),
        (message_to(body=b"\xff"), "the body is not UTF-8 text"),
        (message_to(body=b"a\0b"), "the body contains a NUL"),
        (message_to(body=b"x" * 200_000), "limit of 200000"),
        (message_to("/exchange/a/b"), "'/exchange/a/b' is neither /topic/NAME nor /queue/NAME"),
        (message_to("/topic/a/b"), "'/topic/a/b' is neither /topic/NAME"),
        (message_to("/topic/a?b"), "'/topic/a?b' is neither /topic/NAME"),
        (message_to("/topic/*"), "'/topic/*' is neither /topic/NAME"),
        (message_to("/topic/"), "'/topic/' is neither /topic/NAME"),
        (message_to("topic"), "'topic' is neither /topic/NAME"),
    ],
)
def test_a_message_that_the_servlet_would_change_is_never_posted(
    message: Message, stem: str
) -> None:
    with HttpStandIn(answering(SENT)) as server:
        assert stem in rejection_of(activemq_url(server), message)

    assert posts(server) == []


def test_a_default_message_fits_into_a_form_whatever_its_characters() -> None:
    message = message_to(body="ß".encode() * (32 * 1024))

    with HttpStandIn(answering(SENT)) as server:
        assert sent_to(activemq_url(server), [message]) == {0: None}


# RabbitMQ's management API


def test_the_api_gets_a_message_as_a_document() -> None:
    message = message_to(body="ß\n".encode(), nagios_host="n:1")

    with HttpStandIn(answering(ROUTED)) as server:
        assert sent_to(rabbitmq_url(server), [message]) == {0: None}

    (request,) = server.asked
    assert request.target == "/api/exchanges/%2F/amq.topic/publish"
    document = request.json
    headers = document["properties"].pop("headers")
    assert document == {
        "properties": {"delivery_mode": 2, "content_type": "text/plain; charset=utf-8"},
        "routing_key": "grid.probe.metricOutput",
        "payload": "ß\n",
        "payload_encoding": "string",
    }
    for name in ("messageClass", "recordCount", "samMessageId", "nagios_host"):
        assert headers[name] == message.headers[name]
    assert not {"destination", "persistent", "content-type"} & headers.keys()


def test_the_api_gets_a_binary_body_in_base64() -> None:
    with HttpStandIn(answering(ROUTED)) as server:
        sent_to(rabbitmq_url(server), [message_to(body=bytes(range(256)))])

    document = server.asked[0].json
    assert document["payload_encoding"] == "base64"
    assert base64.b64decode(document["payload"]) == bytes(range(256))


def test_a_queue_is_reached_through_the_default_exchange() -> None:
    with HttpStandIn(answering(ROUTED)) as server:
        sent_to(rabbitmq_url(server, "site/mine"), [message_to("/queue/in.box")])

    assert server.asked[0].target == "/api/exchanges/site/amq.default/publish"
    assert server.asked[0].json["routing_key"] == "in.box"


@pytest.mark.parametrize(
    ("destination", "stem"),
    [
        (TOPIC, "no queue is bound to amq.topic with the key grid.probe.metricOutput"),
        ("/queue/x", "there is no queue x"),
    ],
)
def test_a_message_that_was_not_routed_counts_as_rejected(destination: str, stem: str) -> None:
    lost = json_reply(200, {"routed": False})
    with HttpStandIn(answering(ROUTED, lost, ROUTED)) as server:
        result = sent_to(rabbitmq_url(server), [message_to(destination)] * 3)

    assert result[0] is result[2] is None
    assert stem in str(result[1])


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(reply(404), id="no such place"),
        pytest.param(reply(401), id="no login"),
        pytest.param(reply(500), id="fault"),
        pytest.param(reply(204), id="another status"),
        pytest.param(reply(200, b"no json"), id="no JSON"),
        pytest.param(reply(200, b"[]"), id="other JSON"),
    ],
)
def test_other_answers_of_the_api_make_the_broker_unavailable(answer: bytes) -> None:
    with HttpStandIn(answering(answer)) as server, pytest.raises(BrokerUnavailable):
        sent_to(rabbitmq_url(server), [message_to()])


def test_a_message_that_the_api_calls_bad_is_rejected_with_its_reason() -> None:
    bad = json_reply(400, {"error": "bad_request", "reason": "routing key too long"})
    with HttpStandIn(answering(bad)) as server:
        assert "routing key too long" in rejection_of(rabbitmq_url(server), message_to())


# ARGO Messaging


def test_many_messages_go_to_ams_in_few_calls(ams: AmsStandIn, ams_config: PublisherConfig) -> None:
    messages = [message_to(nagios_host=f"n{at}") for at in range(250)]

    assert sent_to(ams.url, messages, ams_config) == dict.fromkeys(range(250))

    stored = ams.stored["grid-probe-metricOutput"]
    assert ams.published == [100, 100, 50]
    assert ams.connections == 1
    assert [message.message_id for message in stored] == [sent.message_id for sent in messages]
    assert stored[7].body == messages[7].body
    for name in ("messageClass", "recordCount", "samMessageId", "content-type", "nagios_host"):
        assert stored[7].headers[name] == messages[7].headers[name]
    assert not {"destination", "persistent"} & stored[7].headers.keys()


def test_a_call_to_ams_holds_about_a_megabyte(ams: AmsStandIn, ams_config: PublisherConfig) -> None:
    messages = [message_to(body=b"\xff" * 300_000)] * 5

    assert sent_to(ams.url, messages, ams_config) == dict.fromkeys(range(5))

    assert ams.published == [2, 2, 1]
    assert max(len(request.body) for request in ams.asked) < 1_048_576


def test_a_message_that_ams_refuses_does_not_affect_the_others(
    ams: AmsStandIn, ams_config: PublisherConfig
) -> None:
    messages = [message_to() for _ in range(60)]
    messages[20] = too_large = message_to(body=b"x" * 1_100_000)
    ams.rejects = messages[41].message_id

    result = sent_to(ams.url, messages, ams_config)

    refused = {position for position, reason in result.items() if reason}
    stored = {message.message_id for message in ams.stored["grid-probe-metricOutput"]}
    assert refused == {20, 41}
    assert "413" in str(result[20]) and "too large" in str(result[20])
    assert "Invalid Message Arguments" in str(result[41])
    assert stored == {sent.message_id for sent in messages} - {ams.rejects, too_large.message_id}
    assert len(ams.asked) < 20


def test_a_topic_that_ams_refuses_is_tried_once_and_other_topics_are_published(
    ams: AmsStandIn, ams_config: PublisherConfig
) -> None:
    ams.topics += ("closed",)
    ams.forbidden = ("closed",)
    destinations = ("/topic/closed", TOPIC, "/topic/missing") * 40

    result = sent_to(ams.url, [message_to(where) for where in destinations], ams_config)

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
        (message_to(note="C:\\x"), "header note: AMS loses messages with a quote, backslash"),
    ],
)
def test_a_message_that_ams_cannot_carry_is_never_sent(
    ams: AmsStandIn, ams_config: PublisherConfig, message: Message, stem: str
) -> None:
    assert stem in rejection_of(ams.url, message, ams_config)

    assert ams.asked == []


def test_ams_confirms_nothing_without_an_id_for_each_message(
    ams: AmsStandIn, ams_config: PublisherConfig
) -> None:
    ams.answer = lambda request: json_reply(200, {"messageIds": ["1"]})

    with pytest.raises(BrokerUnavailable, match="without an id for each of 2 messages"):
        sent_to(ams.url, [message_to()] * 2, ams_config)


def test_a_missing_token_for_ams_is_reported_before_connecting(
    ams: AmsStandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    with pytest.raises(BrokerUnavailable, match="requires a token: the key token_file"):
        sent_to(ams.url, [message_to()], PublisherConfig((ams.url,)))

    assert ams.connections == 0


def test_a_wrong_token_makes_ams_unavailable_and_is_not_shown(
    ams: AmsStandIn, ams_config: PublisherConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAM_PUBLISHER_TOKEN", "canary-4711")

    with pytest.raises(BrokerUnavailable, match="401 Reason: Unauthorized") as caught:
        sent_to(ams.url, [message_to()], ams_config)

    assert ams.asked[0].headers["x-api-key"] == "canary-4711"
    assert "canary" not in repr(caught.value)


def test_a_tls_connection_closed_while_idle_is_opened_again(
    ams: AmsStandIn, ams_config: PublisherConfig
) -> None:
    ams.closes_when_idle = True
    address, deadline = BrokerAddress(parse_broker(ams.url), HOST), Deadline.after(10)

    with closing(kind_of(address.broker).connect(address, ams_config, deadline)) as transport:
        first = list(transport.send([message_to()], deadline))
        assert ams.closed.wait(10)
        second = list(transport.send([message_to()], deadline))

    assert first == second == [0]
    assert ams.connections == 2


def test_a_check_of_ams_needs_a_topic_that_exists(
    ams: AmsStandIn, ams_config: PublisherConfig
) -> None:
    address, deadline = BrokerAddress(parse_broker(ams.url), HOST), Deadline.after(10)
    round_trip = kind_of(address.broker).round_trip

    proof = round_trip(address, ams_config, message_to(), deadline)

    assert proof.startswith("confirmed: the topic exists")
    with pytest.raises(MessageRejected, match="topic missing: 404 Reason: Topic doesn't exist"):
        round_trip(address, ams_config, message_to("/topic/missing"), deadline)


# What a dry run prints


@pytest.mark.parametrize(
    "url",
    [
        "activemq-rest+http://sam@broker.example.org/api/message",
        "rabbitmq-api+https://sam@broker.example.org/%2F/amq.topic",
        "ams+https://broker.example.org/v1/projects/P",
    ],
)
def test_a_preview_is_the_request_with_hidden_secrets(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAM_PUBLISHER_PASSWORD", "canary")
    monkeypatch.setenv("SAM_PUBLISHER_TOKEN", "canary")
    broker, message = parse_broker(url), message_to()

    shown = kind_of(broker).preview(broker, PublisherConfig((url,)), message)

    head, _, body = shown.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0].startswith("POST /") and lines[0].endswith(" HTTP/1.1")
    assert f"Content-Length: {len(body) - 1}" in lines
    assert any(line.endswith(": ***") for line in lines)
    assert message.message_id in body.decode()
    assert b"canary" not in shown
    assert base64.b64encode(b"sam:canary") not in shown


def test_a_preview_of_an_unsendable_message_gives_the_reason() -> None:
    broker = parse_broker("activemq-rest+http://broker.example.org/api/message")

    with pytest.raises(MessageRejected, match="the body is empty"):
        kind_of(broker).preview(broker, PublisherConfig(), message_to(body=b""))


def test_the_body_of_a_preview_is_what_is_sent() -> None:
    message = metric_message(metric_result(), destination=TOPIC)
    with HttpStandIn(answering(ROUTED)) as server:
        url = rabbitmq_url(server)
        shown = kind_of(parse_broker(url)).preview(parse_broker(url), PublisherConfig(), message)
        sent_to(url, [message])

    assert json.loads(shown.partition(b"\r\n\r\n")[2]) == server.asked[0].json
