"""Brokers that are full or disconnect a slow consumer: all confirmed messages become rows."""

from __future__ import annotations

import itertools
import time
import uuid
from pathlib import Path
from typing import Literal

import pytest

from sam_pipeline.schema.messages.message import Message
from tests.services import needed
from tests.services.activemq import ActiveMQRules, running_activemq
from tests.services.artemis import SMALL, ArtemisServer
from tests.services.broker import StompServer
from tests.services.rabbitmq import RabbitMQRules, RabbitMQServer, running_rabbitmq
from tests.support.conservation import consumed, key_of, numbered
from tests.support.consumer.daemon import LOST, Subscription, locked, row_keys, running, site_of
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, eventually

CHUNK = 20
SEND_S = 2.0
ACK_TIMEOUT_S = 3.0
DETAILS = "x" * 20_000


@pytest.fixture
def destination() -> str:
    return f"/topic/grid.probe.{uuid.uuid4().hex}"


@pytest.mark.parametrize("when_full", ["blocks", "fails"])
def test_a_full_activemq_is_drained_and_accepts_messages_again(
    tmp_path: Path, destination: str, when_full: Literal["blocks", "fails"]
) -> None:
    with needed(running_activemq(ActiveMQRules(when_full=when_full))) as broker:
        drained_when_full(tmp_path, broker, destination)


def test_a_full_artemis_address_is_drained_and_accepts_messages_again(
    tmp_path: Path, artemis: ArtemisServer
) -> None:
    drained_when_full(tmp_path, artemis, f"/topic/{SMALL}{uuid.uuid4().hex}")


def test_a_rabbitmq_with_a_full_disk_is_drained_and_accepts_messages_again(
    tmp_path: Path, rabbitmq: RabbitMQServer, destination: str
) -> None:
    site = site_of(tmp_path, [rabbitmq.url], Subscription(destination))
    subscribe_once(site, rabbitmq)
    accepted = send(rabbitmq, destination, numbered("before", range(100)))
    refused = numbered("refused", range(300))

    with rabbitmq.full():
        with pytest.raises(TimeoutError):
            send(rabbitmq, destination, refused)
        with running(site) as daemon:
            site.wait_for_rows(100)
            assert daemon.alive

    with running(site):
        accepted += send(rabbitmq, destination, numbered("after", range(100)))
        eventually(lambda: set(accepted) <= set(row_keys(site)))
    consumed(accepted, row_keys(site), uncertain=[key_of(message.body) for message in refused])


def test_a_consumer_disconnected_by_rabbitmq_for_late_acks_reconnects_and_loses_nothing(
    tmp_path: Path, postgres_url: str, destination: str
) -> None:
    with needed(running_rabbitmq(RabbitMQRules(ack_timeout_s=ACK_TIMEOUT_S))) as broker:
        site = site_of(tmp_path, [broker.url], Subscription(destination), database=postgres_url)
        with running(site) as daemon:
            daemon.wait_until_subscribed(broker.url)
            with locked(postgres_url, "metric_result"):
                accepted = send(broker, destination, numbered("stalled", range(500)))
                began = time.monotonic()
                daemon.wait_for(LOST, "timed out")
                daemon.wait_until_subscribed(broker.url, times=2)
                took_s = time.monotonic() - began
            site.wait_for_rows(500)
            accepted += send(broker, destination, numbered("after", range(100)))
            site.wait_for_rows(600)

            assert len(daemon.lines(LOST)) <= 1 + took_s / ACK_TIMEOUT_S, "reconnects too often"
            assert daemon.stop().code == 0

    consumed(accepted, row_keys(site))


def drained_when_full(directory: Path, broker: StompServer, destination: str) -> None:
    """Fill the broker while the consumer is stopped; draining it makes it accept messages again."""
    site = site_of(directory, [broker.url], Subscription(destination))
    subscribe_once(site, broker)

    accepted, refused = filled(broker, destination)
    with running(site) as daemon:
        site.wait_for_rows(len(accepted))
        eventually(lambda: accepts_again(broker, destination))
        accepted += [key_of(message.body) for message in numbered("again", range(CHUNK))]
        eventually(lambda: set(accepted) <= set(row_keys(site)))
        assert daemon.stop().code == 0

    consumed(accepted, row_keys(site), uncertain=refused)


def subscribe_once(site: Site, broker: StompServer) -> None:
    with running(site, log="first.log") as daemon:
        daemon.wait_until_subscribed(broker.url)
        daemon.stop()


def filled(broker: StompServer, destination: str) -> tuple[list[str], list[str]]:
    """The keys of all messages it confirmed until it was full, and of the unconfirmed ones."""
    accepted: list[str] = []
    for start in itertools.count(step=CHUNK):
        chunk = numbered("fill", range(start, start + CHUNK), detailsData=DETAILS)
        try:
            accepted += send(broker, destination, chunk)
        except OSError:
            assert accepted, "the broker accepted nothing"
            return accepted, [key_of(message.body) for message in chunk]
    raise AssertionError("never")


def accepts_again(broker: StompServer, destination: str) -> bool:
    try:
        send(broker, destination, numbered("again", range(CHUNK)))
    except OSError:
        return False
    return True


def send(broker: StompServer, destination: str, messages: list[Message]) -> list[str]:
    publish(broker.host, broker.port, destination, messages, timeout_s=SEND_S)
    return [key_of(message.body) for message in messages]
