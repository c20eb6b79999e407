"""Publishing over TLS: a reason for each refusal, and nothing in plain text."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
import trustme

from sam_pipeline.publisher import Publication, PublisherConfig, publish
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.tls import CLOSED, NO_TLS, TOO_OLD
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.http_stand_in import HttpStandIn
from tests.support.brokers.tls_files import HOST, NOW, TLS_1_2, TLS_1_3, TlsFiles
from tests.support.builders import metric_message
from tests.support.publishing import config_for, messages, sized, spooled

DAY = timedelta(days=1)
CLIENT_HELLO = 22
PROTOCOL_VERSION_ALERT = b"\x15\x03\x01\x00\x02\x02\x46"
CLOSE_NOTIFY_ALERT = b"\x15\x03\x03\x00\x02\x01\x00"
LARGE_HANDSHAKE_RECORD = b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc"
# A ServerHello of TLS 1.1: version, random, no session, a cipher, no compression.
SERVER_HELLO_1_1 = b"\x16\x03\x02\x00\x2a\x02\x00\x00\x26\x03\x02" + bytes(32) + b"\x00\x00\x2f\x00"

BOTH_VERSIONS = pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3], ids=["TLS 1.2", "TLS 1.3"])
Treatment = Callable[[socket.socket, threading.Event], object]


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


@pytest.fixture
def config(files: TlsFiles) -> PublisherConfig:
    """A configuration that trusts `files.ca`, without brokers."""
    return config_for(ca_file=files.ca_file)


@contextmanager
def peer(treat: Treatment, heard: list[bytes]) -> Iterator[str]:
    """The URL of a peer that treats each connection so after its first bytes, which it keeps."""
    stopping = threading.Event()

    def accept() -> None:
        while not stopping.is_set():
            with suppress(TimeoutError):
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    connection.settimeout(30)
                    heard.append(connection.recv(65536))
                    treat(connection, stopping)

    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(0.05)
        thread = threading.Thread(target=accept)
        thread.start()
        yield f"stomp+ssl://{HOST}:{listener.getsockname()[1]}"
        stopping.set()
        thread.join(30)


def why(publication: Publication) -> str:
    """The reason why the only broker failed."""
    (failure,) = publication.failures
    return failure.reason


def publish_one(config: PublisherConfig, *urls: str) -> Publication:
    return publish(messages(1), config._replace(brokers=urls))


@pytest.mark.parametrize("ours", [None, "own files", "proxy"])
@BOTH_VERSIONS
def test_a_message_is_published_with_the_certificate_that_the_broker_requires(
    files: TlsFiles, config: PublisherConfig, version: ssl.TLSVersion, ours: str | None
) -> None:
    if ours == "own files":
        client = files.client()
        certificate, key = files.certificate_file(client), files.key_file(client)
        config = config._replace(certificate_file=certificate, key_file=key)
    elif ours == "proxy":  # certificate, key and signers in one file
        config = config._replace(certificate_file=files.x509_proxy(files.delegated_client()))

    with FakeBroker(tls=files.server(version=version, wants_ours=bool(ours))) as broker:
        publication = publish_one(config, broker.url)

    assert broker.ids == [publication.receipts[0].message.message_id]
    assert not publication.failures


@BOTH_VERSIONS
def test_a_broker_that_blocks_until_its_bytes_are_read_gets_everything_unchanged(
    files: TlsFiles, config: PublisherConfig, version: ssl.TLSVersion
) -> None:
    bodies = [os.urandom(1_000_000) for _ in range(12)] + [b"small %d" % n for n in range(600)]
    sent = [Message(metric_message().headers, body) for body in bodies]

    with FakeBroker(tls=files.server(version=version), floods=12_000_000) as broker:
        publication = publish(sent, config._replace(brokers=(broker.url,), timeout_s=60.0))

    assert [frame.body for frame in broker.taken] == bodies
    assert len(publication.receipts) == len(sent)


UNTRUSTED: dict[str, Callable[[TlsFiles], trustme.LeafCert]] = {
    "an untrusted CA (ca_file)": lambda files: files.other.issue_cert(HOST),
    f"not for {HOST}: ip address mismatch": lambda files: files.host("mq.example.org"),
    "its certificate has expired": lambda files: files.expired_host(),
    "its certificate is not valid yet": lambda files: files.future_host(),
}


@pytest.mark.parametrize("stem", UNTRUSTED)
@BOTH_VERSIONS
def test_nothing_is_sent_to_a_broker_with_an_invalid_certificate(
    files: TlsFiles, config: PublisherConfig, version: ssl.TLSVersion, stem: str
) -> None:
    tls = files.server(UNTRUSTED[stem](files), version=version)
    with FakeBroker(tls=tls) as broker:
        publication = publish_one(config, broker.url)

    assert stem in why(publication)
    assert (broker.connections, broker.logins, len(spooled())) == (1, [], 1)


def new_directory(files: TlsFiles, name: str) -> Path:
    (files.directory / name).mkdir()
    return files.directory / name


UNCHECKED: dict[str, Callable[[TlsFiles], Path]] = {
    "has expired": lambda files: files.revocation_list(end=NOW - DAY),
    "is not valid yet": lambda files: files.revocation_list(begin=NOW + DAY),
    "no revocation list": lambda files: TlsFiles(new_directory(files, "b")).revocation_list(),
    "there is no revocation list": lambda files: new_directory(files, "empty"),
    "contains no revocation list": lambda files: files.file("crl", b"# to come\n"),
}


@pytest.mark.parametrize("stem", UNCHECKED)
def test_nothing_is_sent_without_a_list(
    files: TlsFiles, config: PublisherConfig, stem: str
) -> None:
    with FakeBroker(tls=files.server()) as broker:
        reason = why(publish_one(config._replace(crl_file=UNCHECKED[stem](files)), broker.url))

    assert stem in reason and "crl" in reason
    assert broker.logins == []


def test_only_a_broker_that_was_revoked_is_refused(
    files: TlsFiles, config: PublisherConfig
) -> None:
    revoked, directory = files.host(), new_directory(files, "lists")
    files.revocation_list(revoked, name="lists/8ae1bf1d.r0")
    config = config._replace(crl_file=directory)

    with FakeBroker(tls=files.server(revoked)) as bad, FakeBroker(tls=files.server()) as good:
        assert "its certificate is revoked" in why(publish_one(config, bad.url))
        assert publish_one(config, good.url).receipts
    assert bad.logins == []


def test_a_revoked_authority_is_refused(files: TlsFiles, config: PublisherConfig) -> None:
    child = files.ca.create_child_ca()
    own = files.revocation_list(name="own.pem", authority=child).read_bytes()
    good = files.file("good.pem", own + files.revocation_list().read_bytes())
    bad = files.file("bad.pem", own + files.revocation_list(child).read_bytes())

    with FakeBroker(tls=files.server(child.issue_cert(HOST))) as broker:
        assert publish_one(config._replace(crl_file=good), broker.url).receipts
        reason = why(publish_one(config._replace(crl_file=bad), broker.url))
    assert "its certificate is revoked" in reason


REFUSED: dict[str, Callable[[TlsFiles], trustme.LeafCert] | None] = {
    "it requires a client certificate (certificate_file): ": None,
    "it rejected our certificate {}: its CA is unknown": lambda files: files.foreign_client(),
    "it rejected our certificate {}: it expired on 20": lambda files: files.expired_client(),
    "it rejected our certificate {}: it is revoked": lambda files: files.client(),
}


@pytest.mark.parametrize("stem", REFUSED)
@BOTH_VERSIONS
def test_a_refused_client_certificate_is_reported_with_the_reason(
    files: TlsFiles, config: PublisherConfig, version: ssl.TLSVersion, stem: str
) -> None:
    tls = files.server(version=version, wants_ours=True)
    if known := REFUSED[stem]:
        config = config._replace(certificate_file=files.x509_proxy(ours := known(files)))
        if "revoked" in stem:
            tls = files.server(version=version, revoked=ours)

    with FakeBroker(tls=tls) as broker:
        reason = why(publish_one(config, broker.url))

    assert stem.format(config.certificate_file) in reason
    assert broker.logins == []


@pytest.mark.parametrize("size", [10, 4_000_000])
def test_a_late_refusal_is_reported(files: TlsFiles, config: PublisherConfig, size: int) -> None:
    """With TLS 1.3 the client finishes the handshake before the server checks its certificate."""
    with HttpStandIn(context=files.server(wants_ours=True)) as server:
        url = f"rabbitmq-api+https://{HOST}:{server.port}/%2F/amq.topic"
        publication = publish([sized(size)], config._replace(brokers=(url,)))

    assert "it requires a client certificate" in why(publication)
    assert server.asked == []


def says(answer: bytes) -> Treatment:
    """A peer that sends one answer and closes."""
    return lambda connection, stopping: connection.sendall(answer)


def reset(connection: socket.socket, stopping: threading.Event) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


@pytest.mark.parametrize(
    ("treat", "stem"),
    [
        (says(b"ERROR\nmessage:what is this?\n\n\0"), NO_TLS),
        (says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), NO_TLS),
        (says(b"AMQP\x00\x00\x09\x01"), NO_TLS),
        (says(b""), CLOSED),
        (says(CLOSE_NOTIFY_ALERT), CLOSED),
        (reset, "it closed the connection during the TLS handshake"),
        (says(PROTOCOL_VERSION_ALERT), TOO_OLD),
        (says(SERVER_HELLO_1_1), TOO_OLD),
    ],
    ids=["STOMP", "HTTP", "AMQP", "closed", "farewell", "reset", "alert", "TLS 1.1"],
)
def test_no_peer_ever_gets_plain_text(config: PublisherConfig, treat: Treatment, stem: str) -> None:
    with peer(treat, heard := []) as url:
        assert why(publish_one(config, url)).startswith(stem)

    (hello,) = heard
    assert hello[0] == CLIENT_HELLO
    assert b"CONNECT" not in hello


def drip(connection: socket.socket, stopping: threading.Event) -> None:
    connection.sendall(LARGE_HANDSHAKE_RECORD)
    while not stopping.wait(0.05):
        connection.sendall(b"\0")


@pytest.mark.parametrize(
    "treat", [lambda _, stopping: stopping.wait(60), drip], ids=["mute", "drip"]
)
def test_a_handshake_that_does_not_end_leaves_time_for_the_next_broker(
    files: TlsFiles, config: PublisherConfig, treat: Treatment
) -> None:
    with peer(treat, []) as url, FakeBroker(tls=files.server()) as broker:
        publication = publish_one(config._replace(timeout_s=2.0), url, broker.url)

    assert why(publication) == "no answer in time"
    assert len(broker.taken) == 1
