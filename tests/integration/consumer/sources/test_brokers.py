"""`sam-consume run` with real brokers and real databases."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from sam_pipeline.schema.messages.message import new_message
from sam_pipeline.schema.records.text import write_wlcg
from tests.services.activemq import ActiveMQServer
from tests.services.broker import StompServer
from tests.services.rabbitmq import RabbitMQServer
from tests.support.builders import metric_result
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import (
    Site,
    eventually,
    fill_spool,
    make_site,
    results,
    stop,
    subscribe,
)


@pytest.fixture
def destination() -> str:
    return f"/topic/grid.probe.{uuid.uuid4().hex}"


@pytest.fixture
def site(tmp_path: Path, postgres_url: str, broker: StompServer, destination: str) -> Site:
    """A site of its own on PostgreSQL, subscribed once."""
    site = make_site(tmp_path, postgres_url, [broker.url], destination)
    subscribe(broker, site.name, destination)
    return site


def test_messages_sent_while_the_consumer_is_stopped_are_loaded_once(
    site: Site, broker: StompServer, destination: str
) -> None:
    publish(broker.host, broker.port, destination, results(2500))

    first, second = site.drain(), site.drain()

    assert (first.code, first.summary["messages"], first.summary["rows"]) == (0, 2500, 2500)
    assert (second.code, second.summary["messages"]) == (0, 0)
    assert site.rows() == 2500


def test_duplicate_messages_change_nothing(
    site: Site, broker: StompServer, destination: str
) -> None:
    messages = results(50)
    publish(broker.host, broker.port, destination, [*messages, *messages])

    drained = site.drain()

    assert drained.summary["messages"] == 100
    assert site.rows() == 50


def test_a_bad_record_becomes_a_dead_letter_and_the_others_are_loaded(
    site: Site, broker: StompServer, destination: str
) -> None:
    records = [metric_result(), metric_result(metricStatus="MAYBE"), metric_result(voName="cms")]
    body = "".join(map(write_wlcg, records))
    publish(broker.host, broker.port, destination, [new_message("metricOutput", body)])

    drained = site.drain()

    assert drained.code == 65
    assert sum(drained.summary["dead_letters"].values()) == 1
    assert site.rows() == 2


def test_a_message_without_a_class_gets_that_of_its_subscription(
    site: Site, broker: StompServer, destination: str
) -> None:
    (message,) = results(1)
    foreign = {key: value for key, value in message.headers.items() if key == "content-type"}
    publish(broker.host, broker.port, destination, [type(message)(foreign, message.body)])

    assert site.drain().code == 0
    assert site.rows() == 1


def test_sigterm_commits_and_acks_the_messages_in_memory(
    site: Site, broker: StompServer, destination: str
) -> None:
    with site.daemon() as process:
        publish(broker.host, broker.port, destination, results(3000))
        site.wait_for_rows(1)
        code, took_s = stop(process)
    loaded = site.rows()

    drained = site.drain()

    assert (code, site.rows()) == (0, 3000)
    assert took_s < 10
    assert drained.summary["messages"] == 3000 - loaded


def test_a_consumer_killed_repeatedly_loses_nothing(
    site: Site, broker: StompServer, destination: str
) -> None:
    publish(broker.host, broker.port, destination, results(3000))
    for kill in range(1, 4):
        with site.daemon():  # killed by SIGKILL at the end of the block
            site.wait_for_rows(kill * 500)

    drained = site.drain()

    assert drained.code == 0
    assert site.rows() == 3000


def test_the_consumer_reconnects_to_a_restarted_broker(
    site: Site, broker: StompServer, destination: str
) -> None:
    with site.daemon() as process:
        publish(broker.host, broker.port, destination, results(10, "before"))
        site.wait_for_rows(10)
        broker.restart()
        publish(broker.host, broker.port, destination, results(10, "after"))

        site.wait_for_rows(20)
        assert process.poll() is None


def test_two_brokers_and_a_spool_are_consumed_at_once(
    tmp_path: Path, activemq: ActiveMQServer, rabbitmq: RabbitMQServer, destination: str
) -> None:
    spool = tmp_path / "spool"
    urls = [activemq.url, rabbitmq.url, f"spool://{spool}"]
    site = make_site(tmp_path, f"sqlite:///{tmp_path}/sam.db", urls, destination)
    for server in (activemq, rabbitmq):
        subscribe(server, site.name, destination)
    publish(activemq.host, activemq.port, destination, results(100, "activemq"))
    publish(rabbitmq.host, rabbitmq.port, destination, results(200, "rabbitmq"))
    fill_spool(spool, results(300, "spool"))

    drained = site.drain()

    per_broker = {broker["broker"]: broker["messages"] for broker in drained.summary["brokers"]}
    assert per_broker == dict(zip(urls, [100, 200, 300], strict=True))
    assert site.rows() == 600


def test_an_unreachable_broker_is_reported_after_the_others_are_drained(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    fill_spool(spool, results(10))
    urls = ["stomp://127.0.0.1:1", f"spool://{spool}"]
    site = make_site(tmp_path, f"sqlite:///{tmp_path}/sam.db", urls)

    drained = site.drain(timeout_s=1)

    assert drained.code == 69
    assert "stomp://127.0.0.1:1 (connection refused)" in drained.log
    assert drained.summary["rows"] == site.rows() == 10


def test_messages_locked_by_a_killed_reader_of_a_spool_are_loaded(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    site = make_site(tmp_path, f"sqlite:///{tmp_path}/sam.db", [f"spool://{spool}"])
    fill_spool(spool, results(500))
    for _ in range(3):
        before = site.rows()
        with site.daemon():
            eventually(lambda before=before: site.rows() > before or before == 500)

    assert site.drain().code == 0
    assert site.rows() == 500
    assert list(spool.glob("*/*")) == []
