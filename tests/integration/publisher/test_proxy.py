"""Publishing through a real HTTP proxy: STOMP with CONNECT, REST with absolute URIs."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from sam_pipeline.publisher import NoBrokerTookIt, PublisherConfig, publish
from tests.services import needed
from tests.services.activemq import ActiveMQServer
from tests.services.rabbitmq import RabbitMQServer
from tests.services.tinyproxy import TinyProxy, running_tinyproxy
from tests.support.brokers.choice import on_brokers
from tests.support.brokers.subscriber import subscribed
from tests.support.builders import metric_message

Server = ActiveMQServer | RabbitMQServer
USER = "proxy-user"
PASSWORD = "proxy-secret"


@pytest.fixture(scope="module")
def proxy() -> Iterator[TinyProxy]:
    """A proxy that requires a login."""
    with needed(running_tinyproxy(USER, PASSWORD)) as server:
        yield server


by_stomp_and_http = on_brokers("activemq", "rabbitmq")


@pytest.fixture(autouse=True)
def no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.lower().endswith("_proxy") or name == "REQUEST_METHOD":
            monkeypatch.delenv(name)


def url_of(server: Server) -> str:
    return server.api_url if isinstance(server, RabbitMQServer) else server.url_with_user


def secret(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def config_for(server: Server, tmp_path: Path) -> PublisherConfig:
    password = secret(tmp_path / "password", server.password)
    return PublisherConfig((url_of(server),), password_file=password)


def logged_request(server: Server) -> str:
    """The start of the proxy's log line for a request to the broker."""
    if isinstance(server, RabbitMQServer):
        return f"POST {server.management_url}/api/exchanges/"
    return f"CONNECT {server.host}:{server.port}"


@by_stomp_and_http
@pytest.mark.parametrize("source", ["variable", "key and file"])
def test_a_message_reaches_a_subscriber_through_the_proxy(
    broker: Server, proxy: TinyProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str
) -> None:
    config = config_for(broker, tmp_path)
    if source == "variable":
        monkeypatch.setenv("http_proxy", proxy.url_with(f"{USER}:{PASSWORD}"))
    else:
        file = secret(tmp_path / "proxy-password", PASSWORD)
        config = config._replace(proxy=proxy.url_with(USER), proxy_password_file=file)
    message = metric_message(destination=f"/topic/proxy.{uuid.uuid4().hex}")
    asked_before = len(proxy.asked)

    with subscribed(broker, message.headers["destination"]) as frames:
        publication = publish([message], config)
        frame = next(frames)

    assert len(publication.receipts) == 1
    assert frame.body == message.body
    assert proxy.asked[asked_before].startswith(logged_request(broker))


@by_stomp_and_http
@pytest.mark.parametrize(
    ("login", "status"),
    [
        ("", "407 Proxy Authentication Required"),
        (f"{USER}:wrong-secret", "401 Unauthorized"),  # tinyproxy answers 401 instead of 407 here
    ],
    ids=["without login", "wrong login"],
)
def test_a_proxy_that_refuses_the_login_is_named(
    broker: Server,
    proxy: TinyProxy,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    login: str,
    status: str,
) -> None:
    monkeypatch.setenv("http_proxy", proxy.url_with(login) if login else proxy.url)

    with pytest.raises(NoBrokerTookIt) as refusal:
        publish([metric_message()], config_for(broker, tmp_path))

    (failure,) = refusal.value.publication.failures
    assert status in failure.reason
    assert f"proxy {proxy.url} (http_proxy)" in failure.reason
    assert "secret" not in failure.reason
