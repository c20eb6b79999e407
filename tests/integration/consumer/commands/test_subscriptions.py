"""`sam-consume subscriptions` and `unsubscribe` with real brokers."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from sam_pipeline.consumer.core import drain
from tests.services.activemq import ActiveMQServer
from tests.services.broker import StompServer
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.choice import on_brokers
from tests.support.brokers.fake_broker import FakeBroker, closed_port
from tests.support.consumer.daemon import Subscription, running, site_of
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, results

QUORUM = 'headers = { x-queue-type = "quorum", x-max-length = "2" }\n'


@pytest.fixture
def destination() -> str:
    return f"/topic/VirtualTopic.grid.{uuid.uuid4().hex}"


@pytest.fixture
def spool(tmp_path: Path) -> str:
    (tmp_path / "in").mkdir(mode=0o700)
    return f"spool://{tmp_path}/in"


def states(site: Site) -> list[str]:
    return [row["state"] for row in site.json("subscriptions")]


def unsubscribed(site: Site, *arguments: str) -> tuple[int, str]:
    done = site.run("unsubscribe", *arguments)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def read_only(site: Site, broker: str) -> None:
    """Change the configuration: the consumer reads this broker and no other."""
    urls = site.config.read_text().partition("brokers = ")[2].partition("\n")[0]
    site.edit(urls, json.dumps([broker]))


def test_a_shared_subscription_that_is_left_behind_is_deleted_with_its_messages(
    tmp_path: Path, broker: StompServer, destination: str, spool: str
) -> None:
    site = site_of(tmp_path, [broker.url], Subscription(destination, shared=True))
    assert states(site) == ["new"]
    assert site.drain().code == 0
    assert states(site) == ["offline"]
    publish(broker.host, broker.port, destination, results(3))
    read_only(site, spool)
    [row] = site.json("subscriptions")
    assert (row["state"], row["destination"]) == ("left behind", destination)

    code, text = unsubscribed(site, broker.url, destination)

    if isinstance(broker, ActiveMQServer):
        assert (code, "--forget" in text) == (77, True), text
        assert unsubscribed(site, broker.url, "--forget")[0] == 0
        assert states(site) == []
        return
    assert code == 0, text
    assert f"deleted {row['stored_in']}" in text and "3 messages" in text
    assert states(site) == []
    read_only(site, broker.url)
    assert site.drain().summary["messages"] == 0  # it is made again, and empty


@on_brokers("artemis")  # which lets two clients have one name
def test_nothing_is_deleted_that_a_daemon_reads_or_the_configuration_names(
    tmp_path: Path, broker: StompServer, destination: str
) -> None:
    site = site_of(tmp_path, [broker.url], Subscription(destination))
    with running(site) as daemon:
        daemon.wait_until_subscribed(broker.url)
        while states(site) != ["active"]:
            assert daemon.alive
        read = unsubscribed(site, broker.url, destination, "--yes")
    publish(broker.host, broker.port, destination, results(2))
    configured = unsubscribed(site, broker.url, destination)
    unnamed, _ = unsubscribed(site, broker.url)

    code, text = unsubscribed(site, broker.url, destination, "--yes")

    assert (read[0], f"(process {daemon.process.pid})" in read[1]) == (77, True)
    assert (configured[0], "is configured" in configured[1], unnamed) == (77, True, 64)
    assert (code, "2 messages" in text) == (0, True), text
    assert states(site) == ["new"]


def test_a_subscription_that_was_deleted_by_others_is_reported_as_such(
    tmp_path: Path, rabbitmq: RabbitMQServer, destination: str, spool: str
) -> None:
    site = site_of(tmp_path, [rabbitmq.url], Subscription(destination))
    site.drain()
    read_only(site, spool)
    rabbitmq.delete_queue(site.json("subscriptions")[0]["stored_in"])

    code, text = unsubscribed(site, rabbitmq.url)

    assert (code, states(site), "does not exist any more" in text) == (0, [], True)


def test_a_broker_that_is_away_is_no_success_and_a_mistyped_one_a_usage_error(
    tmp_path: Path, destination: str, spool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "SILENCE_S", 0.2)
    with FakeBroker(server="RabbitMQ/3.10") as broker:
        site = site_of(tmp_path, [broker.url], Subscription(destination))
        site.drain()
        read_only(site, spool)
    other = f"stomp://127.0.0.1:{closed_port()}"

    for arguments, expected, hint in (
        ([broker.url], 69, "is not deleted"),
        ([other], 64, broker.url),
        ([broker.url, f"{destination}x"], 64, destination),
        (["http://x"], 64, "broker URL"),
    ):
        code, text = unsubscribed(site, *arguments)
        assert (code, hint in text) == (expected, True), text
    assert states(site) == ["left behind"]


def test_without_its_table_a_broker_is_not_sent_the_login_of_the_section(
    tmp_path: Path, destination: str, spool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "SILENCE_S", 0.2)
    with FakeBroker(server="ActiveMQ/6.0") as broker:
        site = site_of(tmp_path, [spool], Subscription(destination), user="ours")
        text = site.config.read_text()
        table = f'[[consumer.broker]]\nurl = "{broker.url}"\nuser = "theirs"\n'
        site.config.write_text(text + table)
        site.drain()
        site.config.write_text(text)

        assert unsubscribed(site, broker.url)[0] == 77
        site.config.write_text(text + table + "destinations = []\n")
        code, said = unsubscribed(site, broker.url)

    assert code == 0, said
    assert {frame.headers["login"] for frame in broker.logins} == {"theirs"}


@on_brokers("activemq")
def test_a_changed_selector_is_refused_before_messages_are_dropped(
    tmp_path: Path, broker: StompServer, destination: str
) -> None:
    site = site_of(tmp_path, [broker.url], Subscription(destination))
    table = '[[consumer.broker]]\nurl = "{}"\nheaders = {{ selector = "messageClass = \'{}\'" }}\n'
    with site.config.open("a") as config:
        config.write(table.format(broker.url, "metricOutput"))
    site.drain()
    publish(broker.host, broker.port, destination, results(3))

    site.edit("= 'metricOutput'", "= 'downtime'")
    refused = site.drain(timeout_s=1)
    site.edit("= 'downtime'", "= 'metricOutput'")
    restored = site.drain()

    assert refused.code == 69
    assert f"unsubscribe {broker.url} {destination}" in refused.log
    assert (restored.code, restored.summary["messages"]) == (0, 3)


def test_a_quorum_queue_in_a_virtual_host_is_read_and_deleted(
    tmp_path: Path, rabbitmq: RabbitMQServer, destination: str, spool: str
) -> None:
    vhost = f"monitoring-{uuid.uuid4().hex}"
    rabbitmq.add_virtual_host(vhost)
    site = site_of(tmp_path, [spool], Subscription(destination))
    text = site.config.read_text()
    table = f'[[consumer.broker]]\nurl = "{rabbitmq.url}"\nvhost = "{vhost}"\n'
    site.config.write_text(text + table + QUORUM)
    assert site.drain().code == 0
    publish(rabbitmq.host, rabbitmq.port, destination, results(1))  # in another virtual host
    publish(rabbitmq.host, rabbitmq.port, destination, results(5), vhost=vhost)

    loaded = site.drain()
    site.config.write_text(text + table)
    refused = site.drain(timeout_s=1)
    site.config.write_text(text + table + "destinations = []\n")
    code, said = unsubscribed(site, rabbitmq.url)

    assert (loaded.code, loaded.summary["messages"]) == (0, 2), loaded.log
    assert refused.code == 69
    assert code == 0, said
