"""Publishing over TLS: a reason for each refusal, and nothing in plain text."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trustme

from sam_pipeline.publisher import PublisherConfig, publish
from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.connection import open_channel
from sam_pipeline.publisher.delivery.publication import Publication
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker_url import parse_broker
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.tls import CLOSED, NO_COMMON_CIPHER, NO_TLS, TOO_OLD
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.http_stand_in import HttpStandIn
from tests.support.brokers.tls_files import HOST, TLS_1_1, TLS_1_2, TLS_1_3, TlsFiles
from tests.support.builders import metric_message

SLACK_S = 0.7
SPOOLING_S = 0.5
"""Allowed per megabyte on a busy machine; without a deadline the test would not end at all."""
"""What a loaded machine may add to a deadline."""
PATIENCE_S = 10.0
CLIENT_HELLO = 22
PROTOCOL_VERSION_ALERT = b"\x15\x03\x01\x00\x02\x02\x46"
CLOSE_NOTIFY_ALERT = b"\x15\x03\x03\x00\x02\x01\x00"
LARGE_HANDSHAKE_RECORD = b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc"
# A ServerHello of TLS 1.1: version, random, no session, a cipher, no compression.
SERVER_HELLO_1_1 = b"\x16\x03\x02\x00\x2a\x02\x00\x00\x26\x03\x02" + bytes(32) + b"\x00\x00\x2f\x00"

BOTH_VERSIONS = pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3], ids=["TLS 1.2", "TLS 1.3"])


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


@pytest.fixture
def spool(tmp_path: Path) -> DirectoryQueue:
    return DirectoryQueue(tmp_path / "spool")


@pytest.fixture
def config(files: TlsFiles, spool: DirectoryQueue) -> PublisherConfig:
    """A configuration that trusts `files.ca`, without brokers."""
    return PublisherConfig(spool=spool.path, ca_file=files.ca_file, timeout_s=5.0)


@dataclass
class Peer:
    """Accepts connections and runs a function on each; `heard` has the first bytes of each."""

    treat: Callable[[socket.socket, threading.Event], object]
    heard: list[bytes] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[str]:
        """The URL of the peer, with TLS."""
        stopping = threading.Event()
        with socket.create_server((HOST, 0)) as listener:
            listener.settimeout(0.05)
            thread = threading.Thread(target=self._accept, args=(listener, stopping))
            thread.start()
            yield f"stomp+ssl://{HOST}:{listener.getsockname()[1]}"
            stopping.set()
            thread.join(PATIENCE_S)

    def _accept(self, listener: socket.socket, stopping: threading.Event) -> None:
        while not stopping.is_set():
            with suppress(TimeoutError):
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    connection.settimeout(PATIENCE_S)
                    self.heard.append(connection.recv(65536))
                    self.treat(connection, stopping)


def says(answer: bytes) -> Callable[[socket.socket, threading.Event], object]:
    """A peer that sends one answer and closes."""
    return lambda connection, stopping: connection.sendall(answer)


def why(publication: Publication) -> str:
    """The reason why the only broker failed."""
    (failure,) = publication.failures
    return failure.reason


def address_of(broker: FakeBroker, name: str) -> BrokerAddress:
    """The broker by another name, as a resolver would give it."""
    return BrokerAddress(parse_broker(broker.url)._replace(host=name), HOST)


def a_while() -> Deadline:
    return Deadline.after(PATIENCE_S)


def publish_one(config: PublisherConfig, *urls: str) -> Publication:
    return publish([metric_message()], config._replace(brokers=urls))


def known_by(config: PublisherConfig, files: TlsFiles, ours: trustme.LeafCert) -> PublisherConfig:
    """The configuration with this client certificate."""
    return config._replace(
        certificate_file=files.certificate_file(ours), key_file=files.key_file(ours)
    )


# What works


@BOTH_VERSIONS
def test_a_message_is_published_over_tls(
    files: TlsFiles, config: PublisherConfig, version: ssl.TLSVersion
) -> None:
    with FakeBroker(tls=files.server(version=version)) as broker:
        publication = publish_one(config, broker.url)

    assert broker.ids == [publication.receipts[0].message.message_id]
    assert not publication.failures


def test_without_a_ca_file_the_authorities_of_the_system_are_trusted(
    files: TlsFiles, config: PublisherConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config._replace(ca_file=None)

    with FakeBroker(tls=files.server()) as broker:
        refused = publish_one(config, broker.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(files.ca_file))
        publish_one(config._replace(state=None), broker.url)

    assert "an untrusted CA" in why(refused)
    assert len(broker.taken) == 2  # the second call drains the spool


@BOTH_VERSIONS
def test_a_broker_that_requires_a_certificate_gets_ours(
    files: TlsFiles, config: PublisherConfig, version: ssl.TLSVersion
) -> None:
    config = known_by(config, files, files.client())

    with FakeBroker(tls=files.server(version=version, wants_ours=True)) as broker:
        publish_one(config, broker.url)

    assert len(broker.taken) == 1


def test_certificate_key_and_signers_may_be_in_one_file_like_an_x509_proxy(
    files: TlsFiles, config: PublisherConfig
) -> None:
    config = config._replace(certificate_file=files.x509_proxy(files.delegated_client()))

    with FakeBroker(tls=files.server(wants_ours=True)) as broker:
        publish_one(config, broker.url)

    assert len(broker.taken) == 1


def test_a_trailing_dot_of_the_name_is_ignored_in_the_certificate_check(
    files: TlsFiles, config: PublisherConfig
) -> None:
    with FakeBroker(tls=files.server(files.host("mq.example.org"))) as broker:
        channel = open_channel(address_of(broker, "mq.example.org."), config, a_while())
        channel.send(b"CONNECT\n\n\0")
        answer = channel.receive()
        channel.close()

    assert answer.startswith(b"CONNECTED")


@BOTH_VERSIONS
def test_large_bodies_and_many_messages_arrive_unchanged(
    files: TlsFiles, config: PublisherConfig, version: ssl.TLSVersion
) -> None:
    bodies = [os.urandom(1_000_000) for _ in range(8)] + [b"small %d" % n for n in range(1500)]
    messages = [Message(metric_message().headers, body) for body in bodies]

    with FakeBroker(tls=files.server(version=version)) as broker:
        publication = publish(messages, config._replace(brokers=(broker.url,), timeout_s=30.0))

    assert [frame.body for frame in broker.taken] == bodies
    assert len(publication.receipts) == len(messages)


@BOTH_VERSIONS
def test_a_broker_that_blocks_until_its_bytes_are_read_gets_everything(
    files: TlsFiles, config: PublisherConfig, version: ssl.TLSVersion
) -> None:
    bodies = [os.urandom(1_000_000) for _ in range(12)]
    messages = [Message(metric_message().headers, body) for body in bodies]

    with FakeBroker(tls=files.server(version=version), floods=12_000_000) as broker:
        publication = publish(messages, config._replace(brokers=(broker.url,), timeout_s=30.0))

    assert [frame.body for frame in broker.taken] == bodies
    assert not publication.failures


# A broker that is another one


@pytest.mark.parametrize(
    ("certificate", "stem"),
    [
        (lambda files: files.other.issue_cert(HOST), "an untrusted CA (ca_file)"),
        (lambda files: files.host("mq.example.org"), f"not for {HOST}: ip address mismatch"),
        (lambda files: files.expired_host(), "its certificate has expired"),
        (lambda files: files.future_host(), "its certificate is not valid yet"),
    ],
    ids=["other CA", "other host", "expired", "not yet valid"],
)
@BOTH_VERSIONS
def test_nothing_is_sent_to_a_broker_with_an_invalid_certificate(
    files: TlsFiles,
    config: PublisherConfig,
    spool: DirectoryQueue,
    version: ssl.TLSVersion,
    certificate: Callable[[TlsFiles], trustme.LeafCert],
    stem: str,
) -> None:
    tls = files.server(certificate(files), version=version)

    with FakeBroker(tls=tls) as broker:
        publication = publish_one(config, broker.url)

    assert stem in why(publication)
    assert (broker.connections, broker.logins) == (1, [])
    assert spool.count() == 1


def test_the_certificate_is_checked_against_the_name_in_the_url(
    files: TlsFiles, config: PublisherConfig
) -> None:
    with FakeBroker(tls=files.server()) as broker:
        publication = publish_one(config, broker.url.replace(HOST, "localhost"))

    assert why(publication).startswith("its certificate is not for localhost: hostname mismatch")
    assert broker.logins == []


@pytest.mark.parametrize("name", [".example.org", f"{'x' * 64}.example.org"])
def test_a_name_that_no_certificate_can_have_is_reported(
    files: TlsFiles, config: PublisherConfig, name: str
) -> None:
    with (
        FakeBroker(tls=files.server()) as broker,
        pytest.raises(BrokerUnavailable, match=f"{name} is not a valid host name"),
    ):
        open_channel(address_of(broker, name), config, a_while())


# A broker that does not want us


@pytest.mark.parametrize(
    ("version", "stem"),
    [(TLS_1_2, "handshake failure"), (TLS_1_3, "certificate required")],
    ids=["TLS 1.2", "TLS 1.3"],
)
def test_a_missing_client_certificate_is_reported(
    files: TlsFiles, config: PublisherConfig, version: ssl.TLSVersion, stem: str
) -> None:
    with FakeBroker(tls=files.server(version=version, wants_ours=True)) as broker:
        publication = publish_one(config, broker.url)

    assert why(publication).endswith(f"it requires a client certificate (certificate_file): {stem}")
    assert broker.logins == []


@BOTH_VERSIONS
def test_a_client_certificate_from_an_unknown_authority_is_reported(
    files: TlsFiles, config: PublisherConfig, version: ssl.TLSVersion
) -> None:
    config = known_by(config, files, files.foreign_client())

    with FakeBroker(tls=files.server(version=version, wants_ours=True)) as broker:
        publication = publish_one(config, broker.url)

    ours = config.certificate_file
    assert why(publication).endswith(f"it rejected our certificate {ours}: its CA is unknown there")
    assert broker.logins == []


@BOTH_VERSIONS
def test_an_expired_client_certificate_is_reported_with_its_date(
    files: TlsFiles, config: PublisherConfig, version: ssl.TLSVersion
) -> None:
    config = known_by(config, files, files.expired_client())

    with FakeBroker(tls=files.server(version=version, wants_ours=True)) as broker:
        publication = publish_one(config, broker.url)

    ours = config.certificate_file
    assert f"it rejected our certificate {ours}: it expired on 20" in why(publication)
    assert broker.logins == []


@BOTH_VERSIONS
def test_a_revoked_client_certificate_is_reported(
    files: TlsFiles, config: PublisherConfig, version: ssl.TLSVersion
) -> None:
    client = files.client()
    config = known_by(config, files, client)

    with FakeBroker(tls=files.server(version=version, revoked=client)) as broker:
        publication = publish_one(config, broker.url)

    ours = config.certificate_file
    assert why(publication).endswith(f"it rejected our certificate {ours}: it is revoked")
    assert broker.logins == []


def test_another_certificate_than_the_revoked_one_is_accepted(
    files: TlsFiles, config: PublisherConfig
) -> None:
    config = known_by(config, files, files.client())

    with FakeBroker(tls=files.server(revoked=files.client())) as broker:
        publish_one(config, broker.url)

    assert len(broker.taken) == 1


@pytest.mark.parametrize("size", [10, 4_000_000])
def test_a_refusal_during_a_request_is_reported(
    files: TlsFiles, config: PublisherConfig, size: int
) -> None:
    """With TLS 1.3 the client finishes the handshake before the server checks its certificate."""
    message = Message(metric_message().headers, b"x" * size)

    with HttpStandIn(context=files.server(wants_ours=True)) as server:
        url = f"rabbitmq-api+https://{HOST}:{server.port}/%2F/amq.topic"
        publication = publish([message], config._replace(brokers=(url,)))

    assert "it requires a client certificate" in why(publication)
    assert server.asked == []


def test_a_missing_common_cipher_is_not_reported_as_a_missing_certificate(
    files: TlsFiles, config: PublisherConfig
) -> None:
    tls = files.server(version=TLS_1_2)
    tls.set_ciphers("ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0")

    with FakeBroker(tls=tls) as broker:
        publication = publish_one(config, broker.url)

    assert why(publication) == NO_COMMON_CIPHER
    assert broker.logins == []


# A peer that speaks something else, or nothing


@pytest.mark.parametrize(
    "answer",
    [
        b"ERROR\nmessage:what is this?\n\n\0",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"220 mail.example.org ESMTP\r\n",
        b"AMQP\x00\x00\x09\x01",
    ],
    ids=["STOMP", "HTTP", "SMTP", "AMQP"],
)
def test_a_peer_without_tls_never_receives_plain_text(
    config: PublisherConfig, answer: bytes
) -> None:
    peer = Peer(says(answer))

    with peer.running() as url:
        publication = publish_one(config, url)

    assert why(publication) == NO_TLS
    (hello,) = peer.heard
    assert hello[0] == CLIENT_HELLO
    assert b"CONNECT" not in hello


@pytest.mark.parametrize("answer", [b"", CLOSE_NOTIFY_ALERT], ids=["at once", "with a farewell"])
def test_a_peer_that_closes_instead_of_answering_is_reported(
    config: PublisherConfig, answer: bytes
) -> None:
    peer = Peer(says(answer))

    with peer.running() as url:
        publication = publish_one(config, url)

    assert why(publication) == CLOSED
    assert len(peer.heard) == 1


def test_a_peer_that_resets_the_connection_instead_of_answering_is_reported(
    config: PublisherConfig,
) -> None:
    def reset(connection: socket.socket, stopping: threading.Event) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    with Peer(reset).running() as url:
        publication = publish_one(config, url)

    assert why(publication).startswith("it closed the connection during the TLS handshake")


@pytest.mark.parametrize(
    "answer", [PROTOCOL_VERSION_ALERT, SERVER_HELLO_1_1], ids=["alert", "ServerHello"]
)
def test_a_peer_with_nothing_newer_than_tls_1_1_is_reported(
    config: PublisherConfig, answer: bytes
) -> None:
    with Peer(says(answer)).running() as url:
        publication = publish_one(config, url)

    assert why(publication) == TOO_OLD


def test_a_broker_with_tls_1_1_is_reported(files: TlsFiles, config: PublisherConfig) -> None:
    tls = files.server(version=TLS_1_1)
    tls.set_ciphers("ALL:@SECLEVEL=0")

    with FakeBroker(tls=tls) as broker:
        publication = publish_one(config, broker.url)

    assert why(publication) == TOO_OLD
    assert broker.logins == []


def test_a_silent_peer_uses_only_its_share_of_the_deadline(
    files: TlsFiles, config: PublisherConfig
) -> None:
    mute = Peer(lambda connection, stopping: stopping.wait(PATIENCE_S))
    started = time.monotonic()

    with mute.running() as url, FakeBroker(tls=files.server()) as broker:
        publication = publish_one(config._replace(timeout_s=1.0), url, broker.url)
        elapsed_s = time.monotonic() - started

    assert why(publication) == "no answer in time"
    assert len(broker.taken) == 1
    assert elapsed_s < 0.5 + SLACK_S


def test_a_dripping_handshake_uses_only_its_share_of_the_deadline(
    files: TlsFiles, config: PublisherConfig
) -> None:
    def drip(connection: socket.socket, stopping: threading.Event) -> None:
        connection.sendall(LARGE_HANDSHAKE_RECORD)
        while not stopping.wait(0.05):
            connection.sendall(b"\0")

    started = time.monotonic()

    with Peer(drip).running() as url, FakeBroker(tls=files.server()) as broker:
        publication = publish_one(config._replace(timeout_s=1.0), url, broker.url)
        elapsed_s = time.monotonic() - started

    assert why(publication) == "no answer in time"
    assert len(broker.taken) == 1
    assert 0.4 < elapsed_s < 0.5 + SLACK_S


@BOTH_VERSIONS
def test_a_broker_that_freezes_under_tls_ends_at_the_deadline(
    files: TlsFiles, config: PublisherConfig, spool: DirectoryQueue, version: ssl.TLSVersion
) -> None:
    large = [Message(metric_message().headers, b"x" * 1_000_000) for _ in range(16)]
    started = time.monotonic()

    with FakeBroker(tls=files.server(version=version), freezes_after=1) as broker:
        config = config._replace(brokers=(broker.url,), timeout_s=1.0)
        publication = publish(large, config)
        elapsed_s = time.monotonic() - started

    assert len(publication.receipts) + spool.count() == len(large)
    assert elapsed_s < 1.0 + 16 * SPOOLING_S + SLACK_S


@BOTH_VERSIONS
def test_a_broker_that_closes_without_a_tls_closure_alert_is_reported(
    files: TlsFiles, config: PublisherConfig, version: ssl.TLSVersion
) -> None:
    with FakeBroker(tls=files.server(version=version), drops_after=1) as broker:
        config = config._replace(brokers=(broker.url,))
        publication = publish([metric_message(), metric_message()], config)

    assert "it closed the connection" in why(publication)
    assert "handshake" not in why(publication)
    assert len(publication.receipts) == 1


# Files of ours


def test_the_key_of_another_certificate_is_reported(
    files: TlsFiles, config: PublisherConfig
) -> None:
    config = config._replace(
        certificate_file=files.certificate_file(files.client()),
        key_file=files.key_file(files.client()),
    )

    with FakeBroker(tls=files.server(wants_ours=True)) as broker:
        publication = publish_one(config, broker.url)

    ours = config.certificate_file
    assert why(publication) == f"{ours}: the key does not match the certificate"
    assert broker.logins == []


def test_a_ca_file_without_a_certificate_is_reported(
    files: TlsFiles, config: PublisherConfig
) -> None:
    config = config._replace(ca_file=files.file("empty.pem", b"# to come\n"))

    with FakeBroker(tls=files.server()) as broker:
        publication = publish_one(config, broker.url)

    assert why(publication).startswith(f"{config.ca_file}: contains no certificate")


def test_a_certificate_file_that_was_removed_is_reported(
    files: TlsFiles, config: PublisherConfig
) -> None:
    config = known_by(config, files, files.client())
    files.key_file(files.client()).unlink()

    with FakeBroker(tls=files.server()) as broker:
        publication = publish_one(config, broker.url)

    assert why(publication) == f"{config.key_file}: no such file or directory"
