"""A directory queue as the broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sam_pipeline.publisher.brokers import spool as spool_transport
from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.net.broker_url import Broker
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.builders import metric_message

SOON = Deadline.after(60)


@pytest.fixture
def queue(tmp_path: Path) -> DirectoryQueue:
    return DirectoryQueue(tmp_path / "queue")


def address_of(queue: DirectoryQueue) -> BrokerAddress:
    return BrokerAddress(Broker("spool", path=str(queue.path)))


def test_a_message_is_confirmed_once_its_element_exists(queue: DirectoryQueue) -> None:
    messages = [metric_message() for _ in range(60)]
    transport = spool_transport.connect(address_of(queue), PublisherConfig(), SOON)

    for position in transport.send(messages, SOON):
        assert queue.count() > position

    assert [queue.read(name) for name in queue.names()] == messages


def test_a_full_queue_is_an_unavailable_broker(queue: DirectoryQueue) -> None:
    config = PublisherConfig(spool_max_messages=2)
    transport = spool_transport.connect(address_of(queue), config, SOON)
    confirmed = []

    with pytest.raises(BrokerUnavailable, match="is full"):
        for position in transport.send([metric_message() for _ in range(3)], SOON):
            confirmed.append(position)

    assert confirmed == [0, 1]
    assert queue.count() == 2


def test_a_preview_shows_the_element_without_writing_it(queue: DirectoryQueue) -> None:
    message = metric_message()

    shown = spool_transport.preview(address_of(queue).broker, PublisherConfig(), message)

    assert json.loads(shown)["header"] == dict(message.headers)
    assert not queue.path.exists()


def test_a_round_trip_leaves_nothing_behind(queue: DirectoryQueue) -> None:
    proof = spool_transport.round_trip(address_of(queue), PublisherConfig(), metric_message(), SOON)

    assert proof == "round trip"
    assert [path for path in queue.path.rglob("*") if path.is_file()] == []


def test_a_round_trip_to_a_symbolic_link_fails_with_the_reason(
    queue: DirectoryQueue,
) -> None:
    queue.path.symlink_to(queue.path.parent)

    with pytest.raises(BrokerUnavailable, match="is a symbolic link"):
        spool_transport.round_trip(address_of(queue), PublisherConfig(), metric_message(), SOON)
