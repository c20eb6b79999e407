"""The metrics port: its answers, who may read it, and that no client harms the daemon."""

from __future__ import annotations

import http.client
import logging
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sam_pipeline.consumer.core.silence import Coverage
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.monitoring import metrics
from sam_pipeline.consumer.monitoring.metrics import CLIENTS, MetricsPort, Readers
from sam_pipeline.consumer.monitoring.observer import CertificateLife
from sam_pipeline.consumer.monitoring.snapshot import STUCK_AFTER, Snapshot
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.schema.messages.counts import Counts
from sam_pipeline.schema.net.broker import Broker
from sam_pipeline.schema.net.broker import TlsFiles as Files
from tests.support.brokers.tls_files import TlsFiles
from tests.support.consumer.doubles import delivery
from tests.support.consumer.snapshot import AWAY, BROKER, NOW, snapshot
from tests.support.waiting import eventually

SOON_S = 30.0
LOOPBACK = Broker("listen+http", "127.0.0.1", 0)
TOKEN = "correct-horse"


class Daemon:
    """Reports a scripted snapshot on its own port, in plain text or for readers with a token."""

    def __init__(self) -> None:
        self.changes: dict[str, object] = {}
        self.port = 0
        self.tls: TlsFiles | None = None

    def say(self) -> Snapshot:
        now = datetime.now(UTC)
        return snapshot(**{"written_at": now, "turned_at": now, **self.changes})

    def get(self, path: str, token: str | None = TOKEN, **headers: str) -> tuple[int, str]:
        host = ("127.0.0.1", self.port)
        connection = http.client.HTTPConnection(*host, timeout=SOON_S)
        if self.tls:
            context = ssl.create_default_context(cafile=str(self.tls.ca_file))
            connection = http.client.HTTPSConnection(*host, context=context, timeout=SOON_S)
        with closing(connection):
            headers |= {"Authorization": f"Bearer {token}"} if token is not None else {}
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode()

    def serves(self) -> bool:
        with suppress(OSError, http.client.HTTPException):
            return self.get("/healthz")[0] == 200
        return False

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=SOON_S)

    def values(self) -> dict[str, float]:
        """The values by name and labels, as Prometheus parses them."""
        code, text = self.get("/metrics")
        assert code == 200
        return {
            f"{sample.name}{sorted(sample.labels.values())}": sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    # A connection that does not fit the queue is tried again by the kernel, seconds later.
    monkeypatch.setattr(metrics._Server, "request_queue_size", 20 * CLIENTS)
    daemon = Daemon()
    with closing(MetricsPort(LOOPBACK, daemon.say)) as port:
        daemon.port = port.address.port
        yield daemon


@pytest.fixture
def guarded(daemon: Daemon, tmp_path: Path) -> Iterator[Daemon]:
    """A daemon whose port speaks TLS and asks for the token."""
    tls = TlsFiles(tmp_path)
    host, token = tls.host(), tls.file("token", f"{TOKEN}\n".encode())
    files = Files(None, tls.certificate_file(host), tls.key_file(host))
    with closing(MetricsPort(LOOPBACK, daemon.say, Readers(files, token))) as port:
        daemon.port, daemon.tls = port.address.port, tls
        yield daemon


def test_all_numbers_of_the_daemon_are_metrics(daemon: Daemon) -> None:
    batch, state = [delivery()] * 3, State()
    state.taken(batch)
    state.committed(batch, Counts())
    state.stored(0.02)
    daemon.changes = {
        "brokers": (replace(BROKER, reconnects=2), AWAY),
        "counts": replace(snapshot().counts, ignored_keys=Counter({'a"b\nc': 3})),
        "silent": {"class": 1, "site": 0, "probe": 5},
        "received": {"metricOutput": NOW},
        "sites": {"A": NOW, "B": None},
        "coverage": Coverage(NOW),
        "certificates": (CertificateLife("host.pem", NOW, NOW),),
        "dead_letters_last_hour": 9,
        "lags": state.lags,
        "batches": state.batches,
        "commits": state.commits,
    }

    values = daemon.values()

    then = NOW.timestamp()
    expected = {
        "messages_total['stomp://a:61613']": 7,
        "rows_total['metricOutput']": 14,
        "dead_letters_total['bad-status']": 1,
        "open_dead_letters['bad-status']": 1,
        "ignored_keys_total['a\"b\\\\nc']": 3,
        "refused_total['nagios-cern', 'not-authorised']": 4,
        "requests_total['429']": 1,
        "held_messages['stomp://a:61613']": 2,
        "broker_connected['stomp://a:61613']": 1,
        "broker_connected['stomp://b:61613']": 0,
        "state['degraded']": 1,
        "reconnects_total['stomp://a:61613']": 2,
        "silent['probe']": 5,
        "last_received_timestamp_seconds['metricOutput']": then,
        "site_last_received_timestamp_seconds['A']": then,
        "covered_until_timestamp_seconds[]": then,
        "certificate_expiry_timestamp_seconds['host.pem']": then,
        "publish_to_commit_seconds_bucket['60.0']": 3,
        "batch_messages_bucket['2.0']": 0,
        "batch_messages_bucket['5.0']": 1,
        "commit_seconds_bucket['0.01']": 0,
        "commit_seconds_bucket['0.025']": 1,
    }
    numbers = ("connections", "checks_total", "held_bytes", "can_commit", "lag_seconds")
    expected |= dict(zip([f"{name}[]" for name in numbers], (3, 1, 700, 1, 0.25), strict=True))
    assert {name: values.get(f"sam_consume_{name}") for name in expected} == expected


@pytest.mark.parametrize(
    ("changes", "healthy", "ready", "words"),
    [
        ({}, 200, 200, "running"),
        ({"waiting_since": NOW, "waiting_for": "connection refused"}, 200, 503, "unable to commit"),
        ({"brokers": (BROKER, AWAY)}, 200, 503, "stomp://b:61613 (connection refused)"),
        ({"turned_at": NOW - STUCK_AFTER - timedelta(seconds=1)}, 503, 503, "stuck"),
        ({"turned_at": None}, 500, 500, "TypeError"),  # a bug
    ],
)
def test_health_and_readiness(
    daemon: Daemon, changes: dict[str, object], healthy: int, ready: int, words: str
) -> None:
    daemon.changes = changes

    assert daemon.get("/healthz")[0] == healthy
    code, body = daemon.get("/readyz")
    assert (code, words in body) == (ready, True)
    assert daemon.get("/")[0] == 404


@pytest.mark.parametrize("secured", ["daemon", "guarded"])
def test_silent_clients_do_not_block_others_for_long(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, secured: str
) -> None:
    daemon: Daemon = request.getfixturevalue(secured)
    monkeypatch.setattr(metrics, "REQUEST_S", 0.2)
    with ExitStack() as stack:
        silent = [stack.enter_context(closing(daemon.connect())) for _ in range(3 * CLIENTS)]
        slow = stack.enter_context(closing(daemon.connect()))
        slow.sendall(b"GET /metr")
        for client in silent:
            with suppress(ConnectionError):
                assert client.recv(1) == b""  # let go
        monkeypatch.undo()
        eventually(daemon.serves)


def test_the_number_of_threads_is_limited(daemon: Daemon) -> None:
    before = set(threading.enumerate())
    with ExitStack() as stack:
        for _ in range(10 * CLIENTS):
            stack.enter_context(closing(daemon.connect()))
        started = set(threading.enumerate()) - before

    assert sum("process_request_thread" in thread.name for thread in started) <= CLIENTS


def test_a_port_in_use_is_an_error_in_the_log_and_tried_until_it_is_free(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    daemon = Daemon()
    with socket.create_server(("127.0.0.1", 0)) as other:
        daemon.port = other.getsockname()[1]
        address = Broker("listen+http", "127.0.0.1", daemon.port)
        MetricsPort(address, daemon.say).close()  # it does not keep the daemon from ending
        caplog.clear()
        port = MetricsPort(address, daemon.say, retry_s=0.01)
        time.sleep(0.1)

    with closing(port):
        eventually(lambda: "now" in caplog.text)
        assert daemon.serves()
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]


def test_each_instance_has_its_own_port() -> None:
    config = ConsumerConfig(metrics_listen="127.0.0.1:9464")
    addresses = [config.replace(instance=number).metrics_address for number in (None, 1, 2)]
    assert [address and address.netloc for address in addresses] == [
        f"127.0.0.1:{port}" for port in (9464, 9465, 9466)
    ]
    last = config.replace(metrics_listen="127.0.0.1:65535", instance=1)
    assert "port 65536 of instance 1 is too high" in "\n".join(last.problems())


def test_a_page_whose_host_was_rebound_to_this_machine_reads_nothing(daemon: Daemon) -> None:
    hosts = ("evil.example:9464", "localhost", "127.0.0.1", "[::1]:9464", "[")
    answers = [daemon.get("/metrics", Host=host)[0] for host in hosts]

    assert answers == [403, 200, 200, 200, 403]


def test_only_a_reader_with_the_token_is_served_and_nobody_while_it_cannot_be_read(
    guarded: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    assert guarded.tls
    paths, wrong = ("/metrics", "/healthz", "/readyz", "/other"), (None, "", "x", f"{TOKEN}x", "é")
    served = [guarded.get(path)[0] for path in paths]
    refused = {guarded.get(path, token)[0] for path in paths for token in wrong}
    codes = []
    for content in (b"new\n", b""):
        guarded.tls.file("token", content)
        codes.append([guarded.get("/metrics", token)[0] for token in (TOKEN, "new", "")])

    assert (served, refused) == ([200, 200, 200, 404], {401})
    assert codes == [[401, 200, 401], [401, 401, 401]]
    assert "metrics_token_file" in caplog.text and TOKEN not in caplog.text
