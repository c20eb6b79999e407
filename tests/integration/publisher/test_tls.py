"""Publishing over TLS to real brokers that require a client certificate."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
import trustme

from sam_pipeline.publisher import PublisherConfig, publish
from tests.support.brokers.queue_reader import received
from tests.support.brokers.tls_files import TlsBroker
from tests.support.builders import metric_message
from tests.support.commands import Workplace


@pytest.fixture
def config(tls_broker: TlsBroker, tmp_path: Path) -> PublisherConfig:
    """The configuration of a client that trusts the broker and has no certificate."""
    return PublisherConfig(
        brokers=(tls_broker.server.tls_url,),
        spool=tmp_path / "spool",
        ca_file=tls_broker.files.ca_file,
    )


@pytest.fixture
def destination() -> str:
    return f"/queue/publish-tls-{uuid.uuid4().hex}"


def with_certificate(
    config: PublisherConfig, tls_broker: TlsBroker, ours: trustme.LeafCert
) -> PublisherConfig:
    return config._replace(
        certificate_file=tls_broker.files.certificate_file(ours),
        key_file=tls_broker.files.key_file(ours),
    )


def refusal(config: PublisherConfig) -> str:
    """Why the broker took nothing; the message is spooled."""
    publication = publish([metric_message()], config)

    assert len(publication.spooled) == 1
    (failure,) = publication.failures
    return failure.reason


def test_a_message_from_a_client_with_a_certificate_is_confirmed_and_arrives(
    tls_broker: TlsBroker, config: PublisherConfig, destination: str
) -> None:
    message = metric_message(destination=destination)

    publication = publish(
        [message], with_certificate(config, tls_broker, tls_broker.files.client())
    )

    (frame,) = received(tls_broker.server, destination, 1)
    assert len(publication.receipts) == 1
    assert frame.body == message.body
    assert frame.headers["samMessageId"] == message.message_id


def test_many_messages_arrive_once(
    tls_broker: TlsBroker, config: PublisherConfig, destination: str
) -> None:
    messages = [metric_message(destination=destination) for _ in range(1234)]

    publication = publish(messages, with_certificate(config, tls_broker, tls_broker.files.client()))

    frames = received(tls_broker.server, destination, len(messages))
    assert len(publication.receipts) == len(messages)
    assert [frame.headers["samMessageId"] for frame in frames] == [
        message.message_id for message in messages
    ]


def test_a_missing_client_certificate_is_reported_with_the_key_to_set(
    tls_broker: TlsBroker, config: PublisherConfig
) -> None:
    reason = refusal(config)

    assert "client certificate (certificate_file): " in reason


def test_a_client_certificate_from_another_authority_is_reported_as_refused(
    tls_broker: TlsBroker, config: PublisherConfig
) -> None:
    config = with_certificate(config, tls_broker, tls_broker.files.foreign_client())

    reason = refusal(config)

    assert f"certificate {config.certificate_file}: " in reason


def test_nothing_is_sent_to_a_broker_with_an_untrusted_certificate(
    tls_broker: TlsBroker, config: PublisherConfig
) -> None:
    other = tls_broker.files.file("other-ca.pem", tls_broker.files.other.cert_pem.bytes())

    reason = refusal(config._replace(ca_file=other))

    assert "untrusted CA (ca_file): " in reason


def test_an_expired_client_certificate_is_reported_with_its_date(
    tls_broker: TlsBroker, config: PublisherConfig
) -> None:
    config = with_certificate(config, tls_broker, tls_broker.files.expired_client())

    assert f"certificate {config.certificate_file}: it expired on 20" in refusal(config)


def test_plain_stomp_at_the_port_for_tls_names_the_right_url(
    tls_broker: TlsBroker, config: PublisherConfig
) -> None:
    plain = tls_broker.server.tls_url.replace("stomp+ssl://", "stomp://")

    assert "stomp+ssl://" in refusal(config._replace(brokers=(plain,)))


def test_a_load_test_sends_and_receives_under_tls(
    tls_broker: TlsBroker, config: PublisherConfig, tmp_path: Path
) -> None:
    ours = with_certificate(config, tls_broker, tls_broker.files.client())
    place = Workplace(
        tmp_path,
        broker=tls_broker.server.tls_url,
        database="",
        environment={
            f"SAM_PUBLISHER_{name.upper()}": str(getattr(ours, name))
            for name in ("ca_file", "certificate_file", "key_file")
        },
    )
    options = ("--producers=3", "--consumers=2", "--sizes=10k", "--messages=300", "--json")

    done = place.succeed(
        "sam-publish", "load-test", "--broker", tls_broker.server.tls_url, *options
    )

    assert done.json["delivered"] == 600
    assert done.json["problems"] == []
