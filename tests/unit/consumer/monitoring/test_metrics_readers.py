"""Metrics over HTTPS, for readers with a token; clients that never shake hands disturb nobody."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sam_pipeline.consumer.monitoring import metrics_port
from sam_pipeline.consumer.monitoring.metrics_port import CLIENTS, MetricsPort, Readers
from sam_pipeline.consumer.monitoring.snapshot import Snapshot
from sam_pipeline.consumer.settings.metrics_address import MetricsAddress
from sam_pipeline.schema.net.tls import TlsFiles as Files
from tests.services import missing
from tests.services.process import wait_until
from tests.support.brokers.tls_files import TlsFiles
from tests.support.consumer.snapshot import snapshot

SOON_S = 10.0
LOOPBACK = MetricsAddress("127.0.0.1", 0)
TOKEN = "correct-horse"


def running() -> Snapshot:
    now = datetime.now(UTC)
    return snapshot(written_at=now, turned_at=now)


@pytest.fixture
def tls(tmp_path: Path) -> TlsFiles:
    return TlsFiles(tmp_path)


@pytest.fixture
def readers(tls: TlsFiles) -> Readers:
    host = tls.host()
    files = Files(None, tls.certificate_file(host), tls.key_file(host))
    return Readers(files, tls.file("token", f"{TOKEN}\n".encode()))


@pytest.fixture
def port(readers: Readers, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(metrics_port._Server, "request_queue_size", 20 * CLIENTS)
    with closing(MetricsPort(LOOPBACK, running, readers)) as served:
        yield served.address.port


def get(port: int, tls: TlsFiles, token: str | None = TOKEN, path: str = "/metrics") -> int:
    context = ssl.create_default_context(cafile=str(tls.ca_file))
    with closing(
        http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=SOON_S)
    ) as connection:
        connection.request(
            "GET", path, headers={"Authorization": f"Bearer {token}"} if token else {}
        )
        return connection.getresponse().status


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
def test_a_reader_with_the_token_is_served_over_https(port: int, tls: TlsFiles, path: str) -> None:
    assert get(port, tls, path=path) == 200


@pytest.mark.parametrize("token", [None, "", "wrong", f"{TOKEN}x", "é"])
@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/other"])
def test_a_reader_without_the_token_is_refused(
    port: int, tls: TlsFiles, path: str, token: str | None
) -> None:
    assert get(port, tls, token, path) == 401


def test_a_new_token_is_read_from_its_file(port: int, tls: TlsFiles) -> None:
    tls.file("token", b"new\n")

    assert [get(port, tls, token) for token in (TOKEN, "new")] == [401, 200]


def test_without_a_readable_token_nobody_is_served(
    port: int, tls: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    tls.file("token", b"")

    assert [get(port, tls, token) for token in (TOKEN, "")] == [401, 401]
    assert "metrics_token_file" in caplog.text and TOKEN not in caplog.text


def test_a_reader_without_tls_learns_nothing(port: int, tls: TlsFiles) -> None:
    with socket.create_connection(("127.0.0.1", port), SOON_S) as client:
        client.sendall(f"GET /metrics HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        with suppress(ConnectionError):
            assert b"sam_consume" not in client.recv(65536)

    assert get(port, tls) == 200


def test_clients_that_do_not_shake_hands_do_not_block_the_others(port: int, tls: TlsFiles) -> None:
    idle = [socket.create_connection(("127.0.0.1", port), SOON_S) for _ in range(CLIENTS - 1)]
    try:
        began = time.monotonic()

        assert get(port, tls) == 200
        assert time.monotonic() - began < metrics_port.REQUEST_S / 2
    finally:
        for client in idle:
            client.close()


def test_clients_that_do_not_shake_hands_are_disconnected(
    port: int, tls: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_port, "REQUEST_S", 0.2)
    idle = [socket.create_connection(("127.0.0.1", port), SOON_S) for _ in range(3 * CLIENTS)]
    try:
        for client in idle:
            with suppress(ConnectionError):
                assert client.recv(1) == b""
    finally:
        for client in idle:
            client.close()
    monkeypatch.undo()
    wait_until(lambda: _serves(port, tls), SOON_S)


def _serves(port: int, tls: TlsFiles) -> bool:
    with suppress(OSError, http.client.HTTPException):
        return get(port, tls) == 200
    return False


def test_a_certificate_that_cannot_be_used_is_an_error_and_tried_until_it_can(
    tls: TlsFiles, readers: Readers, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = readers.tls_files and readers.tls_files.certificate_file
    assert certificate
    good = certificate.read_bytes()
    certificate.write_bytes(b"")
    with closing(MetricsPort(LOOPBACK, running, readers, retry_s=0.05)) as served:
        assert "metrics_listen" in caplog.text and str(certificate) in caplog.text
        certificate.write_bytes(good)
        wait_until(lambda: served.address.port != 0, SOON_S)

        assert get(served.address.port, tls) == 200


def test_metrics_are_served_at_an_address_of_ipv6() -> None:
    if not socket.has_ipv6:
        missing("IPv6", "enable it in the kernel")
    with closing(MetricsPort(MetricsAddress("::1", 0), running)) as served:
        assert str(served.address).startswith("[::1]:")
        connection = http.client.HTTPConnection("::1", served.address.port, timeout=SOON_S)
        with closing(connection):
            connection.request("GET", "/healthz")
            assert connection.getresponse().status == 200
