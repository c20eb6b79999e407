"""Publishing to real brokers over faulty connections: nothing is lost, nothing hangs, ids stay."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote
from urllib.request import HTTPBasicAuthHandler, Request, build_opener
from urllib.request import HTTPPasswordMgrWithDefaultRealm as Passwords

import pytest

from sam_pipeline.publisher import MessageRejected, PublisherConfig, publish
from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.stomp.transport import round_trip
from sam_pipeline.publisher.delivery.drain import drain
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker_url import parse_broker
from sam_pipeline.schema.net.channel import NO_ANSWER
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services.artemis import FORBIDDEN, SILENT
from tests.services.broker import StompServer
from tests.services.process import descendants
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.fake_broker import black_hole, closed_port, wait_for
from tests.support.brokers.fault_proxy import FaultProxy
from tests.support.brokers.queue_reader import ids, received, received_ids
from tests.support.builders import metric_message

SLACK_S = 1.0


@pytest.fixture
def spool(tmp_path: Path) -> DirectoryQueue:
    return DirectoryQueue(tmp_path / "spool")


@pytest.fixture
def destination() -> str:
    return f"/queue/faults-{uuid.uuid4().hex}"


def config_for(spool: DirectoryQueue, *urls: str, timeout_s: float = 10.0) -> PublisherConfig:
    return PublisherConfig(brokers=urls, spool=spool.path, timeout_s=timeout_s)


def messages_for(destination: str, count: int) -> list[Message]:
    return [metric_message(destination=destination) for _ in range(count)]


def ids_of(messages: Sequence[Message]) -> list[str]:
    return [message.message_id for message in messages]


def spooled_ids(spool: DirectoryQueue) -> list[str]:
    return [spool.read(name).message_id for name in spool.names()]


def proof_of(server: StompServer, destination: str) -> str:
    broker = parse_broker(server.url)
    message = metric_message(destination=destination)
    address, config = BrokerAddress(broker, server.host), PublisherConfig(brokers=(server.url,))
    return round_trip(address, config, message, Deadline.after(10))


def test_the_only_reachable_broker_of_three_is_used_and_the_others_are_reported_once(
    broker: StompServer, spool: DirectoryQueue, destination: str
) -> None:
    messages = messages_for(destination, 3)
    refusing = f"stomp://127.0.0.1:{closed_port()}"
    started = time.monotonic()

    with black_hole() as silent:
        config = config_for(spool, refusing, silent, broker.url, timeout_s=3.0)
        publication = publish(messages, config)
    elapsed_s = time.monotonic() - started

    assert elapsed_s < 3.0
    assert [(failure.broker, failure.reason) for failure in publication.failures] == [
        (refusing, "connection refused"),
        (silent, NO_ANSWER),
    ]
    assert sorted(ids(received(broker, destination, 3))) == sorted(ids_of(messages))
    assert spool.count() == 0


def test_a_silent_broker_gets_its_share_of_the_deadline_and_the_next_one_is_used(
    broker: StompServer, spool: DirectoryQueue, destination: str
) -> None:
    (message,) = messages_for(destination, 1)
    started = time.monotonic()

    with FaultProxy(broker.port, mute=True) as proxy:
        config = config_for(spool, proxy.url, broker.url, timeout_s=2.0)
        publication = publish([message], config)
        elapsed_s = time.monotonic() - started

    assert elapsed_s < 2.0
    assert [failure.broker for failure in publication.failures] == [proxy.url]
    assert ids(received(broker, destination, 1)) == [message.message_id]


def test_unconfirmed_messages_are_spooled_once_when_a_broker_freezes(
    broker: StompServer, spool: DirectoryQueue, destination: str
) -> None:
    messages = [
        Message(metric_message(destination=destination).headers, b"x" * 100_000) for _ in range(120)
    ]

    with FaultProxy(broker.port) as proxy, freezing(broker, proxy, after_bytes=2_000_000):
        started = time.monotonic()
        publication = publish(messages, config_for(spool, proxy.url, timeout_s=1.5))
        elapsed_s = time.monotonic() - started

    assert elapsed_s < 1.5 + SLACK_S
    assert len(publication.failures) == 1
    confirmed = [receipt.message.message_id for receipt in publication.receipts]
    assert sorted(confirmed + spooled_ids(spool)) == sorted(ids_of(messages))
    assert spool.count() > 0
    drain(config_for(spool, broker.url))
    assert spool.count() == 0
    assert set(received_ids(broker, destination, ids_of(messages))) == set(ids_of(messages))


@pytest.mark.parametrize("count", [1, 700])
def test_messages_resent_after_a_reset_keep_their_ids(
    broker: StompServer, spool: DirectoryQueue, destination: str, count: int
) -> None:
    messages = messages_for(destination, count)

    with FaultProxy(broker.port, resets_at="RECEIPT", spoils=1) as proxy:
        publication = publish(messages, config_for(spool, proxy.url))

    arrived = received_ids(broker, destination, ids_of(messages))
    assert proxy.connections == 2
    assert len(publication.receipts) == count
    assert set(arrived) == set(ids_of(messages))
    assert len(arrived) > count, "messages stored before the reset are duplicated"
    assert spool.count() == 0


def test_a_reset_in_the_middle_of_a_frame_loses_nothing(
    broker: StompServer, spool: DirectoryQueue, destination: str
) -> None:
    messages = messages_for(destination, 700)

    with FaultProxy(broker.port, resets_after=100_000, spoils=1) as proxy:
        publication = publish(messages, config_for(spool, proxy.url))

    arrived = received_ids(broker, destination, ids_of(messages))
    assert len(publication.receipts) == 700
    assert set(arrived) == set(ids_of(messages))


def test_a_message_whose_receipt_is_lost_is_resent_with_the_same_id(
    broker: StompServer, spool: DirectoryQueue, destination: str
) -> None:
    (message,) = messages_for(destination, 1)

    with FaultProxy(broker.port, eats="RECEIPT") as proxy:
        publish([message], config_for(spool, proxy.url, timeout_s=0.7))
    left = spooled_ids(spool)
    drain(config_for(spool, broker.url))

    assert left == [message.message_id]
    assert ids(received(broker, destination, 2)) == [message.message_id] * 2


@pytest.mark.parametrize("fault", [{"drip_s": 1.0}, {"halves": "RECEIPT"}, {"halves": "CONNECTED"}])
def test_a_dripping_or_truncated_answer_ends_at_the_deadline(
    broker: StompServer, spool: DirectoryQueue, destination: str, fault: dict[str, object]
) -> None:
    (message,) = messages_for(destination, 1)

    with FaultProxy(broker.port, **fault) as proxy:  # type: ignore[arg-type]
        started = time.monotonic()
        publication = publish([message], config_for(spool, proxy.url, timeout_s=0.7))
        elapsed_s = time.monotonic() - started

    assert elapsed_s < 0.7 + SLACK_S
    assert [failure.reason for failure in publication.failures] == [NO_ANSWER]
    assert spooled_ids(spool) == [message.message_id]


def test_latency_alone_causes_no_failure(
    broker: StompServer, spool: DirectoryQueue, destination: str
) -> None:
    messages = messages_for(destination, 1200)

    with FaultProxy(broker.port, latency_s=0.03) as proxy:
        publication = publish(messages, config_for(spool, proxy.url, timeout_s=30.0))

    assert len(publication.receipts) == 1200
    assert len(received(broker, destination, 1200)) == 1200


@pytest.mark.parametrize("kind", ["/topic/", "/queue/"])
def test_a_round_trip_to_a_topic_or_queue_succeeds(broker: StompServer, kind: str) -> None:
    assert proof_of(broker, f"{kind}check-{uuid.uuid4().hex}") == "round trip"


def test_repeated_round_trips_consume_nothing_from_a_queue(
    broker: StompServer, spool: DirectoryQueue, destination: str
) -> None:
    standing = messages_for(destination, 2)
    publish(standing, config_for(spool, broker.url))

    (proof,) = {proof_of(broker, destination) for _ in range(12)}  # Artemis gives up after 10

    assert proof.startswith("confirmed, ")
    assert "another message" in proof
    assert ids(received(broker, destination, 14))[:2] == ids_of(standing)


@pytest.mark.parametrize("missing", ["/amq/queue/nosuch", "/exchange/nosuch/key"])
def test_a_round_trip_to_a_missing_rabbitmq_destination_is_rejected(
    rabbitmq: RabbitMQServer, missing: str
) -> None:
    with pytest.raises(MessageRejected, match=r"NOT_FOUND - no (queue|exchange) 'nosuch'"):
        proof_of(rabbitmq, missing)


def test_a_round_trip_to_an_existing_rabbitmq_queue_succeeds(
    rabbitmq: RabbitMQServer, spool: DirectoryQueue, destination: str
) -> None:
    proof_of(rabbitmq, destination)  # creates the queue

    assert proof_of(rabbitmq, destination.replace("/queue/", "/amq/queue/")) == "round trip"


@pytest.mark.parametrize(
    ("broker", "stem"),
    [
        ("artemis", "Error creating subscription"),
        ("strict_activemq", "read from: topic://silent.x"),
    ],
    indirect=["broker"],
)
def test_a_round_trip_without_the_right_to_subscribe_ends_with_the_receipt(
    broker: StompServer, stem: str
) -> None:
    proof = proof_of(broker, f"/topic/{SILENT}x")

    assert proof.startswith("confirmed, not read back: not allowed")
    assert stem in proof


@pytest.mark.parametrize(
    ("broker", "stem"),
    [
        ("artemis", "permission='CREATE_ADDRESS' on address forbidden.x"),
        ("strict_activemq", "write to: topic://forbidden.x"),
    ],
    indirect=["broker"],
)
def test_messages_for_a_forbidden_destination_are_spooled_and_the_others_sent(
    broker: StompServer, stem: str, spool: DirectoryQueue, destination: str
) -> None:
    forbidden, allowed = messages_for(f"/topic/{FORBIDDEN}x", 25), messages_for(destination, 25)
    mixed = [message for pair in zip(forbidden, allowed, strict=True) for message in pair]

    publication = publish(mixed, config_for(spool, broker.url))

    assert set(received_ids(broker, destination, ids_of(allowed))) == set(ids_of(allowed))
    assert sorted(spooled_ids(spool)) == sorted(ids_of(forbidden))
    assert len(publication.receipts) == len(publication.rejections) == 25
    assert all(stem in rejection.reason for rejection in publication.rejections)


def test_messages_for_a_topic_forbidden_by_rabbitmq_are_spooled_and_the_others_sent(
    rabbitmq: RabbitMQServer, spool: DirectoryQueue, destination: str, tmp_path: Path
) -> None:
    name = f"probe-{uuid.uuid4().hex}"
    password_file = tmp_path / "password"
    password_file.write_text("secret")
    password_file.chmod(0o600)
    allow_only(rabbitmq, name, "secret", topics="^allowed")
    forbidden, allowed = messages_for("/topic/other.x", 25), messages_for("/topic/allowed.x", 25)
    url = f"stomp://{name}@{rabbitmq.host}:{rabbitmq.port}"
    config = PublisherConfig(brokers=(url,), spool=spool.path, password_file=password_file)

    publication = publish([*forbidden, *allowed], config)

    assert sorted(spooled_ids(spool)) == sorted(ids_of(forbidden))
    assert [len(publication.rejections), len(publication.receipts)] == [25, 25]
    (reason,) = {rejection.reason for rejection in publication.rejections}
    assert "access to topic 'other.x'" in reason


def allow_only(server: RabbitMQServer, name: str, password: str, topics: str) -> None:
    """Add a user who may send only to these topics."""
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    rule = {"exchange": "amq.topic", "write": topics, "read": ".*"}
    _put(server, f"users/{name}", {"password": password, "tags": ""})
    _put(server, f"permissions/{quote('/', safe='')}/{name}", everything)
    _put(server, f"topic-permissions/{quote('/', safe='')}/{name}", rule)


def _put(server: RabbitMQServer, path: str, document: dict[str, str]) -> None:
    passwords = Passwords()
    passwords.add_password(None, server.management_url, server.user, server.password)
    request = Request(
        f"{server.management_url}/api/{path}",
        json.dumps(document).encode(),
        {"content-type": "application/json"},
        method="PUT",
    )
    build_opener(HTTPBasicAuthHandler(passwords)).open(request, timeout=10).close()


@contextmanager
def freezing(server: StompServer, proxy: FaultProxy, after_bytes: int) -> Iterator[None]:
    """Freeze all processes of the broker once this many bytes were sent, until the block ends."""
    pids = [server.process.pid, *descendants(server.process.pid)]

    def freeze() -> None:
        wait_for(lambda: proxy.sent_bytes >= after_bytes)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)

    thread = threading.Thread(target=freeze)
    thread.start()
    try:
        yield
    finally:
        thread.join(10)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
