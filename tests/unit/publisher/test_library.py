"""Publishing from a probe written in Python, with the same guarantees as the command."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from sam_pipeline.publisher import NoBrokerTookIt, Publisher, PublisherConfig, publish_record
from sam_pipeline.schema.errors import ConfigError, RecordRefused
from sam_pipeline.schema.records.text import read_wlcg
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import FakeBroker, closed_port
from tests.support.builders import metric_message, metric_result


@pytest.fixture
def spool(tmp_path: Path) -> DirectoryQueue:
    return DirectoryQueue(tmp_path / "spool")


def config_for(spool: DirectoryQueue, *brokers: str, timeout_s: float = 5.0) -> PublisherConfig:
    return PublisherConfig(brokers=brokers, spool=spool.path, timeout_s=timeout_s)


def dead_url() -> str:
    return f"stomp://127.0.0.1:{closed_port()}"


def test_one_record_is_confirmed_when_the_call_returns(spool: DirectoryQueue) -> None:
    with FakeBroker() as broker:
        publication = publish_record(metric_result(), config_for(spool, broker.url))

        assert len(broker.taken) == 1
    assert [receipt.message.message_id for receipt in publication.receipts] == broker.ids


def test_timestamp_and_measuring_host_of_a_record_are_optional(spool: DirectoryQueue) -> None:
    record = metric_result(timestamp=None, gatheredAt=None, voName=None)

    publish_record(record, config_for(spool))

    (read,) = read_wlcg(spool.read(next(spool.names())).body)
    fields = dict(read.fields) if not isinstance(read.fields, str) else {}
    assert fields["timestamp"].endswith("Z")
    assert fields["gatheredAt"]


def test_a_record_that_can_never_be_loaded_is_refused_and_the_others_are_sent(
    spool: DirectoryQueue,
) -> None:
    with Publisher(config_for(spool)) as publisher:
        publisher.add(metric_result())
        with pytest.raises(RecordRefused, match="metricStatus 'FINE'"):
            publisher.add(metric_result(metricStatus="FINE"))
        publisher.add(metric_result())

    assert publisher.spooled == 1
    assert spool.read(next(spool.names())).record_count == 2


def test_many_records_are_packed_and_travel_over_one_connection(spool: DirectoryQueue) -> None:
    with FakeBroker() as broker:
        with Publisher(config_for(spool, broker.url)) as publisher:
            for number in range(250):
                publisher.add(metric_result(hostName=f"h{number}.example.org"))

        assert [frame.headers["recordCount"] for frame in broker.taken] == ["100", "100", "50"]
        assert broker.connections == 1
    assert (publisher.published, publisher.spooled) == (3, 0)


def test_messages_of_all_batches_travel_over_one_connection(spool: DirectoryQueue) -> None:
    messages = [metric_message() for _ in range(250)]

    with FakeBroker() as broker, Publisher(config_for(spool, broker.url)) as publisher:
        for message in messages:
            publisher.add_message(message)
        publisher.flush()

        assert broker.ids == [message.message_id for message in messages]
        assert broker.connections == 1


def test_after_a_flush_the_broker_has_all_added_records(spool: DirectoryQueue) -> None:
    with FakeBroker() as broker, Publisher(config_for(spool, broker.url)) as publisher:
        publisher.add(metric_result())
        before = len(broker.taken)
        publisher.flush()

        assert (before, len(broker.taken)) == (0, 1)


def test_records_that_no_broker_accepts_are_in_the_spool_after_the_block(
    spool: DirectoryQueue,
) -> None:
    with Publisher(config_for(spool, dead_url())) as publisher:
        publisher.add(metric_result())

    assert (publisher.published, publisher.spooled) == (0, 1)
    assert spool.count() == 1


def test_records_that_are_stored_nowhere_are_returned(spool: DirectoryQueue) -> None:
    messages = [metric_message() for _ in range(3)]

    with (
        pytest.raises(NoBrokerTookIt, match="3 of 3 messages were neither") as caught,
        Publisher(PublisherConfig(brokers=(dead_url(),))) as publisher,
    ):
        for message in messages:
            publisher.add_message(message)

    missing = [message.message_id for message in caught.value.missing]
    assert missing == [message.message_id for message in messages]


def test_a_connection_that_ended_between_two_batches_is_opened_again(spool: DirectoryQueue) -> None:
    first, second = metric_message(), metric_message()
    broker = FakeBroker(drops_after=1)

    with broker, Publisher(config_for(spool, broker.url)) as publisher:
        publisher.add_message(first)
        publisher.flush()
        broker.drops_after = None
        publisher.add_message(second)
        publisher.flush()

    assert broker.ids == [first.message_id, second.message_id]
    assert publisher.published == 2
    assert publisher.last.failures == ()


def test_the_next_broker_gets_the_remaining_records_when_one_fails(spool: DirectoryQueue) -> None:
    first, second = metric_message(), metric_message()

    with FakeBroker() as other, FakeBroker(drops_after=1) as breaking:
        config = config_for(spool, breaking.url, other.url)
        with Publisher(config) as publisher:
            publisher.add_message(first)
            publisher.flush()
            publisher.add_message(second)

    assert breaking.ids == [first.message_id]
    assert other.ids == [second.message_id]


def test_a_block_that_ends_with_an_error_publishes_its_records(spool: DirectoryQueue) -> None:
    with pytest.raises(ZeroDivisionError), Publisher(config_for(spool)) as publisher:
        publisher.add(metric_result())
        1 / 0  # noqa: B018

    assert spool.count() == 1


def test_leaving_the_block_ends_at_the_deadline(spool: DirectoryQueue) -> None:
    with FakeBroker(mute=True) as mute:
        started = time.monotonic()
        with Publisher(config_for(spool, mute.url, timeout_s=0.5)) as publisher:
            publisher.add(metric_result())
        elapsed_s = time.monotonic() - started

    assert elapsed_s < 1.2
    assert spool.count() == 1


def test_messages_spooled_by_earlier_calls_are_drained(spool: DirectoryQueue) -> None:
    publish_record(metric_result(), config_for(spool, dead_url()))

    with FakeBroker() as broker:
        publication = publish_record(metric_result(), config_for(spool, broker.url))

        assert len(broker.taken) == 2
    assert publication.drained == 1
    assert spool.count() == 0


def test_each_thread_may_have_its_own_publisher(spool: DirectoryQueue) -> None:
    def probe() -> None:
        with Publisher(config_for(spool, broker.url)) as publisher:
            for _ in range(20):
                publisher.add_message(metric_message())

    with FakeBroker() as broker:
        threads = [threading.Thread(target=probe) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)

    assert len(set(broker.ids)) == 80


def test_settings_override_the_configuration(spool: DirectoryQueue) -> None:
    with FakeBroker() as broker:
        config = config_for(spool, dead_url())
        publication = publish_record(metric_result(), config, brokers=[broker.url])

    assert len(publication.receipts) == 1


def test_without_a_configuration_that_of_the_command_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = DirectoryQueue(tmp_path / "queue")
    (tmp_path / "sam.toml").write_text('[publisher]\nbrokers = ["spool:///nowhere"]\n')
    monkeypatch.setenv("SAM_CONFIG", str(tmp_path / "sam.toml"))
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))

    publish_record(metric_result(), brokers=[f"spool://{queue.path}"], spool=str(tmp_path / "s"))

    assert queue.count() == 1


def test_an_unknown_setting_is_an_error() -> None:
    with pytest.raises(TypeError, match="unknown publisher setting: broker"):
        Publisher(broker="stomp://a")


def test_a_bad_setting_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError, match="order: expected listed or shuffled"):
        Publisher(order="random")
