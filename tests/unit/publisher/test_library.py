"""Publishing from a probe written in Python, with the same guarantees as the command."""

from __future__ import annotations

import gc
import math
import os
import pwd
import sys
import threading
import tomllib
from datetime import date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from sam_pipeline.publisher import ConfigError, Publisher, RecordRefused, publish_record
from sam_pipeline.publisher.delivery import outgoing
from sam_pipeline.publisher.delivery.outgoing import origin_of, script_origin
from sam_pipeline.schema.messages.message import HOST, PROGRAM, USER
from sam_pipeline.schema.program.command import VERSION
from sam_pipeline.schema.records.text import ReadRecord, read_wlcg
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.builders import metric_message, metric_result
from tests.support.publishing import config_for, dead_url, ids, messages, spooled


def record_in(body: bytes) -> dict[str, str]:
    (first,) = read_wlcg(body)
    assert isinstance(first, ReadRecord)
    return dict(first.fields)


def spooled_record(spool: DirectoryQueue) -> dict[str, str]:
    (name,) = spool.names()
    return record_in(spool.read(name).body)


def test_a_record_gets_the_values_time_and_host_that_it_lacks(spool: DirectoryQueue) -> None:
    shared = {"site": "SITE-A", "vo": "ops", "gathered_at": "wn9.example.org", "flavour": "SE"}
    record = {"METRICNAME": "m", "metricStatus": "OK", "hostName": "ce01", "serviceType": "CE"}
    with FakeBroker() as broker:
        config = config_for(broker.url, record=shared)
        publication = publish_record({**record, "siteName": "SITE-B", "voName": " "}, config)
        with Publisher(config.replace(message_class="ownClass")) as publisher:
            publisher.add({"a": "b"})
    publish_record(metric_result(timestamp=None, gatheredAt=None, voName=None), config_for())

    assert ids(receipt.message for receipt in publication.receipts) == broker.ids[:1]
    row, own = (record_in(frame.body) for frame in broker.taken)
    assert (row["siteName"], row["voName"]) == ("SITE-B", "ops")
    assert (row["gatheredAt"], row["serviceFlavour"]) == ("wn9.example.org", "CE")
    assert own == {"a": "b"}
    completed = spooled_record(spool)
    assert completed["timestamp"].endswith("Z") and completed["gatheredAt"]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("metricStatus", 2, "CRITICAL"),
        ("timestamp", 1763640000.75, "2025-11-20T12:00:00Z"),
        ("timestamp", datetime.fromisoformat("2026-11-20T01:00+01:00"), "2026-11-20T00:00:00Z"),
        ("summaryData", 0.25, "0.25"),
        ("summaryData", date(2026, 11, 20), "2026-11-20"),
        ("summaryData", None, None),
    ],
)
def test_a_value_may_be_whatever_json_has_or_a_time(
    spool: DirectoryQueue, key: str, value: object, expected: str | None
) -> None:
    publish_record({**metric_result(), key: value}, config_for())

    assert spooled_record(spool).get(key) == expected


@pytest.mark.parametrize(
    ("record", "reason", "named"),
    [
        ({"serviceFlavour": ["CE", "SRM"]}, "nested", r"'serviceFlavour': list \['CE', 'SRM'\]"),
        ({"summaryData": {"text": "fine"}}, "nested", "'summaryData': dict"),
        ({"timestamp": datetime(2026, 11, 20)}, "bad-time", "'timestamp': datetime"),
        ({"summaryData": math.nan}, "not-json", "'summaryData' .*: float nan"),
        ({"summaryData": b"bytes"}, "not-json", "'summaryData' .*: bytes"),
        ({"summaryData": 10**5000}, "not-json", "'summaryData': int"),
        ({"summaryData": "a\0b"}, "nul-byte", "summaryData"),
        ({7: "seven"}, "no-key", "int 7"),
        ({"HostName": "ce02.example.org"}, "duplicate-key", "HostName"),
        *((bad, "", ".") for bad in (None, "hostName: ce01", ["hostName"], {"hostName": None})),
    ],
)
def test_what_is_not_a_record_is_refused_with_its_key_and_type_and_the_others_are_sent(
    spool: DirectoryQueue, record: Any, reason: str, named: str
) -> None:
    bad = {**metric_result(), **record} if reason else record
    with Publisher(config_for()) as publisher:
        publisher.add(metric_result())
        with pytest.raises(RecordRefused, match=named) as caught:
            publisher.add(bad)
        publisher.add(metric_result())

    assert reason in ("", caught.value.reason)
    assert sum(spool.read(name).record_count or 0 for name in spool.names()) == 2
    with pytest.raises(RecordRefused):
        publish_record({}, config_for())


def test_many_records_are_packed_and_messages_are_not_over_one_connection() -> None:
    sent = messages(250)
    with FakeBroker() as broker, Publisher(config_for(broker.url)) as publisher:
        for number in range(250):
            publisher.add(metric_result(hostName=f"h{number}.example.org"))
        before = len(broker.taken)
        publisher.flush()
        assert [frame.headers["recordCount"] for frame in broker.taken] == ["100", "100", "50"]
        assert before < 3
        assert (publisher.published, publisher.spooled) == (3, 0)
        for message in sent:
            publisher.add_message(message)
        publisher.flush()

        assert broker.ids[3:] == ids(sent)
        assert broker.connections == 1


def test_close_publishes_as_the_end_of_a_block_does_and_nothing_more_is_taken() -> None:
    with FakeBroker() as broker:
        publisher = Publisher(config_for(broker.url))
        publisher.add(metric_result())
        publisher.close()
        publisher.close()

        assert len(broker.taken) == 1
    for use in (lambda: publisher.add({}), publisher.flush, publisher.__enter__):
        with pytest.raises(RuntimeError, match="closed"):
            use()


def test_a_block_that_ends_with_an_error_publishes_its_records() -> None:
    with pytest.raises(ZeroDivisionError), Publisher(config_for(dead_url())) as publisher:
        publisher.add(metric_result())
        1 / 0  # noqa: B018

    assert (publisher.published, publisher.spooled, len(spooled())) == (0, 1, 1)


def test_records_of_an_interrupted_delivery_are_spooled(monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = Publisher(config_for(dead_url()))
    publisher.add(metric_result())
    with monkeypatch.context() as patched:
        patched.setattr(publisher._courier, "deliver", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            publisher.close()
    del publisher
    gc.collect()

    assert len(spooled()) == 1


def test_settings_override_the_configuration_which_is_otherwise_that_of_the_command() -> None:
    Path("sam.toml").write_text('[publisher]\nbrokers = ["spool:///nowhere"]\n')
    with FakeBroker() as broker:
        publish_record(metric_result(), brokers=[broker.url], spool=str(Path("s").absolute()))
        publish_record(metric_result(), config_for(dead_url()), brokers=[broker.url])

    publisher = Publisher(config_for(), brokers="stomp://a.example.org, stomp://b.example.org")
    assert len(broker.taken) == 2
    assert publisher.config.brokers == ("stomp://a.example.org", "stomp://b.example.org")


def test_a_bad_setting_is_an_error() -> None:
    with pytest.raises(TypeError, match="unknown publisher setting: broker"):
        Publisher(broker="stomp://a")
    for setting, problem in (
        ({"destination": "/topics/x"}, "did you mean /topic/x"),
        ({"message_class": "disk usage"}, "blank"),
        ({"order": "random"}, "order: expected listed or shuffled"),
    ):
        with pytest.raises(ConfigError, match=problem):
            Publisher(**setting)


def test_the_version_is_that_of_the_package() -> None:
    assert (
        tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"][
            "version"
        ]
        == VERSION
    )


def test_the_library_names_the_script_in_what_it_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/probes/check_ping.py", "-H", "a"])

    with Publisher(config_for()) as publisher:
        publisher.add(metric_result())
        publisher.flush()
        (ours,) = publisher.last.spooled
        publisher.add_message(metric_message())
        publisher.flush()
        (theirs,) = publisher.last.spooled

    assert ours.headers[PROGRAM] == f"check_ping.py sam-publish/{VERSION}"
    assert not {HOST, PROGRAM, USER} & theirs.headers.keys()
    assert script_origin("", {})[PROGRAM].startswith("python ")


def test_the_login_name_is_otherwise_that_of_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    assert origin_of("a", {})[USER] == pwd.getpwuid(os.getuid()).pw_name
    assert origin_of("a", {"USER": "nagios"})[USER] == "nagios"
    assert origin_of("a", {"LOGNAME": "probe", "USER": "nagios"})[USER] == "probe"

    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    assert origin_of("a", {})[USER] == "uid 4000000000"


def test_a_silent_directory_service_costs_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(outgoing, "USER_TIMEOUT_S", 0.05)
    monkeypatch.setattr(outgoing, "getpwuid", lambda _: over.wait(60))

    assert origin_of("a", {})[USER] == f"uid {os.getuid()}"
    assert not over.is_set()
    over.set()


def test_values_fit_into_any_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="h\xf6st\n" * 100))

    headers = script_origin("/opt/a\0b: \udcff.py", {"LOGNAME": " jos\xe9 "})

    assert headers[HOST] == ("h?st?" * 100)[: outgoing.LONGEST]
    assert headers[PROGRAM].startswith("a?b: ?.py ")
    assert headers[USER] == "jos?"
    assert all(value.isascii() and value.isprintable() for value in headers.values())
