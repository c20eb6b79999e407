"""Publishing from a probe written in Python, with the same guarantees as the command."""

from __future__ import annotations

import gc
import math
import stat
import threading
import time
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pytest

from sam_pipeline.publisher import (
    ConfigError,
    NoBrokerTookIt,
    Publisher,
    PublisherConfig,
    RecordRefused,
    publish_record,
)
from sam_pipeline.schema import times
from sam_pipeline.schema.errors import ClockNotSet, MessageRefused
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


def test_a_record_gets_the_configured_values_for_keys_that_it_lacks(spool: DirectoryQueue) -> None:
    shared = {"site": "SITE-A", "vo": "ops", "gathered_at": "wn9.example.org", "flavour": "SE"}
    record = {"METRICNAME": "m", "metricStatus": "OK", "hostName": "ce01", "serviceType": "CE"}
    with FakeBroker() as broker:
        config = config_for(spool, broker.url)._replace(record=shared)
        publish_record({**record, "siteName": "SITE-B", "voName": " "}, config)
        with Publisher(config._replace(message_class="ownClass")) as publisher:
            publisher.add({"a": "b"})

    (row, *_), own = (list(read_wlcg(frame.body)) for frame in broker.taken)
    assert row.fields["siteName"] == "SITE-B"
    assert row.fields["voName"] == "ops"
    assert row.fields["gatheredAt"] == "wn9.example.org"
    assert row.fields["serviceFlavour"] == "CE"
    assert [item.fields for item in own] == [{"a": "b"}]


def test_timestamp_and_measuring_host_of_a_record_are_optional(spool: DirectoryQueue) -> None:
    record = metric_result(timestamp=None, gatheredAt=None, voName=None)

    publish_record(record, config_for(spool))

    (read,) = read_wlcg(spool.read(next(spool.names())).body)
    fields = dict(read.fields) if not isinstance(read.fields, str) else {}
    assert fields["timestamp"].endswith("Z")
    assert fields["gatheredAt"]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("metricStatus", 2, "CRITICAL"),
        ("timestamp", 1763640000, "2025-11-20T12:00:00Z"),
        ("timestamp", 1763640000.75, "2025-11-20T12:00:00Z"),
        ("timestamp", datetime(2026, 11, 20, 12, tzinfo=UTC), "2026-11-20T12:00:00Z"),
        (
            "timestamp",
            datetime(2026, 11, 20, 14, tzinfo=timezone(timedelta(hours=2))),
            "2026-11-20T12:00:00Z",
        ),
        ("summaryData", True, "true"),
        ("summaryData", 0.25, "0.25"),
        ("summaryData", date(2026, 11, 20), "2026-11-20"),
        ("summaryData", None, None),
    ],
)
def test_a_value_may_be_whatever_json_has_or_a_time(
    spool: DirectoryQueue, key: str, value: object, expected: str | None
) -> None:
    publish_record({**metric_result(), key: value}, config_for(spool))

    (read,) = read_wlcg(spool.read(next(spool.names())).body)
    assert dict(read.fields).get(key) == expected


@pytest.mark.parametrize(
    ("changes", "reason", "named"),
    [
        ({"serviceFlavour": ["CE", "SRM"]}, "nested", r"'serviceFlavour': list \['CE', 'SRM'\]"),
        ({"summaryData": {"text": "fine"}}, "nested", "'summaryData': dict"),
        ({"timestamp": datetime(2026, 11, 20)}, "bad-time", "'timestamp': datetime"),
        ({"summaryData": math.nan}, "not-json", "'summaryData' .*: float nan"),
        ({"summaryData": b"bytes"}, "not-json", "'summaryData' .*: bytes"),
        ({"summaryData": 10**5000}, "not-json", "'summaryData': int"),
        ({"summaryData": "a\0b"}, "nul-byte", "summaryData"),
        ({"summary data": "fine"}, "no-key", "'summary data'"),
        ({7: "seven"}, "no-key", "int 7"),
        ({"HostName": "ce02.example.org"}, "duplicate-key", "HostName"),
    ],
)
def test_a_key_or_value_that_no_record_has_is_refused_with_its_name_and_type(
    spool: DirectoryQueue, changes: dict[str, object], reason: str, named: str
) -> None:
    with pytest.raises(RecordRefused, match=named) as caught:
        publish_record({**metric_result(), **changes}, config_for(spool))

    assert caught.value.reason == reason
    assert spool.count() == 0


@pytest.mark.parametrize("record", [None, "hostName: ce01", ["hostName"], {}, {"hostName": None}])
def test_what_is_not_a_record_is_refused(spool: DirectoryQueue, record: dict[str, object]) -> None:
    with pytest.raises(RecordRefused):
        publish_record(record, config_for(spool))


def test_close_publishes_as_the_end_of_a_block_does_and_may_be_repeated(
    spool: DirectoryQueue,
) -> None:
    with FakeBroker() as broker:
        publisher = Publisher(config_for(spool, broker.url))
        publisher.add(metric_result())
        publisher.close()
        publisher.close()

        assert len(broker.taken) == 1


def test_a_closed_publisher_takes_nothing_more(spool: DirectoryQueue) -> None:
    publisher = Publisher(config_for(spool))
    publisher.close()

    for use in (
        lambda: publisher.add(metric_result()),
        lambda: publisher.add_message(metric_message()),
        publisher.flush,
        publisher.__enter__,
    ):
        with pytest.raises(RuntimeError, match="closed"):
            use()


def test_a_publisher_that_was_dropped_spools_its_records_and_warns(
    spool: DirectoryQueue, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeBroker() as broker:
        publisher = Publisher(config_for(spool, broker.url))
        for _ in range(150):
            publisher.add(metric_result())
        del publisher
        gc.collect()

        assert broker.connections == 0
    assert spool.count() == 2
    [warning] = caplog.messages
    assert "150 records" in warning
    assert "close()" in warning


def test_a_publisher_that_was_dropped_shares_what_it_spools_if_a_group_shares_the_spool(
    spool: DirectoryQueue,
) -> None:
    publisher = Publisher(config_for(spool), spool_mode="2770")
    publisher.add(metric_result())
    del publisher
    gc.collect()

    [name] = spool.names()
    assert stat.S_IMODE((spool.path / name).stat().st_mode) == 0o660
    assert stat.S_IMODE(spool.path.stat().st_mode) == 0o2770


def test_a_publisher_that_was_dropped_without_a_spool_says_how_many_records_are_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    publisher = Publisher(PublisherConfig())
    publisher.add(metric_result())
    publisher.add(metric_result())
    del publisher
    gc.collect()

    [warning] = caplog.messages
    assert "2 of its 2 records are lost" in warning


def test_a_publisher_that_was_dropped_after_a_flush_is_silent(
    spool: DirectoryQueue, caplog: pytest.LogCaptureFixture
) -> None:
    publisher = Publisher(config_for(spool))
    publisher.add(metric_result())
    publisher.flush()
    del publisher
    gc.collect()

    assert spool.count() == 1
    assert not caplog.messages


def test_records_of_an_interrupted_delivery_are_spooled(
    spool: DirectoryQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    publisher = Publisher(config_for(spool, dead_url()))
    publisher.add(metric_result())
    with monkeypatch.context() as patched:
        patched.setattr(publisher._courier, "deliver", interrupt)
        with pytest.raises(KeyboardInterrupt):
            publisher.close()
    del publisher
    gc.collect()

    assert spool.count() == 1


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


def test_brokers_may_be_one_text(spool: DirectoryQueue) -> None:
    publisher = Publisher(config_for(spool), brokers="stomp://a.example.org, stomp://b.example.org")

    assert publisher.config.brokers == ("stomp://a.example.org", "stomp://b.example.org")


def test_an_unknown_setting_is_an_error() -> None:
    with pytest.raises(TypeError, match="unknown publisher setting: broker"):
        Publisher(broker="stomp://a")


def test_a_bad_setting_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError, match="order: expected listed or shuffled"):
        Publisher(order="random")


def test_a_message_to_where_nobody_can_subscribe_is_refused_and_the_others_are_sent(
    spool: DirectoryQueue,
) -> None:
    with FakeBroker() as broker, Publisher(config_for(spool, broker.url)) as publisher:
        publisher.add_message(metric_message())
        with pytest.raises(MessageRefused, match=r"did you mean /topic/grid\.x\?"):
            publisher.add_message(metric_message(destination="/topics/grid.x"))

    assert len(broker.taken) == 1


@pytest.mark.parametrize("config", [None, PublisherConfig()])
def test_a_destination_where_nobody_can_subscribe_is_a_configuration_error(
    config: PublisherConfig | None,
) -> None:
    with pytest.raises(ConfigError, match="did you mean /topic/x"):
        Publisher(config, destination="/topics/x")
    with pytest.raises(ConfigError, match="blank"):
        Publisher(config, message_class="disk usage")


def test_details_that_are_too_large_are_shortened(
    spool: DirectoryQueue, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeBroker() as broker, Publisher(config_for(spool, broker.url)) as publisher:
        publisher.add(metric_result(voName="first"))
        publisher.add(metric_result(detailsData="x" * 5_000_000))
        publisher.add(metric_result(voName="last"))

    first, large, last = (frame.body for frame in broker.taken)
    assert b"first" in first
    assert b"last" in last
    assert len(large) <= 4 * 1024 * 1024
    assert b"bytes were left out here]\nEOT\n" in large
    assert "were left out" in caplog.text


def test_a_record_that_is_too_large_without_its_details_is_refused(spool: DirectoryQueue) -> None:
    with pytest.raises(RecordRefused, match="too-large"):
        publish_record(metric_result(performanceData="x" * 5_000_000), config_for(spool))

    assert spool.count() == 0


def test_a_result_of_a_clock_that_was_never_set_is_refused(
    spool: DirectoryQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(times, "NOT_BEFORE", datetime(9000, 1, 1, tzinfo=UTC))

    with pytest.raises(ClockNotSet, match="set the clock"):
        publish_record(metric_result(timestamp=None), config_for(spool))

    assert spool.count() == 0
