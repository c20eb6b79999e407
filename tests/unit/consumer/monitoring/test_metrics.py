"""The metrics port: its answers, and that no client harms the daemon."""

from __future__ import annotations

import http.client
import logging
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sam_pipeline.consumer.core.inbox import NO_LIMIT, Delivery
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.core.tally import Tally
from sam_pipeline.consumer.monitoring import metrics_port
from sam_pipeline.consumer.monitoring.certificates import CertificateLife
from sam_pipeline.consumer.monitoring.metrics_port import CLIENTS, MetricsPort
from sam_pipeline.consumer.monitoring.reporter import address_of
from sam_pipeline.consumer.monitoring.snapshot import STUCK_AFTER, Snapshot
from sam_pipeline.consumer.settings.metrics_address import MetricsAddress
from sam_pipeline.consumer.silence.coverage import Coverage
from sam_pipeline.schema.errors import ConfigError
from tests.services.process import wait_until
from tests.support.builders import metric_message
from tests.support.consumer.snapshot import AWAY, BROKER, NOW, snapshot

SOON_S = 10.0


class Connection:
    broker = "stomp://a:61613"
    batch_size = NO_LIMIT
    answers = False

    def ack(self, tokens: Sequence[object]) -> None:
        raise NotImplementedError


class Daemon:
    """Reports a scripted snapshot on its own port."""

    def __init__(self) -> None:
        self.changes: dict[str, object] = {}
        self.port = 0

    def say(self) -> Snapshot:
        now = datetime.now(UTC)
        return snapshot(**{"written_at": now, "turned_at": now, **self.changes})

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SOON_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

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
    monkeypatch.setattr(metrics_port._Server, "request_queue_size", 20 * CLIENTS)
    daemon = Daemon()
    with closing(MetricsPort(MetricsAddress("127.0.0.1", 0), daemon.say)) as port:
        daemon.port = port.address.port
        yield daemon


def test_all_numbers_of_the_daemon_are_metrics(daemon: Daemon) -> None:
    daemon.changes = {
        "brokers": (replace(BROKER, reconnects=2), AWAY),
        "ignored_keys": {'a"b\nc': 3},
        "schema": "0001",
        "silent": {"class": 1, "site": 0, "probe": 5},
        "received": {"metricOutput": NOW},
        "sites": {"A": NOW, "B": None},
        "coverage": Coverage(NOW),
        "certificates": (CertificateLife("host.pem", NOW, NOW),),
        "dead_letters_last_hour": 9,
    }

    values = daemon.values()

    for name, value in {
        "sam_consume_messages_total['stomp://a:61613']": 7,
        "sam_consume_rows_total['metricOutput']": 14,
        "sam_consume_dead_letters_total['bad-status']": 1,
        "sam_consume_open_dead_letters['bad-status']": 1,
        "sam_consume_ignored_keys_total['a\"b\\\\nc']": 3,
        "sam_consume_refused_total['nagios-cern', 'not-authorised']": 4,
        "sam_consume_requests_total['429']": 1,
        "sam_consume_connections[]": 3,
        "sam_consume_checks_total[]": 1,
        "sam_consume_held_messages['stomp://a:61613']": 2,
        "sam_consume_held_bytes[]": 700,
        "sam_consume_broker_connected['stomp://a:61613']": 1,
        "sam_consume_broker_connected['stomp://b:61613']": 0,
        "sam_consume_can_commit[]": 1,
        "sam_consume_state['degraded']": 1,
        "sam_consume_state['running']": 0,
        "sam_consume_lag_seconds[]": 0.25,
        "sam_consume_log_lines_dropped_total[]": 0,
        "sam_consume_build_info['0.1.0', '0001']": 1,
        "sam_consume_reconnects_total['stomp://a:61613']": 2,
        "sam_consume_reconnects_total['stomp://b:61613']": 0,
        "sam_consume_silent['class']": 1,
        "sam_consume_silent['probe']": 5,
        "sam_consume_last_received_timestamp_seconds['metricOutput']": NOW.timestamp(),
        "sam_consume_site_last_received_timestamp_seconds['A']": NOW.timestamp(),
        "sam_consume_covered_until_timestamp_seconds[]": NOW.timestamp(),
        "sam_consume_certificate_expiry_timestamp_seconds['host.pem']": NOW.timestamp(),
        "sam_consume_dead_letters_last_hour[]": 9,
    }.items():
        assert values[name] == value, name
    assert values["process_resident_memory_bytes[]"] > 0


def test_the_lag_of_every_message_is_in_a_histogram(daemon: Daemon) -> None:
    batch = [Delivery(metric_message(), Connection(), None)] * 3

    state = State()
    state.taken(batch)
    state.committed(batch, Tally())
    state.stored(0.02)
    daemon.changes = {"lags": state.lags, "batches": state.batches, "commits": state.commits}

    values = daemon.values()
    assert values["sam_consume_publish_to_commit_seconds_bucket['60.0']"] == 3
    assert values["sam_consume_publish_to_commit_seconds_count[]"] == 3
    assert values["sam_consume_batch_messages_bucket['2.0']"] == 0
    assert values["sam_consume_batch_messages_bucket['5.0']"] == 1
    assert values["sam_consume_batch_messages_sum[]"] == 3
    assert values["sam_consume_commit_seconds_bucket['0.01']"] == 0
    assert values["sam_consume_commit_seconds_bucket['0.025']"] == 1


def test_a_daemon_that_loads_is_healthy_and_ready(daemon: Daemon) -> None:
    assert daemon.get("/healthz") == (200, "running\n")
    assert daemon.get("/readyz") == (200, "running\n")


def test_a_daemon_that_waits_is_healthy_and_not_ready(daemon: Daemon) -> None:
    daemon.changes = {"waiting_since": datetime.now(UTC), "waiting_for": "connection refused"}

    assert daemon.get("/healthz")[0] == 200
    code, body = daemon.get("/readyz")
    assert code == 503
    assert "unable to commit" in body and "connection refused" in body


def test_a_daemon_that_misses_a_broker_is_not_ready_and_names_it(daemon: Daemon) -> None:
    daemon.changes = {"brokers": (BROKER, AWAY)}

    assert daemon.get("/healthz")[0] == 200
    code, body = daemon.get("/readyz")
    assert (code, "stomp://b:61613 (connection refused)" in body) == (503, True)


def test_a_stuck_daemon_is_not_healthy(daemon: Daemon) -> None:
    daemon.changes = {"turned_at": datetime.now(UTC) - STUCK_AFTER - timedelta(seconds=1)}

    assert daemon.get("/healthz")[0] == daemon.get("/readyz")[0] == 503


def test_other_paths_are_answered_with_the_list_of_paths(daemon: Daemon) -> None:
    code, body = daemon.get("/")

    assert code == 404
    assert "/metrics, /healthz, /readyz" in body


def test_a_bug_in_a_report_is_an_answer_and_a_line_of_the_log(
    daemon: Daemon, caplog: pytest.LogCaptureFixture
) -> None:
    daemon.changes = {"turned_at": None}

    assert daemon.get("/healthz") == (500, "TypeError\n")
    assert "/healthz failed" in caplog.text
    daemon.changes = {}
    assert daemon.get("/healthz")[0] == 200


def test_the_port_listens_only_on_the_loopback_interface(daemon: Daemon) -> None:
    for info in socket.getaddrinfo(socket.gethostname(), daemon.port, socket.AF_INET):
        address = info[4]
        if not str(address[0]).startswith("127."):
            with pytest.raises(OSError), socket.create_connection(address[:2], 1):  # type: ignore[arg-type]
                pass


def test_silent_clients_do_not_block_others_for_long(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_port, "REQUEST_S", 0.2)
    silent = [daemon.connect() for _ in range(3 * CLIENTS)]
    slow = daemon.connect()
    slow.sendall(b"GET /metr")
    try:
        assert all(client.recv(1) == b"" for client in silent)  # let go

        deadline = time.monotonic() + SOON_S  # 0.2 s may be short for an honest one, too
        while not _answers(daemon):
            assert time.monotonic() < deadline
    finally:
        for client in (*silent, slow):
            client.close()


def _answers(daemon: Daemon) -> bool:
    with suppress(OSError, http.client.HTTPException):
        return daemon.get("/healthz")[0] == 200
    return False


def test_the_number_of_threads_is_limited(daemon: Daemon) -> None:
    before = set(threading.enumerate())
    silent = [daemon.connect() for _ in range(10 * CLIENTS)]

    started = set(threading.enumerate()) - before
    threads = sum("process_request_thread" in thread.name for thread in started)

    for client in silent:
        client.close()
    assert threads <= CLIENTS


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00\x01", b"GET " + b"a" * 100_000, b"POST / HTTP/1.1\r\n\r\n"]
)
def test_garbage_is_refused_and_the_next_client_is_served(daemon: Daemon, garbage: bytes) -> None:
    with daemon.connect() as client:
        client.sendall(garbage)
        with suppress(OSError):  # the server may already have closed the connection
            client.shutdown(socket.SHUT_WR)
        try:
            while client.recv(65536):
                pass
        except ConnectionError:  # it was not read to its end
            pass

    assert daemon.get("/healthz")[0] == 200


def test_a_port_in_use_is_an_error_in_the_log_and_tried_until_it_is_free(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    daemon = Daemon()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        daemon.port = other.getsockname()[1]
        port = MetricsPort(MetricsAddress("127.0.0.1", daemon.port), daemon.say, retry_s=0.01)
        time.sleep(0.1)

    with closing(port):
        wait_until(lambda: "now" in caplog.text, SOON_S)
        assert daemon.get("/healthz")[0] == 200
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert f"metrics_listen: 127.0.0.1:{daemon.port}: the port is in use" in caplog.text


def test_a_port_that_stays_in_use_does_not_keep_the_daemon_from_ending(daemon: Daemon) -> None:
    MetricsPort(MetricsAddress("127.0.0.1", daemon.port), daemon.say).close()

    assert daemon.get("/healthz")[0] == 200


def test_each_instance_has_its_own_port() -> None:
    base = MetricsAddress("127.0.0.1", 9464)
    ports = [address_of(base, instance).port for instance in (None, 1, 2)]
    assert ports == [9464, 9465, 9466]
    with pytest.raises(ConfigError, match="65536, above 65535"):
        address_of(base._replace(port=65535), 1)
