"""Publishing over TLS to real brokers that want a certificate of their clients."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme

from sam_pipeline.publisher import PublisherConfig, publish
from tests.services import ServiceMissing, missing
from tests.services.activemq import running_activemq
from tests.services.artemis import running_artemis
from tests.services.broker import Rules
from tests.services.rabbitmq import running_rabbitmq
from tests.support.brokers.queue_reader import RealBroker, received
from tests.support.brokers.tls_files import TlsFiles
from tests.support.builders import metric_message

RUNNING = {
    "activemq": running_activemq,
    "artemis": running_artemis,
    "rabbitmq": running_rabbitmq,
}


class TlsBroker(NamedTuple):
    """A broker that trusts, and is known by, the authority of `files`."""

    server: RealBroker
    url: str
    files: TlsFiles


@pytest.fixture(scope="module", params=["activemq", "artemis", "rabbitmq"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsBroker]:
    files = TlsFiles(tmp_path_factory.mktemp("tls"))
    try:
        with RUNNING[request.param](Rules(files.host_certificate())) as server:
            yield TlsBroker(server, server.tls_url, files)
    except ServiceMissing as reason:
        missing(reason.name, reason.how_to_get_it)


@pytest.fixture
def config(broker: TlsBroker, tmp_path: Path) -> PublisherConfig:
    """Of a client that trusts the broker, and has no certificate yet."""
    return PublisherConfig(
        brokers=(broker.url,), spool=tmp_path / "spool", ca_file=broker.files.ca_file
    )


@pytest.fixture
def destination() -> str:
    return f"/queue/publish-tls-{uuid.uuid4().hex}"


def known_as(config: PublisherConfig, broker: TlsBroker, ours: trustme.LeafCert) -> PublisherConfig:
    return config._replace(
        certificate_file=broker.files.certificate_file(ours), key_file=broker.files.key_file(ours)
    )


def refusal(config: PublisherConfig) -> str:
    """The words for a broker that took nothing; the spool did."""
    publication = publish([metric_message()], config)

    assert len(publication.spooled) == 1
    (failure,) = publication.failures
    return failure.reason


def test_a_message_from_a_client_with_a_certificate_is_confirmed_and_arrives(
    broker: TlsBroker, config: PublisherConfig, destination: str
) -> None:
    message = metric_message(destination=destination)

    publication = publish([message], known_as(config, broker, broker.files.client()))

    (frame,) = received(broker.server, destination, 1)
    assert len(publication.receipts) == 1
    assert frame.body == message.body
    assert frame.headers["samMessageId"] == message.message_id


def test_many_messages_arrive_once(
    broker: TlsBroker, config: PublisherConfig, destination: str
) -> None:
    messages = [metric_message(destination=destination) for _ in range(1234)]

    publication = publish(messages, known_as(config, broker, broker.files.client()))

    frames = received(broker.server, destination, len(messages))
    assert len(publication.receipts) == len(messages)
    assert [frame.headers["samMessageId"] for frame in frames] == [
        message.message_id for message in messages
    ]


def test_a_client_without_a_certificate_is_told_what_is_wanted(
    broker: TlsBroker, config: PublisherConfig
) -> None:
    words = refusal(config)

    assert "it wants a certificate of ours and was given none (certificate_file): " in words


def test_a_client_with_a_certificate_of_another_authority_is_told_that_it_is_refused(
    broker: TlsBroker, config: PublisherConfig
) -> None:
    config = known_as(config, broker, broker.files.foreign_client())

    words = refusal(config)

    assert f"it does not accept our certificate {config.certificate_file}: " in words


def test_a_broker_of_an_authority_that_is_not_trusted_gets_nothing(
    broker: TlsBroker, config: PublisherConfig
) -> None:
    other = broker.files.file("other-ca.pem", broker.files.other.cert_pem.bytes())

    words = refusal(config._replace(ca_file=other))

    assert words.startswith("its certificate comes from a CA that is not trusted here (ca_file): ")
