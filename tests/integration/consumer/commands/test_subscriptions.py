"""`sam-consume subscriptions` and `unsubscribe` with real brokers."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.services.activemq import ActiveMQServer
from tests.services.broker import StompServer
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.choice import on_brokers
from tests.support.brokers.fake_broker import FakeBroker, closed_port
from tests.support.consumer.daemon import Subscription, running, site_of
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, results
from tests.support.page import Page

(PAGE,) = Page("docs/brokers.md").texts("toml", "Queues and virtual hosts")
QUORUM = f"[[consumer.broker]]{PAGE.split('[[consumer.broker]]')[1].split('[[')[0]}"


@pytest.fixture
def destination() -> str:
    return f"/topic/VirtualTopic.grid.{uuid.uuid4().hex}"


@pytest.fixture
def spool(tmp_path: Path) -> str:
    (tmp_path / "in").mkdir(mode=0o700)
    return f"spool://{tmp_path}/in"


def states(site: Site) -> list[str]:
    return [row["state"] for row in listed(site)]


def listed(site: Site) -> list[dict[str, Any]]:
    done = site.run("subscriptions", "--json")
    assert done.returncode == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def unsubscribed(site: Site, *arguments: str) -> tuple[int, str]:
    done = site.run("unsubscribe", *arguments)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def read_only(site: Site, broker: str) -> None:
    """Change the configuration: the consumer reads this broker and no other."""
    text = site.config.read_text()
    urls = text.partition("brokers = ")[2].partition("\n")[0]
    site.config.write_text(text.replace(urls, json.dumps([broker]), 1))


def test_a_shared_subscription_that_is_left_behind_is_deleted_with_its_messages(
    tmp_path: Path, broker: StompServer, destination: str, spool: str
) -> None:
    site = site_of(tmp_path, [broker.url], Subscription(destination, shared=True))
    assert states(site) == ["new"]
    assert site.drain().code == 0
    assert states(site) == ["offline"]
    publish(broker.host, broker.port, destination, results(3))
    read_only(site, spool)
    [row] = listed(site)
    assert (row["state"], row["destination"]) == ("left behind", destination)

    code, text = unsubscribed(site, broker.url, destination)

    if isinstance(broker, ActiveMQServer):
        assert code == 77
        assert f"{row['stored_in']} is a queue" in text
        assert "--forget" in text
        return
    assert code == 0, text
    assert f"deleted {row['stored_in']}" in text
    assert "3 messages" in text
    assert listed(site) == []
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
        code, text = unsubscribed(site, broker.url, destination, "--yes")
        assert code == 77
        assert f"(process {daemon.process.pid})" in text
    publish(broker.host, broker.port, destination, results(2))
    code, text = unsubscribed(site, broker.url, destination)
    assert code == 77
    assert "is configured" in text
    assert unsubscribed(site, broker.url)[0] == 64

    code, text = unsubscribed(site, broker.url, destination, "--yes")

    assert code == 0, text
    assert "2 messages" in text
    assert states(site) == ["new"]


def test_a_subscription_that_was_deleted_by_others_is_reported_as_such(
    tmp_path: Path, rabbitmq: RabbitMQServer, destination: str, spool: str
) -> None:
    site = site_of(tmp_path, [rabbitmq.url], Subscription(destination))
    site.drain()
    read_only(site, spool)
    [row] = listed(site)
    rabbitmq.delete_queue(row["stored_in"])

    code, text = unsubscribed(site, rabbitmq.url)

    assert (code, listed(site)) == (0, [])
    assert "does not exist any more" in text


def test_a_broker_that_is_away_is_no_success(tmp_path: Path, destination: str, spool: str) -> None:
    with FakeBroker(server="RabbitMQ/3.10") as broker:
        site = site_of(tmp_path, [broker.url], Subscription(destination))
        site.drain()
        read_only(site, spool)

    code, text = unsubscribed(site, broker.url)

    assert code == 69
    assert "is not deleted" in text
    assert states(site) == ["left behind"]


def test_without_its_table_a_broker_is_not_sent_the_login_of_the_section(
    tmp_path: Path, destination: str, spool: str
) -> None:
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


def test_a_mistyped_broker_or_destination_is_a_usage_error(
    tmp_path: Path, destination: str
) -> None:
    with FakeBroker(server="RabbitMQ/3.10") as broker:
        site = site_of(tmp_path, [broker.url], Subscription(destination))
        site.drain()
    other = f"stomp://127.0.0.1:{closed_port()}"

    for arguments, hint in (
        ((other,), broker.url),
        ((broker.url, f"{destination}x"), destination),
        (("http://x",), "broker URL"),
    ):
        code, text = unsubscribed(site, *arguments)
        assert code == 64
        assert hint in text


@on_brokers("activemq")
def test_a_changed_selector_is_refused_before_messages_are_dropped(
    tmp_path: Path, broker: StompServer, destination: str
) -> None:
    def select(selector: str) -> None:
        site.config.write_text(
            f'{text}[[consumer.broker]]\nurl = "{broker.url}"\n'
            f'headers = {{ selector = "{selector}" }}\n'
        )

    site = site_of(tmp_path, [broker.url], Subscription(destination))
    text = site.config.read_text()
    select("messageClass = 'metricOutput'")
    site.drain()
    publish(broker.host, broker.port, destination, results(3))

    select("messageClass = 'downtime'")
    refused = site.drain(timeout_s=2)
    select("messageClass = 'metricOutput'")
    restored = site.drain()

    assert refused.code == 69
    assert f"unsubscribe {broker.url} {destination}" in refused.log
    assert (restored.code, restored.summary["messages"]) == (0, 3)


def test_a_quorum_queue_in_a_virtual_host_is_read_and_deleted(
    tmp_path: Path, rabbitmq: RabbitMQServer, destination: str, spool: str
) -> None:
    rabbitmq.add_virtual_host("monitoring")
    site = site_of(tmp_path, [spool], Subscription(destination))
    text = site.config.read_text()
    table, headers = QUORUM.replace("1000000", "2").split("headers = ")
    table = table.replace("stomp+ssl://msg1.example.org:61614", rabbitmq.url)
    quorum = f"headers = {headers}"
    site.config.write_text(text + table + quorum)
    assert site.drain().code == 0
    publish(rabbitmq.host, rabbitmq.port, destination, results(1))  # in another virtual host
    publish(rabbitmq.host, rabbitmq.port, destination, results(5), vhost="monitoring")

    loaded = site.drain()
    site.config.write_text(text + table)
    refused = site.drain(timeout_s=2)
    site.config.write_text(text + table + "destinations = []\n")
    code, said = unsubscribed(site, rabbitmq.url)

    assert (loaded.code, loaded.summary["messages"]) == (0, 2), loaded.log
    assert refused.code == 69
    assert "inequivalent arg" in refused.log
    assert "restore them" in refused.log
    assert code == 0, said
