"""Publishing to real brokers: what a receipt is worth, and what they refuse."""

from __future__ import annotations

import os
import queue
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import stomp

from publisher import PublisherConfig, publish
from publisher.drain import drain
from schema.message import Message
from schema.spool import DirectoryQueue
from tests.builders import metric_message
from tests.services.activemq import ActiveMQServer
from tests.services.rabbitmq import RabbitMQServer

RealBroker = ActiveMQServer | RabbitMQServer
WAIT_S = 20.0


@pytest.fixture(params=["activemq", "rabbitmq"])
def broker(request: pytest.FixtureRequest) -> RealBroker:
    server: RealBroker = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def spool(tmp_path: Path) -> DirectoryQueue:
    return DirectoryQueue(tmp_path / "spool")


@pytest.fixture
def destination() -> str:
    return f"/queue/publish-{uuid.uuid4().hex}"


def config_for(spool: DirectoryQueue, *urls: str, timeout_s: float = 10.0) -> PublisherConfig:
    return PublisherConfig(brokers=urls, spool=spool.path, timeout_s=timeout_s)


def messages_for(destination: str, count: int) -> list[Message]:
    return [metric_message(destination=destination) for _ in range(count)]


def test_a_published_message_arrives_unchanged(
    broker: RealBroker, spool: DirectoryQueue, destination: str
) -> None:
    message = metric_message(destination=destination, **{"x-note": "a:b\\c"})

    publish([message], config_for(spool, broker.url))

    (frame,) = received(broker, destination, 1)
    assert frame.body == message.body
    for name in ("messageClass", "recordCount", "samMessageId", "content-type", "x-note"):
        assert frame.headers[name] == message.headers[name]


def test_bytes_that_are_no_text_arrive_unchanged(
    broker: RealBroker, spool: DirectoryQueue, destination: str
) -> None:
    message = Message({"destination": destination, "messageClass": "x"}, bytes(range(256)))

    publish([message], config_for(spool, broker.url))

    (frame,) = received(broker, destination, 1)
    assert frame.body == bytes(range(256))


def test_many_messages_arrive_once(
    broker: RealBroker, spool: DirectoryQueue, destination: str
) -> None:
    messages = messages_for(destination, 1234)

    publication = publish(messages, config_for(spool, broker.url))

    frames = received(broker, destination, 1234)
    assert len(publication.receipts) == 1234
    assert sorted(ids(frames)) == sorted(message.message_id for message in messages)


def test_what_was_confirmed_survives_the_death_of_the_broker(
    broker: RealBroker, spool: DirectoryQueue, destination: str
) -> None:
    single, many = messages_for(destination, 1), messages_for(destination, 250)

    for messages in (single, many):
        publication = publish(messages, config_for(spool, broker.url))
        assert len(publication.receipts) == len(messages)
    broker.restart()  # with SIGKILL

    frames = received(broker, destination, 251)
    assert set(ids(frames)) == {message.message_id for message in single + many}


def test_a_message_the_broker_refuses_is_spooled_and_its_neighbours_arrive(
    broker: RealBroker, spool: DirectoryQueue, destination: str
) -> None:
    messages = messages_for(destination, 30)
    messages[12] = refused = refused_by(broker, destination)

    publication = publish(messages, config_for(spool, broker.url))

    frames = received(broker, destination, 29)
    assert set(ids(frames)) == {message.message_id for message in messages} - {refused.message_id}
    assert [item.message.message_id for item in publication.rejections] == [refused.message_id]
    assert [spool.read(name).message_id for name in spool.names()] == [refused.message_id]


def test_a_login_is_used_and_a_wrong_one_makes_the_broker_unavailable(
    broker: RealBroker, spool: DirectoryQueue, destination: str, tmp_path: Path
) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text(f"{broker.password}\n")
    wrong.write_text("guessed")
    messages = messages_for(destination, 2)

    for message, file in zip(messages, (wrong, right), strict=True):
        config = PublisherConfig((broker.url_with_user,), spool.path, password_file=file)
        publication = publish([message], config)

    assert publication.drained == 1  # what the wrong password left in the spool
    assert len(received(broker, destination, 2)) == 2


def test_a_backlog_in_the_spool_is_drained(
    broker: RealBroker, spool: DirectoryQueue, destination: str
) -> None:
    messages = messages_for(destination, 600)
    for message in messages:
        spool.add(message)

    result = drain(config_for(spool, broker.url))

    frames = received(broker, destination, 600)
    assert result.sent == 600
    assert spool.count() == 0
    assert set(ids(frames)) == {message.message_id for message in messages}


def test_a_frozen_broker_costs_the_deadline_and_the_message_is_spooled_once(
    activemq: ActiveMQServer, spool: DirectoryQueue, destination: str
) -> None:
    (message,) = messages_for(destination, 1)
    config = config_for(spool, activemq.url, timeout_s=1.0)

    with frozen(activemq):
        started = time.monotonic()
        publish([message], config)
        elapsed_s = time.monotonic() - started

    assert elapsed_s < 2.0
    assert [spool.read(name).message_id for name in spool.names()] == [message.message_id]
    assert drain(config_for(spool, activemq.url)).sent == 1
    assert message.message_id in ids(received(activemq, destination, 1))


def refused_by(server: RealBroker, destination: str) -> Message:
    if isinstance(server, ActiveMQServer):
        return metric_message(destination=destination, long="x" * 20_000)
    return metric_message(destination="/exchange/no-such/key")


@contextmanager
def frozen(server: ActiveMQServer) -> Iterator[None]:
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


def ids(frames: list[Any]) -> list[str]:
    return [frame.headers["samMessageId"] for frame in frames]


def received(server: RealBroker, destination: str, count: int) -> list[Any]:
    """So many frames of a queue, and those that came soon after."""
    arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
    connection = stomp.Connection12(
        [(server.host, server.port)], vhost="/", auto_decode=False, try_loopback_connect=False
    )
    connection.set_listener("test", _Listener(arrived))
    connection.connect()
    connection.subscribe(destination, id="1", ack="auto")
    frames = [arrived.get(timeout=WAIT_S) for _ in range(count)]
    try:
        while True:
            frames.append(arrived.get(timeout=0.2))
    except queue.Empty:
        return frames
    finally:
        connection.transport.disconnect_socket()


class _Listener(stomp.ConnectionListener):  # type: ignore[misc]
    def __init__(self, arrived: queue.SimpleQueue[Any]) -> None:
        self._arrived = arrived

    def on_message(self, frame: Any) -> None:
        self._arrived.put(frame)
