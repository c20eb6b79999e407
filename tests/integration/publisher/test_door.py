"""Publishing through a real HTTP door: what it confirms is in the database, and once."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sam_pipeline.publisher import NoBrokerTookIt, PublisherConfig, publish
from sam_pipeline.schema.messages.message import Message, pack
from sam_pipeline.schema.records.text import Record
from tests.services import needed
from tests.services.tinyproxy import TinyProxy, running_tinyproxy
from tests.support.brokers.tls_files import HOST, TlsFiles
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.door_site import DoorSite, door_site

MAX_BYTES = 100_000
"""The limit of the door on a message."""


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment without secrets or proxies."""
    for name in os.environ:
        if name.startswith(("SAM_", "BEARER_TOKEN")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DoorSite]:
    """A door without TLS in front of SQLite."""
    with door_site(tmp_path_factory.mktemp("door")) as site:
        yield site


@pytest.fixture(scope="module")
def proxy() -> Iterator[TinyProxy]:
    with needed(running_tinyproxy()) as server:
        yield server


def results(count: int, metric: str) -> list[Record]:
    return [metric_result(hostName=f"ce{at}.example.org", metricName=metric) for at in range(count)]


def messages(count: int, metric: str) -> list[Message]:
    """One record each."""
    return [metric_message(result) for result in results(count, metric)]


def config_for(door: DoorSite, **more: object) -> PublisherConfig:
    return PublisherConfig(brokers=(door.door.url,))._replace(**more)  # type: ignore[arg-type]


def test_what_the_door_confirms_is_in_the_database_once(door: DoorSite) -> None:
    single = messages(1200, "single")
    packed = list(pack(results(250, "packed"), "metricOutput"))

    first = publish([*single, *packed], config_for(door))
    again = publish(single, config_for(door))

    assert (len(first.receipts), len(again.receipts)) == (1203, 1200)
    assert (door.rows("single"), door.rows("packed")) == (1200, 250)


def test_a_record_that_became_a_dead_letter_is_reported_to_its_sender(
    door: DoorSite, caplog: pytest.LogCaptureFixture
) -> None:
    good = metric_result(metricName="half")
    message = metric_message({**good, "metricStatus": "FINE"}, good)
    before = door.letters()

    publication = publish([message], config_for(door))

    assert len(publication.receipts) == 1
    assert (door.rows("half"), door.letters()) == (1, before + 1)
    (warning,) = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert message.message_id in warning.getMessage()
    assert ": 1 dead letter, the first because of " in warning.getMessage()
    assert "FINE" in warning.getMessage()


def test_a_message_that_is_too_large_for_the_door_does_not_stop_the_others(
    tmp_path: Path,
) -> None:
    few = messages(20, "beside")
    large = metric_message(metric_result(detailsData="x" * (MAX_BYTES + 1)))
    spool = tmp_path / "spool"

    with door_site(tmp_path / "site", consumer={"max_message_bytes": MAX_BYTES}) as door:
        publication = publish([*few[:10], large, *few[10:]], config_for(door, spool=spool))

        assert door.rows("beside") == 20
    (rejection,) = publication.rejections
    assert rejection.message == large
    assert rejection.reason.startswith("413 ")
    assert list(publication.spooled) == [large]


@pytest.mark.parametrize("source", ["variable", "key"])
def test_plain_http_goes_through_a_proxy(
    door: DoorSite, proxy: TinyProxy, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    config = config_for(door)
    if source == "variable":
        monkeypatch.setenv("http_proxy", proxy.url)
    else:
        config = config._replace(proxy=proxy.url)
    asked_before = len(proxy.asked)

    publication = publish(messages(600, f"proxy-{source}"), config)

    assert len(publication.receipts) == 600
    assert door.rows(f"proxy-{source}") == 600
    url = f"http://{HOST}:{door.door.port}/v1/messages"
    assert proxy.asked[asked_before:] == [f"POST {url}"] * 2
