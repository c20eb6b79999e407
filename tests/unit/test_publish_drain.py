"""The spool is drained: by the next call that reaches a broker, or by command."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest

from publisher import PublisherConfig, publish
from publisher.drain import drain
from schema.message import Message
from schema.spool import DirectoryQueue
from tests.builders import metric_message
from tests.fake_broker import FakeBroker, Frame, closed_port


@pytest.fixture
def spool(tmp_path: Path) -> DirectoryQueue:
    return DirectoryQueue(tmp_path / "spool")


def config_for(spool: DirectoryQueue, *brokers: str, timeout_s: float = 5.0) -> PublisherConfig:
    return PublisherConfig(brokers=brokers, spool=spool.path, timeout_s=timeout_s)


def filled(spool: DirectoryQueue, count: int) -> list[str]:
    """The ids of so many messages that wait in the spool."""
    messages = [metric_message() for _ in range(count)]
    for message in messages:
        spool.add(message)
    return [message.message_id for message in messages]


def test_the_next_call_drains_the_spool_after_its_own_message_over_the_same_connection(
    spool: DirectoryQueue,
) -> None:
    waiting, message = filled(spool, 3), metric_message()

    with FakeBroker() as broker:
        publication = publish([message], config_for(spool, broker.url))

    assert broker.ids == [message.message_id, *waiting]
    assert broker.connections == 1
    assert publication.drained == 3
    assert spool.count() == 0


def test_what_was_spooled_without_broker_arrives_with_the_next_call_at_its_own_destination(
    spool: DirectoryQueue,
) -> None:
    publish([metric_message(destination="/queue/mine")], config_for(spool))

    with FakeBroker() as broker:
        publish([metric_message()], config_for(spool, broker.url))

    assert [frame.headers["destination"] for frame in broker.taken] == [
        "/topic/grid.probe.metricOutput",
        "/queue/mine",
    ]


def test_a_drain_that_fails_does_not_fail_the_call_and_loses_nothing(
    spool: DirectoryQueue,
) -> None:
    waiting = filled(spool, 3)

    with FakeBroker(drops_after=2) as broker:
        publication = publish([metric_message()], config_for(spool, broker.url))

    assert len(publication.receipts) == 1
    assert publication.spooled == ()
    left = [spool.read(name).message_id for name in spool.names()]
    assert set(left) | set(broker.ids[1:]) == set(waiting)
    assert not list(spool.path.rglob("*.lck"))


def test_draining_in_passing_ends_with_the_deadline(spool: DirectoryQueue) -> None:
    filled(spool, 3)
    started = time.monotonic()

    with FakeBroker(freezes_after=2) as broker:
        publication = publish([metric_message()], config_for(spool, broker.url, timeout_s=1.0))
        elapsed_s = time.monotonic() - started

    assert len(publication.receipts) == 1
    assert elapsed_s < 1.7


def test_one_process_at_a_time_drains_in_passing(spool: DirectoryQueue) -> None:
    filled(spool, 3)
    held = os.open(spool.path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)

    with FakeBroker() as broker:
        publication = publish([metric_message()], config_for(spool, broker.url))
    os.close(held)

    assert publication.drained == 0
    assert len(broker.taken) == 1
    assert spool.count() == 3


def test_an_element_that_another_process_locked_is_left_to_it(spool: DirectoryQueue) -> None:
    waiting = filled(spool, 3)
    locked = next(spool.names())
    spool.lock(locked)

    with FakeBroker() as broker:
        result = drain(config_for(spool, broker.url))

    assert broker.ids == waiting[1:]
    assert result.sent == 2
    assert list(spool.names()) == [locked]


def test_drain_falls_back_to_the_next_broker_with_what_is_left(spool: DirectoryQueue) -> None:
    waiting = filled(spool, 450)

    with FakeBroker(drops_after=230) as first, FakeBroker() as second:
        result = drain(config_for(spool, first.url, second.url))

    assert result.complete
    assert result.sent == 450
    assert set(first.ids) | set(second.ids) == set(waiting)
    assert len(second.ids) <= 450 - 200
    assert spool.count() == 0


def test_a_drain_without_broker_is_not_complete_and_keeps_everything(
    spool: DirectoryQueue,
) -> None:
    filled(spool, 2)

    result = drain(config_for(spool, f"stomp://127.0.0.1:{closed_port()}"))

    assert not result.complete
    assert spool.count() == 2


def test_an_empty_spool_is_drained_without_asking_a_broker(spool: DirectoryQueue) -> None:
    with FakeBroker() as broker:
        result = drain(config_for(spool, broker.url))

    assert result.complete
    assert broker.connections == 0


def test_a_damaged_element_is_set_aside_with_its_reason_and_the_others_are_sent(
    spool: DirectoryQueue,
) -> None:
    waiting = filled(spool, 3)
    first = next(spool.names())
    (spool.path / first).write_text("{")

    with FakeBroker() as broker:
        result = drain(config_for(spool, broker.url))

    assert broker.ids == waiting[1:]
    assert result.set_aside == 1
    reasons = [path.read_text() for path in Path(f"{spool.path}.bad").glob("*.reason")]
    assert len(reasons) == 1
    assert "holds no message" in reasons[0]


def test_a_rejected_element_stays_and_the_others_are_sent(spool: DirectoryQueue) -> None:
    waiting = filled(spool, 5)

    def refuse_one(frame: Frame) -> str:
        return "access_refused" if frame.headers["samMessageId"] == waiting[1] else ""

    with FakeBroker(rejects=refuse_one) as broker:
        result = drain(config_for(spool, broker.url))

    assert set(broker.ids) == {*waiting} - {waiting[1]}
    assert [spool.read(name).message_id for name in spool.names()] == [waiting[1]]
    assert sum(result.rejections.values()) == 1
    assert result.complete


def test_an_element_of_a_foreign_writer_travels_with_the_class_and_destination_of_this_one(
    spool: DirectoryQueue,
) -> None:
    spool.add(Message({"message-id": "ID:1"}, metric_message().body))

    with FakeBroker() as broker:
        drain(config_for(spool, broker.url))

    (frame,) = broker.taken
    assert frame.headers["messageClass"] == "metricOutput"
    assert frame.headers["destination"] == "/topic/grid.probe.metricOutput"
    assert "message-id" not in frame.headers


def test_a_spool_that_is_also_the_broker_is_not_drained_into_itself(
    spool: DirectoryQueue,
) -> None:
    filled(spool, 2)
    config = config_for(spool, f"spool://{spool.path}")

    publication = publish([metric_message()], config)

    assert publication.drained == 0
    assert not drain(config).complete
    assert spool.count() == 3
