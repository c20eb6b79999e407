"""Publishing over HTTP to real brokers, as seen by a STOMP subscriber."""

from __future__ import annotations

import os
import signal
import time
import uuid
from pathlib import Path

import pytest

from sam_pipeline.publisher.api import publish_record
from sam_pipeline.publisher.delivery.publish import publish
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.errors import MessageRefused
from sam_pipeline.schema.identity.keys import make_key
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.channel import NO_ANSWER
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services.activemq5 import ActiveMQ5Server
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.choice import on_brokers
from tests.support.brokers.subscriber import subscribed
from tests.support.builders import metric_message, metric_result
from tests.support.signatures import signer_of

Server = ActiveMQ5Server | RabbitMQServer
OURS = ("messageClass", "recordCount", "samMessageId", "content-type", "x-note", "nagios_host")


over_http = on_brokers("activemq5", "rabbitmq")


@pytest.fixture
def spool(tmp_path: Path) -> DirectoryQueue:
    return DirectoryQueue(tmp_path / "spool")


@pytest.fixture
def name() -> str:
    return f"rest.{uuid.uuid4().hex}"


def rest_url(server: Server) -> str:
    return server.rest_url if isinstance(server, ActiveMQ5Server) else server.api_url


def config_for(server: Server, spool: DirectoryQueue, password: str = "") -> PublisherConfig:
    file = spool.path.with_name("password")
    file.touch(mode=0o600)
    file.write_text(password or server.password)
    return PublisherConfig((rest_url(server),), spool=spool.path, password_file=file)


def message_with_headers(destination: str, body: str | None = None) -> Message:
    headers = {"x-note": "a:b\\c ü\n+&=%", "nagios_host": "n.example.org"}
    message = metric_message(destination=destination, **headers)
    return message if body is None else Message(message.headers, body.encode())


@over_http
def test_a_subscriber_receives_body_and_headers_as_published(
    broker: Server, spool: DirectoryQueue, name: str
) -> None:
    message = message_with_headers(f"/topic/{name}", "lines\r\n\tß€\U0001f600 a+b&c=d;%41\n\n")

    with subscribed(broker, f"/topic/{name}") as frames:
        publication = publish([message], config_for(broker, spool))
        frame = next(frames)

    assert len(publication.receipts) == 1
    assert frame.body == message.body
    assert frame.headers["persistent"] == "true"
    for header in OURS:
        assert frame.headers[header] == message.headers[header]


@over_http
def test_a_signature_is_good_as_it_arrives(
    broker: Server, spool: DirectoryQueue, name: str, tmp_path: Path
) -> None:
    key = tmp_path / "nagios1.pem"
    make_key(key)
    message = message_with_headers(f"/topic/{name}", "lines\r\n\tß€\U0001f600 a+b&c=d;%41\n\n")

    with subscribed(broker, f"/topic/{name}") as frames:
        publish([message], config_for(broker, spool)._replace(signing_key_file=key))
        frame = next(frames)

    assert signer_of(key, Message(frame.headers, frame.body)) == "nagios1"


def test_messages_confirmed_by_the_servlet_survive_a_broker_crash(
    activemq5: ActiveMQ5Server, spool: DirectoryQueue, name: str
) -> None:
    message = message_with_headers(f"/queue/{name}")

    publish([message], config_for(activemq5, spool))
    activemq5.restart()  # with SIGKILL

    with subscribed(activemq5, f"/queue/{name}") as frames:
        frame = next(frames)
    assert frame.headers["samMessageId"] == message.message_id
    assert frame.body == message.body


@over_http
def test_a_message_reaches_a_queue_that_a_subscriber_created(
    broker: Server, spool: DirectoryQueue, name: str
) -> None:
    message = message_with_headers(f"/queue/{name}")

    with subscribed(broker, f"/queue/{name}") as frames:
        publish([message], config_for(broker, spool))

        assert next(frames).headers["samMessageId"] == message.message_id


@over_http
def test_many_messages_arrive_once_over_one_connection(
    broker: Server, spool: DirectoryQueue, name: str
) -> None:
    messages = [metric_message(destination=f"/topic/{name}") for _ in range(300)]

    with subscribed(broker, f"/topic/{name}") as frames:
        publication = publish(messages, config_for(broker, spool))
        ids = [next(frames).headers["samMessageId"] for _ in messages]

    assert len(publication.receipts) == 300
    assert ids == [message.message_id for message in messages]
    assert spool.count() == 0


@over_http
def test_a_wrong_password_is_reported_and_the_message_is_spooled(
    broker: Server, spool: DirectoryQueue, name: str
) -> None:
    config = config_for(broker, spool, password="canary")

    publication = publish([metric_message(destination=f"/topic/{name}")], config)

    (failure,) = publication.failures
    assert "401" in failure.reason
    assert "rejected this login" in failure.reason
    assert "canary" not in str(failure)
    assert spool.count() == 1


def test_a_message_for_a_frozen_servlet_is_spooled_once_at_the_deadline(
    activemq5: ActiveMQ5Server, spool: DirectoryQueue, name: str
) -> None:
    message = metric_message(destination=f"/topic/{name}")
    config = config_for(activemq5, spool)._replace(timeout_s=1.0)

    os.kill(activemq5.process.pid, signal.SIGSTOP)
    started = time.monotonic()
    try:
        publication = publish([message], config)
        elapsed_s = time.monotonic() - started
    finally:
        os.kill(activemq5.process.pid, signal.SIGCONT)

    assert NO_ANSWER in publication.failures[0].reason
    assert elapsed_s < 2
    assert [spool.read(element).message_id for element in spool.names()] == [message.message_id]


def test_a_form_above_the_servlet_limit_is_refused_without_being_sent_or_spooled(
    activemq5: ActiveMQ5Server, spool: DirectoryQueue, name: str
) -> None:
    config = config_for(activemq5, spool)
    fits, too_long = (
        message_with_headers(f"/topic/{name}", "x" * size) for size in (199_000, 200_000)
    )

    with subscribed(activemq5, f"/topic/{name}") as frames:
        with pytest.raises(MessageRefused, match="limit of 200000"):
            publish([too_long], config)
        publish([fits], config)
        assert next(frames).body == fits.body

    assert spool.count() == 0


def test_details_that_are_too_large_for_the_servlet_arrive_shortened(
    activemq5: ActiveMQ5Server, spool: DirectoryQueue, name: str
) -> None:
    config = config_for(activemq5, spool)._replace(destination=f"/topic/{name}")

    with subscribed(activemq5, f"/topic/{name}") as frames:
        publish_record(metric_result(detailsData="a b\n" * 60_000), config)
        body = next(frames).body

    assert body.endswith(b" bytes were left out here]\nEOT\n")
    assert len(body) > 100_001  # where a raw body would be cut


def test_a_missing_servlet_makes_the_broker_unavailable(
    activemq5: ActiveMQ5Server, spool: DirectoryQueue, name: str
) -> None:
    config = config_for(activemq5, spool)
    url = activemq5.rest_url.replace("/message", "/nothing")

    publication = publish(
        [metric_message(destination=f"/topic/{name}")],
        PublisherConfig((url,), spool=spool.path, password_file=config.password_file),
    )

    assert "404 Not Found" in publication.failures[0].reason
    assert "no message servlet" in publication.failures[0].reason
    assert spool.count() == 1


def test_messages_that_rabbitmq_cannot_route_are_spooled_with_a_reason(
    rabbitmq: RabbitMQServer, spool: DirectoryQueue, name: str
) -> None:
    messages = [metric_message(destination=f"/{kind}/{name}") for kind in ("topic", "queue")]

    publication = publish(messages, config_for(rabbitmq, spool))

    reasons = [rejection.reason for rejection in publication.rejections]
    assert publication.receipts == ()
    assert "no queue is bound" in reasons[0]
    assert f"no queue {name}" in reasons[1]
    assert name in reasons[0]
    assert spool.count() == 2


def test_a_binary_body_reaches_a_subscriber_of_rabbitmq(
    rabbitmq: RabbitMQServer, spool: DirectoryQueue, name: str
) -> None:
    message = metric_message(destination=f"/topic/{name}")
    message = Message(message.headers, bytes(range(256)))

    with subscribed(rabbitmq, f"/topic/{name}") as frames:
        publish([message], config_for(rabbitmq, spool))

        assert next(frames).body == bytes(range(256))


def test_a_missing_exchange_makes_rabbitmq_unavailable(
    rabbitmq: RabbitMQServer, spool: DirectoryQueue, name: str
) -> None:
    config = config_for(rabbitmq, spool)
    url = rabbitmq.api_url.replace("amq.topic", "missing")

    publication = publish(
        [metric_message(destination=f"/topic/{name}")],
        PublisherConfig((url,), spool=spool.path, password_file=config.password_file),
    )

    assert "404" in publication.failures[0].reason
    assert "exchange" in publication.failures[0].reason
