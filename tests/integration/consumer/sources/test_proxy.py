"""Brokers that the consumer reaches through an HTTP proxy, a real tinyproxy."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services import needed
from tests.services.broker import StompServer
from tests.services.tinyproxy import TinyProxy, running_tinyproxy
from tests.support.brokers.choice import on_brokers
from tests.support.brokers.fake_broker import black_hole, closed_port
from tests.support.brokers.proxy_server import ProxyServer
from tests.support.brokers.subscriber import subscribed
from tests.support.builders import metric_message
from tests.support.consumer.daemon import Subscription, checked, running, site_of
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, eventually, fill_spool, results

LOGIN = "site-a:proxy-secret"
REFUSED = 69
"""The exit code of a drain without its broker."""


@pytest.fixture(scope="module")
def proxy() -> Iterator[TinyProxy]:
    user, _, password = LOGIN.partition(":")
    with needed(running_tinyproxy(user, password)) as server:
        yield server


@pytest.fixture
def destination() -> str:
    return f"/topic/grid.{uuid.uuid4().hex}"


def site_behind(
    tmp_path: Path, broker: StompServer, destination: str, proxy_url: str, **settings: str | float
) -> Site:
    """A consumer whose broker is reached through the proxy, with a password for it."""
    password = tmp_path / "proxy-password"
    password.write_text(LOGIN.partition(":")[2])
    password.chmod(0o600)
    return site_of(
        tmp_path,
        [broker.url],
        Subscription(destination),
        proxy=proxy_url,
        proxy_password_file=password,
        **settings,
    )


def address(broker: StompServer) -> str:
    return f"{broker.host}:{broker.port}"


@on_brokers("activemq", "artemis", "rabbitmq")
def test_messages_arrive_through_a_proxy_that_wants_a_login(
    tmp_path: Path, broker: StompServer, destination: str, proxy: TinyProxy
) -> None:
    site = site_behind(tmp_path, broker, destination, proxy.url_with("site-a"))
    assert site.drain().code == 0
    publish(broker.host, broker.port, destination, results(3))

    loaded = site.drain()

    assert (loaded.code, loaded.summary["messages"]) == (0, 3), loaded.log
    assert f"CONNECT {address(broker)}" in proxy.asked
    assert LOGIN not in loaded.log


@on_brokers("rabbitmq")
def test_a_daemon_goes_on_when_its_proxy_is_back(
    tmp_path: Path, broker: StompServer, destination: str
) -> None:
    with needed(running_tinyproxy()) as proxy:
        site = site_behind(tmp_path, broker, destination, proxy.url)
        assert site.drain().code == 0
        with running(site) as daemon:
            publish(broker.host, broker.port, destination, results(2))
            eventually(lambda: site.scalar("SELECT count(*) FROM metricOutput") == 2)
            proxy.process.kill()
            daemon.wait_for("connection refused")
            publish(broker.host, broker.port, destination, results(5))
            proxy.process.start()

            eventually(lambda: site.scalar("SELECT count(*) FROM metricOutput") == 5)


@on_brokers("rabbitmq")
def test_a_proxy_without_its_login_or_without_an_answer_is_named(
    tmp_path: Path, broker: StompServer, destination: str, proxy: TinyProxy
) -> None:
    refused = site_behind(tmp_path, broker, destination, proxy.url).drain(timeout_s=1)
    closed = f"http://127.0.0.1:{closed_port()}"
    away = site_behind(tmp_path, broker, destination, closed).drain(timeout_s=1)
    with black_hole() as hole:
        url = hole.replace("stomp", "http")
        silent = site_behind(tmp_path, broker, destination, url).drain(timeout_s=1)

    assert (refused.code, away.code, silent.code) == (REFUSED, REFUSED, REFUSED)
    assert f"proxy {proxy.url}" in refused.log
    assert "login" in refused.log
    assert f"proxy {closed}" in away.log
    assert f"proxy {url}" in silent.log


@on_brokers("artemis")
def test_the_proxy_of_a_table_is_for_its_broker_alone(
    tmp_path: Path, broker: StompServer, destination: str, proxy: TinyProxy
) -> None:
    site = site_behind(tmp_path, broker, destination, f"http://127.0.0.1:{closed_port()}")
    table = f'[[consumer.broker]]\nurl = "{broker.url}"\nproxy = "none"\n'
    site.config.write_text(site.config.read_text() + table)
    before = len(proxy.asked)

    assert site.drain().code == 0
    assert len(proxy.asked) == before


@on_brokers("rabbitmq")
def test_check_names_the_proxy_and_unsubscribe_goes_through_it(
    tmp_path: Path, broker: StompServer, destination: str, proxy: TinyProxy
) -> None:
    site = site_behind(tmp_path, broker, destination, proxy.url_with("site-a"))
    assert site.drain().code == 0

    code, document = checked(site)
    before = len(proxy.asked)
    deleted = site.run("unsubscribe", broker.url, destination, "--yes")

    assert code == 0, document
    assert document["brokers"][0]["address"] == f"proxy {proxy.url} ([consumer] proxy)"
    assert deleted.returncode == 0, deleted.stderr
    assert {*proxy.asked[before:]} == {f"CONNECT {address(broker)}"}


@on_brokers("activemq")
def test_a_relay_sends_through_the_proxy(
    tmp_path: Path, broker: StompServer, destination: str, proxy: TinyProxy
) -> None:
    spool = f"spool://{tmp_path}/in"
    site = site_behind(tmp_path, broker, destination, proxy.url_with("site-a"))
    text = site.config.read_text().replace(f'"{broker.url}"', f'"{spool}"')
    site.config.write_text(text.partition("[[consumer.subscription]]")[0])
    fill_spool(tmp_path / "in", [metric_message(destination=destination)])
    before = len(proxy.asked)

    with subscribed(broker, destination) as frames:
        moved = site.run("run", "--drain", "--to", broker.url)
        assert moved.returncode == 0, moved.stderr
        next(frames)

    assert {*proxy.asked[before:]} == {f"CONNECT {address(broker)}"}


@on_brokers("rabbitmq")
def test_a_proxy_that_forbids_the_broker_is_an_error_and_a_mute_one_a_loss(
    tmp_path: Path, broker: StompServer, destination: str
) -> None:
    with ProxyServer(refuses=403) as proxy:
        site = site_behind(tmp_path, broker, destination, proxy.url)
        with running(site) as daemon:
            [line, *_] = daemon.wait_for("403")
        assert line.startswith("ERROR") or " ERROR " in line
        assert 'proxy = "none"' in line
    with ProxyServer(mute=True) as proxy:
        site = site_behind(tmp_path, broker, destination, proxy.url)
        with running(site) as daemon:
            [line, *_] = daemon.wait_for("no answer in time")
        assert f"proxy {proxy.url}" in line
        assert " WARNING " in f" {line}"
