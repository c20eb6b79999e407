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
from tests.support.publishing import messages, secret

Server = ActiveMQServer | RabbitMQServer
USER = "proxy-user"
PASSWORD = "proxy-secret"


@pytest.fixture(scope="module")
def proxy() -> Iterator[TinyProxy]:
    """A proxy that requires a login."""
    with needed(running_tinyproxy(USER, PASSWORD)) as server:
        yield server


@pytest.fixture(autouse=True)
def no_proxy_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.lower().endswith("_proxy") or name == "REQUEST_METHOD":
            monkeypatch.delenv(name)


@on_brokers("activemq", "rabbitmq")
def test_a_message_passes_the_proxy_with_its_login_alone(
    broker: Server, proxy: TinyProxy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url, asked = broker.url_with_user, f"CONNECT {broker.host}:{broker.port}"
    if isinstance(broker, RabbitMQServer):
        url, asked = broker.api_url, f"POST {broker.management_url}/api/exchanges/"
    password = secret(tmp_path / "password", broker.password)
    config = PublisherConfig((url,), password_file=password)
    # Tinyproxy answers 401 to a wrong login.
    for login, status in (("", "407"), (f"{USER}:wrong-secret@", "401 Unauthorized")):
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", f"//{login}"))
        with pytest.raises(NoBrokerTookIt) as refusal:
            publish(messages(1), config)
        (failure,) = refusal.value.publication.failures
        assert status in failure.reason and f"proxy {proxy.url} (http_proxy)" in failure.reason
        assert "secret" not in failure.reason
    monkeypatch.setenv("http_proxy", proxy.url_with(f"{USER}:{PASSWORD}"))
    message = metric_message(destination=f"/topic/proxy.{uuid.uuid4().hex}")
    asked_before = len(proxy.asked)

    with subscribed(broker, message.headers["destination"]) as frames:
        publication = publish([message], config)
        frame = next(frames)

    assert len(publication.receipts) == 1
    assert frame.body == message.body
    assert proxy.asked[asked_before].startswith(asked)
