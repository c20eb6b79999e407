"""Publishing to real brokers: what a receipt guarantees, and what brokers refuse."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from sam_pipeline.publisher import PublisherConfig, publish
from sam_pipeline.publisher.delivery.drain import drain
from sam_pipeline.schema.identity.keys import make_key
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services import needed
from tests.services.activemq import ActiveMQServer
from tests.services.artemis import FORBIDDEN, ArtemisServer
from tests.services.broker import StompServer
from tests.services.brokers import BROKERS
from tests.services.process import last_lines
from tests.support.brokers.queue_reader import ids, received
from tests.support.builders import metric_message
from tests.support.signatures import signer_of


@pytest.fixture
def spool(tmp_path: Path) -> DirectoryQueue:
    return DirectoryQueue(tmp_path / "spool")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    make_key(tmp_path / "nagios1.pem")
    return tmp_path / "nagios1.pem"


@pytest.fixture
def destination() -> str:
    return f"/queue/publish-{uuid.uuid4().hex}"


def config_for(spool: DirectoryQueue, *urls: str, timeout_s: float = 10.0) -> PublisherConfig:
    return PublisherConfig(brokers=urls, spool=spool.path, timeout_s=timeout_s)


def messages_for(destination: str, count: int) -> list[Message]:
    return [metric_message(destination=destination) for _ in range(count)]


def test_a_published_message_arrives_unchanged(
    broker: StompServer, spool: DirectoryQueue, destination: str
) -> None:
    message = metric_message(destination=destination, **{"x-note": "a:b\\c"})

    publish([message], config_for(spool, broker.url))

    (frame,) = received(broker, destination, 1)
    assert frame.body == message.body
    for name in ("messageClass", "recordCount", "samMessageId", "content-type", "x-note"):
        assert frame.headers[name] == message.headers[name]


@pytest.mark.parametrize(
    "body", [b"text \xc3\xbc\r\n\n", bytes(range(256))], ids=["text", "binary"]
)
def test_a_signature_is_good_as_it_arrives(
    broker: StompServer, spool: DirectoryQueue, destination: str, key: Path, body: bytes
) -> None:
    headers = {
        "nagios_host": "n1:\\ü.example.org",
        "samRename": "a%2Cb=metricName",
        "samFormat": "",
    }
    message = metric_message(destination=destination, **headers)._replace(body=body)

    publish([message], config_for(spool, broker.url)._replace(signing_key_file=key))

    (frame,) = received(broker, destination, 1)
    assert signer_of(key, Message(frame.headers, frame.body)) == "nagios1"


def test_a_binary_body_arrives_unchanged(
    broker: StompServer, spool: DirectoryQueue, destination: str
) -> None:
    message = Message({"destination": destination, "messageClass": "x"}, bytes(range(256)))

    publish([message], config_for(spool, broker.url))

    (frame,) = received(broker, destination, 1)
    assert frame.body == bytes(range(256))


def test_many_messages_arrive_once(
    broker: StompServer, spool: DirectoryQueue, destination: str
) -> None:
    messages = messages_for(destination, 1234)

    publication = publish(messages, config_for(spool, broker.url))

    frames = received(broker, destination, 1234)
    assert len(publication.receipts) == 1234
    assert sorted(ids(frames)) == sorted(message.message_id for message in messages)


@pytest.fixture(params=BROKERS)
def mortal_broker(request: pytest.FixtureRequest) -> Iterator[StompServer]:
    """Each STOMP broker in turn, with a store of its own that no other test has filled."""
    with needed(BROKERS[request.param]()) as server:
        yield server


def test_confirmed_messages_survive_a_broker_crash(
    mortal_broker: StompServer, spool: DirectoryQueue, destination: str
) -> None:
    first, single, many = (messages_for(destination, count) for count in (1, 1, 250))

    # RabbitMQ stores a queue later than its messages, so the first stop is a regular one.
    publish(first, config_for(spool, mortal_broker.url))
    mortal_broker.process.stop()
    mortal_broker.process.start()
    for messages in (single, many):
        publication = publish(messages, config_for(spool, mortal_broker.url))
        assert len(publication.receipts) == len(messages)
    mortal_broker.restart()  # with SIGKILL

    arrived = set(ids(received(mortal_broker, destination, 252)))
    lost = [
        len({message.message_id for message in part} - arrived) for part in (first, single, many)
    ]
    assert lost == [0, 0, 0], last_lines(mortal_broker.process.log)
    assert len(arrived) == 252


def test_a_refused_message_is_spooled_and_the_others_arrive(
    broker: StompServer, spool: DirectoryQueue, destination: str
) -> None:
    messages = messages_for(destination, 30)
    messages[12] = refused = refused_by(broker, destination)

    publication = publish(messages, config_for(spool, broker.url))

    frames = received(broker, destination, 29)
    assert set(ids(frames)) == {message.message_id for message in messages} - {refused.message_id}
    assert [item.message.message_id for item in publication.rejections] == [refused.message_id]
    assert [spool.read(name).message_id for name in spool.names()] == [refused.message_id]


def test_a_wrong_password_makes_the_broker_unavailable_and_the_right_one_works(
    broker: StompServer, spool: DirectoryQueue, destination: str, tmp_path: Path
) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text(f"{broker.password}\n")
    wrong.write_text("guessed")
    for file in (right, wrong):
        file.chmod(0o600)
    messages = messages_for(destination, 2)

    for message, file in zip(messages, (wrong, right), strict=True):
        config = PublisherConfig(
            brokers=(broker.url_with_user,), spool=spool.path, password_file=file
        )
        publication = publish([message], config)

    assert publication.drained == 1  # the message spooled because of the wrong password
    assert len(received(broker, destination, 2)) == 2


def test_a_backlog_in_the_spool_is_drained(
    broker: StompServer, spool: DirectoryQueue, destination: str
) -> None:
    messages = messages_for(destination, 600)
    for message in messages:
        spool.add(message)

    result = drain(config_for(spool, broker.url))

    frames = received(broker, destination, 600)
    assert result.sent == 600
    assert spool.count() == 0
    assert set(ids(frames)) == {message.message_id for message in messages}


def refused_by(server: StompServer, destination: str) -> Message:
    if isinstance(server, ActiveMQServer):
        return metric_message(destination=destination, long="x" * 20_000)
    if isinstance(server, ArtemisServer):
        return metric_message(destination=f"/topic/{FORBIDDEN}x")
    return metric_message(destination="/exchange/no-such/key")


def test_headers_that_a_broker_would_act_on_stop_neither_their_message_nor_the_next(
    broker: StompServer, spool: DirectoryQueue, destination: str
) -> None:
    # Each of them made a broker lose its message, delay it, stop its queue or end the connection.
    names = ["priority", "timestamp", "expires", "ack", "type", "transformation", "amq-msg-type"]
    names += ["AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_CRON", "_AMQ_DUPL_ID", "_AMQ_ROUTING_TYPE"]
    names += ["JMSDeliveryMode", "destination-type", "receipt", "message-id", "CC", "BCC"]
    for name in names:
        for value in ("99", "x", "-1", "7"):
            spool.add(metric_message(destination=destination, **{name: value}))
        spool.add(metric_message(destination=destination))

    result = drain(config_for(spool, broker.url))

    assert result.sent == 5 * len(names) and spool.count() == 0
    frames = received(broker, destination, 5 * len(names))
    assert len(set(ids(frames))) == 5 * len(names)
