"""A refused login or destination is reported with the reason, and all others are consumed."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services import needed
from tests.services.activemq import ActiveMQServer, running_activemq
from tests.services.artemis import FORBIDDEN, SILENT, ArtemisServer
from tests.services.broker import Rules, StompServer
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.conservation import consumed, key_of, numbered
from tests.support.consumer.daemon import LOST, Subscription, checked, row_keys, running, site_of
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site


@pytest.fixture(scope="module")
def locked_activemq() -> Iterator[ActiveMQServer]:
    """An ActiveMQ that requires a login."""
    with needed(running_activemq(Rules(needs_login=True))) as server:
        yield server


@pytest.fixture
def destination() -> str:
    return f"/topic/grid.probe.{uuid.uuid4().hex}"


@pytest.fixture
def silent() -> str:
    """A destination without read permission."""
    return f"/topic/{SILENT}{uuid.uuid4().hex}"


def test_activemq_refuses_one_destination_and_the_other_is_consumed(
    tmp_path: Path, strict_activemq: ActiveMQServer, destination: str, silent: str
) -> None:
    site = site_of(tmp_path, [strict_activemq.url], Subscription(silent), Subscription(destination))

    text = logged_refusal(site, strict_activemq, destination)

    assert f"{silent}: User anonymous" in text


def test_artemis_refuses_one_destination_and_the_other_is_consumed(
    tmp_path: Path, artemis: ArtemisServer, destination: str, silent: str
) -> None:
    site = site_of(tmp_path, [artemis.url], Subscription(silent), Subscription(destination))

    text = logged_refusal(site, artemis, destination)

    assert f"{silent}: " in text


def test_rabbitmq_refuses_one_destination_and_the_other_is_consumed(
    tmp_path: Path, rabbitmq: RabbitMQServer, destination: str, silent: str
) -> None:
    user, secret = f"site-{uuid.uuid4().hex}", "canary"
    rabbitmq.add_user(user, secret, topics_read="^grid", topics_written=".*")
    password = tmp_path / "password"
    password.write_text(secret)
    password.chmod(0o600)
    url = f"stomp://{rabbitmq.host}:{rabbitmq.port}"
    site = site_of(
        tmp_path,
        [url],
        Subscription(silent),
        Subscription(destination),
        user=user,
        password_file=password,
    )

    text = logged_refusal(site, rabbitmq, destination)

    assert f"{silent}: " in text
    assert f"access to topic '{silent.removeprefix('/topic/')}'" in text
    assert secret not in text


def test_check_reports_an_unreadable_destination_but_not_an_unwritable_one(
    tmp_path: Path, strict_activemq: ActiveMQServer, silent: str
) -> None:
    subscriptions = [Subscription(silent), Subscription(f"/topic/{FORBIDDEN}{uuid.uuid4().hex}")]
    site = site_of(tmp_path, [strict_activemq.url], *subscriptions)

    code, document = checked(site)

    unreadable, unwritable = document["brokers"]
    assert code == 78
    assert document["problems"] == [unreadable["problem"]]
    assert f"{silent}: User anonymous" in unreadable["problem"]
    assert unwritable["proven"].startswith("subscribed; sending a message is not permitted")


def logged_refusal(site: Site, broker: StompServer, allowed: str) -> str:
    """The only log line about the refused destination, while the allowed one is consumed."""
    messages = numbered("allowed", range(50))
    with running(site) as daemon:
        daemon.wait_until_subscribed(broker.url)
        publish(broker.host, broker.port, allowed, messages)
        site.wait_for_rows(50)
        (line,) = daemon.lines("ERROR", broker.url)
        assert daemon.stop().code == 0
    consumed([key_of(message.body) for message in messages], row_keys(site))
    return line


def test_a_wrong_password_is_reported_and_the_corrected_one_used_at_the_next_attempt(
    tmp_path: Path, locked_activemq: ActiveMQServer, destination: str
) -> None:
    broker, password = locked_activemq, tmp_path / "password"
    password.write_text("wrong")
    password.chmod(0o600)
    site = site_of(
        tmp_path, [broker.url], Subscription(destination), user=broker.user, password_file=password
    )
    with running(site) as daemon:
        daemon.wait_for(" ERROR ", LOST, broker.url, "password is invalid")
        password.write_text(broker.password)  # read again for each connection
        daemon.wait_until_subscribed(broker.url)

        assert broker.password not in daemon.log


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_broker_with_an_older_stomp_is_refused_and_its_version_reported(
    tmp_path: Path, destination: str, version: str
) -> None:
    with FakeBroker(server="ActiveMQ/5.0", version=version) as broker:
        text = refusal(tmp_path, broker, destination)

    assert f"it speaks STOMP {version}, not 1.2" in text
    assert broker.subscriptions == []


def test_a_broker_that_refuses_our_version_is_reported_with_its_own_versions(
    tmp_path: Path, destination: str
) -> None:
    with FakeBroker(refuses_login="Supported protocol versions are 1.0") as broker:
        text = refusal(tmp_path, broker, destination)

    assert "Supported protocol versions are 1.0" in text


def test_a_port_that_does_not_speak_stomp_is_reported_with_its_answer(
    tmp_path: Path, destination: str
) -> None:
    with FakeBroker(greeting=b"HTTP/1.1 400 Bad Request\r\n\r\n") as broker:
        text = refusal(tmp_path, broker, destination)

    assert "no STOMP frame begins" in text
    assert "HTTP/1.1 400" in text


def test_a_broker_of_an_unknown_kind_is_named(tmp_path: Path, destination: str) -> None:
    with FakeBroker(server="Fancy/3.0") as broker:
        text = refusal(tmp_path, broker, destination)

    assert "unsupported kind of broker: Fancy/3.0" in text


def refusal(directory: Path, broker: FakeBroker, destination: str) -> str:
    site = site_of(directory, [broker.url], Subscription(destination))
    with running(site) as daemon:
        (line, *_) = daemon.wait_for(LOST, broker.url)
    return line
