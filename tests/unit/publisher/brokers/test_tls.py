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
from typing import Any

import pytest
import trustme

from sam_pipeline.publisher import publish
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.tls import CLOSED, NO_TLS, TOO_OLD
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.http_stand_in import HttpStandIn
from tests.support.brokers.proxy_server import ProxyServer
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


def outcome(files: TlsFiles, *urls: str, **settings: Any) -> str:
    """Publish a message over TLS; why the first broker failed, if it did."""
    failures = publish(messages(1), config_for(*urls, ca_file=files.ca_file, **settings)).failures
    return failures[0].reason if failures else ""


@pytest.mark.parametrize("ours", ["none", "own files", "proxy"])
@BOTH_VERSIONS
def test_our_certificate_is_accepted(files: TlsFiles, version: ssl.TLSVersion, ours: str) -> None:
    settings, client = {}, files.client()
    if ours == "own files":
        settings = {"certificate_file": files.certificate_file(client)}
        settings["key_file"] = files.key_file(client)
    elif ours == "proxy":  # certificate, key and signers in one file
        settings = {"certificate_file": files.x509_proxy(files.delegated_client())}

    with FakeBroker(tls=files.server(version=version, wants_ours=ours != "none")) as broker:
        assert outcome(files, broker.url, **settings) == ""

    assert len(broker.taken) == 1


@BOTH_VERSIONS
def test_everything_arrives_unchanged(files: TlsFiles, version: ssl.TLSVersion) -> None:
    """This broker blocks until its bytes are read."""
    bodies = [os.urandom(1_000_000) for _ in range(12)] + [b"small %d" % n for n in range(600)]
    sent = [Message(metric_message().headers, body) for body in bodies]

    with FakeBroker(tls=files.server(version=version), floods=12_000_000) as broker:
        publish(sent, config_for(broker.url, ca_file=files.ca_file, timeout_s=60.0))

    assert [frame.body for frame in broker.taken] == bodies
    assert spooled() == []


UNTRUSTED: dict[str, Callable[[TlsFiles], trustme.LeafCert]] = {
    "an untrusted CA (ca_file)": lambda files: files.other.issue_cert(HOST),
    f"not for {HOST}: ip address mismatch": lambda files: files.host("mq.example.org"),
    "its certificate has expired": lambda files: files.expired_host(),
    "its certificate is not valid yet": lambda files: files.future_host(),
}


@pytest.mark.parametrize("stem", UNTRUSTED)
@BOTH_VERSIONS
def test_an_untrusted_broker_gets_nothing(
    files: TlsFiles, version: ssl.TLSVersion, stem: str
) -> None:
    with FakeBroker(tls=files.server(UNTRUSTED[stem](files), version=version)) as broker:
        assert stem in outcome(files, broker.url)

    assert (broker.connections, broker.logins, len(spooled())) == (1, [], 1)


@pytest.mark.parametrize(("name", "taken"), [("mq.example.org.", 1), ("other.example.org", 0)])
def test_the_certificate_must_be_for_the_name(files: TlsFiles, name: str, taken: int) -> None:
    """Here only the proxy knows the name."""
    tls = files.server(files.host("mq.example.org"))
    with FakeBroker(tls=tls) as broker, ProxyServer(hosts={name: HOST}) as proxy:
        reason = outcome(files, broker.url.replace(HOST, name), proxy=proxy.url)

    assert ("hostname mismatch" in reason, len(broker.taken)) == (not taken, taken)


def new_directory(files: TlsFiles, name: str) -> Path:
    (files.directory / name).mkdir()
    return files.directory / name


UNCHECKED: dict[str, Callable[[TlsFiles], Path]] = {
    "has expired": lambda files: files.revocation_list(end=NOW - DAY),
    "is not valid yet": lambda files: files.revocation_list(begin=NOW + DAY),
    "no revocation list": lambda files: TlsFiles(new_directory(files, "b")).revocation_list(),
    "its authority has no revocation list": lambda files: new_directory(files, "empty"),
    "contains no revocation list": lambda files: files.file("crl", b"# to come\n"),
}


@pytest.mark.parametrize("stem", UNCHECKED)
def test_nothing_is_sent_to_a_broker_that_cannot_be_checked(files: TlsFiles, stem: str) -> None:
    with FakeBroker(tls=files.server()) as broker:
        reason = outcome(files, broker.url, crl_file=UNCHECKED[stem](files))

    assert stem in reason and "crl" in reason
    assert broker.logins == []


def test_only_a_broker_that_was_revoked_is_refused(files: TlsFiles) -> None:
    revoked, directory = files.host(), new_directory(files, "lists")
    files.revocation_list(revoked, name="lists/8ae1bf1d.r0")

    with FakeBroker(tls=files.server(revoked)) as bad, FakeBroker(tls=files.server()) as good:
        assert "its certificate is revoked" in outcome(files, bad.url, crl_file=directory)
        assert outcome(files, good.url, crl_file=directory) == ""
    assert bad.logins == []


def test_a_revoked_authority_is_refused(files: TlsFiles) -> None:
    child = files.ca.create_child_ca()
    own = files.revocation_list(name="own.pem", authority=child).read_bytes()
    good = files.file("good.pem", own + files.revocation_list().read_bytes())
    bad = files.file("bad.pem", own + files.revocation_list(child).read_bytes())

    with FakeBroker(tls=files.server(child.issue_cert(HOST))) as broker:
        assert outcome(files, broker.url, crl_file=good) == ""
        assert "its certificate is revoked" in outcome(files, broker.url, crl_file=bad)


REFUSED: dict[str, Callable[[TlsFiles], trustme.LeafCert]] = {
    "its CA is unknown": lambda files: files.foreign_client(),
    "it expired on 20": lambda files: files.expired_client(),
    "it is revoked": lambda files: files.client(),
}


@pytest.mark.parametrize("stem", REFUSED)
@BOTH_VERSIONS
def test_our_certificate_is_refused(files: TlsFiles, version: ssl.TLSVersion, stem: str) -> None:
    ours = REFUSED[stem](files)
    path, revoked = files.x509_proxy(ours), ours if stem == "it is revoked" else None

    with FakeBroker(tls=files.server(version=version, wants_ours=True, revoked=revoked)) as broker:
        reason = outcome(files, broker.url, certificate_file=path)

    assert f"it rejected our certificate {path}: {stem}" in reason
    assert broker.logins == []


@pytest.mark.parametrize("size", [10, 4_000_000])
def test_a_broker_that_requires_a_certificate_is_reported(files: TlsFiles, size: int) -> None:
    """With TLS 1.3 the client finishes the handshake before the server checks its certificate."""
    with HttpStandIn(context=files.server(wants_ours=True)) as server:
        url = f"rabbitmq-api+https://{HOST}:{server.port}/%2F/amq.topic"
        publication = publish([sized(size)], config_for(url, ca_file=files.ca_file))

    assert "it requires a client certificate" in publication.failures[0].reason
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
        (says(b"AMQP\x00\x00\x09\x01"), NO_TLS),
        (says(b""), CLOSED),
        (says(CLOSE_NOTIFY_ALERT), CLOSED),
        (reset, "it closed the connection during the TLS handshake"),
        (says(PROTOCOL_VERSION_ALERT), TOO_OLD),
        (says(SERVER_HELLO_1_1), TOO_OLD),
    ],
)
def test_no_peer_ever_gets_plain_text(files: TlsFiles, treat: Treatment, stem: str) -> None:
    heard: list[bytes] = []
    with peer(treat, heard) as url:
        assert outcome(files, url).startswith(stem)

    (hello,) = heard
    assert hello[0] == CLIENT_HELLO
    assert b"CONNECT" not in hello


def drip(connection: socket.socket, stopping: threading.Event) -> None:
    connection.sendall(LARGE_HANDSHAKE_RECORD)
    while not stopping.wait(0.05):
        connection.sendall(b"\0")


@pytest.mark.parametrize("treat", [lambda _, stopping: stopping.wait(60), drip])
def test_an_endless_handshake_leaves_time_for_the_next(files: TlsFiles, treat: Treatment) -> None:
    with peer(treat, []) as url, FakeBroker(tls=files.server()) as broker:
        assert outcome(files, url, broker.url, timeout_s=2.0) == "no answer in time"

    assert len(broker.taken) == 1
