"""Real brokers of two owners: tables of single brokers, and copies when one of them is frozen."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from sam_pipeline.publisher import publish
from sam_pipeline.publisher.cli import main
from sam_pipeline.publisher.delivery.copies import GRACE_S
from sam_pipeline.publisher.delivery.drain import drain
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.publisher.settings.load import load_config
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services import needed
from tests.services.activemq import ActiveMQServer
from tests.services.broker import StompServer
from tests.services.rabbitmq import RabbitMQServer
from tests.services.tinyproxy import TinyProxy, running_tinyproxy
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.queue_reader import received_ids
from tests.support.brokers.tls_files import TlsFiles
from tests.support.builders import metric_message
from tests.support.conservation import conserved

TIMEOUT_S = 3.0
SLACK_S = 1.0
USER, PASSWORD, VHOST = "region", "region-secret", "monitoring"


@pytest.fixture(autouse=True)
def own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in os.environ:
        if name.startswith("SAM_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def region(rabbitmq: RabbitMQServer, tmp_path: Path) -> RabbitMQServer:
    """RabbitMQ with a second virtual host, and a login that may use that one alone."""
    rabbitmq.add_virtual_host(VHOST, USER, PASSWORD)
    secret(tmp_path / "password", PASSWORD)
    return rabbitmq


@pytest.fixture(scope="module")
def proxy() -> Iterator[TinyProxy]:
    with needed(running_tinyproxy()) as server:
        yield server


def secret(path: Path, text: str) -> Path:
    path.write_text(f"{text}\n")
    path.chmod(0o600)
    return path


def configured(text: str) -> PublisherConfig:
    Path("sam.toml").write_text(f"[publisher]\ntimeout_s = {TIMEOUT_S}\n{text}")
    return load_config(None, {})


def table(server: StompServer, *, vhost: str) -> str:
    """The table of a broker with the login of the region."""
    login = f'user = "{USER}"\npassword_file = "password"\n'
    return f'[[publisher.broker]]\nurl = "{server.url}"\nvhost = "{vhost}"\n{login}'


def test_a_login_of_one_virtual_host_publishes_there_and_nowhere_else(
    region: RabbitMQServer, capsys: pytest.CaptureFixture[str]
) -> None:
    destination = f"/topic/vhost.{uuid.uuid4().hex}"

    configured(table(region, vhost=VHOST))
    assert main(["check", "--connect", "--destination", destination, "--json"]) == 0
    (trip,) = json.loads(capsys.readouterr().out)["brokers"]
    assert trip["proven"] == "round trip"

    configured(table(region, vhost="/"))
    assert main(["check", "--connect", "--destination", destination]) == 78
    assert "login failed" in capsys.readouterr().err


def test_a_spooled_message_reaches_the_virtual_host(region: RabbitMQServer) -> None:
    name = f"vhost-{uuid.uuid4().hex}"
    message = metric_message(destination=f"/queue/{name}")
    assert publish([message], configured("")).spooled

    assert drain(configured(table(region, vhost=VHOST))).sent == 1

    assert region.queue_of(VHOST, name)["durable"]


def test_one_broker_is_reached_through_a_proxy_and_the_other_one_directly(
    activemq: ActiveMQServer, region: RabbitMQServer, proxy: TinyProxy
) -> None:
    text = table(region, vhost=VHOST) + f'proxy = "{proxy.url}"\n'
    asked_before = len(proxy.asked)
    message = metric_message(destination=f"/queue/proxy-{uuid.uuid4().hex}")

    publish([message], configured(f'brokers = ["{activemq.url}"]\n{text}'))
    assert len(proxy.asked) == asked_before
    publication = publish([message], configured(text))

    assert len(publication.receipts) == 1
    assert proxy.asked[asked_before] == f"CONNECT {region.host}:{region.port}"


def test_each_broker_is_trusted_by_its_own_authority_and_gets_its_own_certificate(
    tmp_path: Path,
) -> None:
    ours, theirs = (TlsFiles(make_directory(tmp_path / name)) for name in ("ours", "theirs"))
    with (
        FakeBroker(tls=ours.server(wants_ours=True)) as one,
        FakeBroker(tls=theirs.server(wants_ours=True)) as other,
    ):
        section, there = (
            f'ca_file = "{files.ca_file}"\ncertificate_file = "{known}"\n'
            for files in (ours, theirs)
            for known in [files.x509_proxy(files.client())]
        )
        head = f'brokers = ["{one.url}"]\n{section}'
        publish([metric_message()], configured(head))
        config = configured(f'{section}[[publisher.broker]]\nurl = "{other.url}"\n{there}')
        publish([metric_message()], config)
        without = configured(f'{section}[[publisher.broker]]\nurl = "{other.url}"\n')
        assert publish([metric_message()], without).spooled

    assert [len(broker.taken) for broker in (one, other)] == [1, 1]


def make_directory(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.parametrize("down", ["section", "copy"])
def test_a_frozen_set_of_brokers_neither_delays_nor_duplicates_the_other(
    activemq: ActiveMQServer, rabbitmq: RabbitMQServer, down: str
) -> None:
    destination = f"/queue/copies-{uuid.uuid4().hex}"
    servers: tuple[StompServer, StompServer] = (activemq, rabbitmq)
    config = configured(
        f'brokers = ["{activemq.url}"]\n'
        f'[[publisher.copy]]\nname = "region"\nbrokers = ["{rabbitmq.url}"]\n'
    )
    frozen = servers[down == "copy"]
    sent: list[Message] = []
    durations = []

    def publish_some(count: int) -> None:
        messages = [metric_message(destination=destination) for _ in range(count)]
        started = time.monotonic()
        publish(messages, config)
        durations.append(time.monotonic() - started)
        sent.extend(messages)

    publish_some(20)
    with frozen.frozen():
        publish_some(20)  # waits for the frozen one once,
        publish_some(20)  # which then rests
    forget_rests()
    publish_some(20)
    forget_rests()
    assert main(["spool", "drain"]) == 0

    assert durations[1] < TIMEOUT_S + GRACE_S + SLACK_S
    assert durations[2] < TIMEOUT_S / 2
    spools = (Path("state/spool"), Path("state/copies/region/spool"))
    ids = [message.message_id for message in sent]
    for server, spool in zip(servers, spools, strict=True):
        delivered = received_ids(server, destination, ids)
        conserved(ids, delivered, DirectoryQueue(spool))
        twice = {name for name, count in Counter(delivered).items() if count > 1}
        # A broker that was frozen may have got those whose receipts did not arrive in time.
        assert twice <= (set(ids[20:40]) if server is frozen else set())


def forget_rests() -> None:
    for path in Path("state").rglob("brokers.json"):
        path.unlink()
