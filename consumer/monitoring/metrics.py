"""`/metrics`, `/healthz` and `/readyz`, over HTTP on a loopback port."""

from __future__ import annotations

import errno
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily as Counter
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import HistogramMetricFamily, Metric, StateSetMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from sam_pipeline.consumer.monitoring.snapshot import RUNNING, STATES, STUCK, Snapshot
from sam_pipeline.schema.program.wording import printable

HOST = "127.0.0.1"
PREFIX = "sam_consume"
REQUEST_S = 10.0
"""The time limit for a client to send a request and read the response."""
POLL_S = 0.2
RETRY_S = 10.0
"""How often to try to open a port that is in use."""
CLIENTS = 8
"""The limit on simultaneous clients; others are refused."""
TEXT = "text/plain; charset=utf-8"
LAG = "Time from sending a message to the commit of its rows."

GOOD_STATES = {"/healthz": {*STATES} - {STUCK}, "/readyz": {RUNNING}}
"""In other states the answer is 503."""
PATHS = ("/metrics", *GOOD_STATES)

logger = logging.getLogger(__name__)


class MetricsPort:
    """Answers requests in its own thread, from when the port can be used until it is closed.

    Messages are loaded meanwhile: a port in use is an error in the log, and tried again.
    """

    def __init__(
        self, port: int, observe: Callable[[], Snapshot], retry_s: float = RETRY_S
    ) -> None:
        """`port`: 0 for any free one."""
        self.port = port
        self._observe = observe
        self._retry_s = retry_s
        self._problem = ""
        self._closing = threading.Event()
        self._server = self._opened()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        while self._thread.is_alive():  # it may be about to open the port
            if self._server is not None:
                self._server.shutdown()
            self._thread.join(POLL_S)
        if self._server is not None:
            self._server.server_close()

    def _run(self) -> None:
        while self._server is None:
            if self._closing.wait(self._retry_s):
                return
            self._server = self._opened()
        self._server.serve_forever(POLL_S)

    def _opened(self) -> _Server | None:
        try:
            server = _Server(self.port, self._observe)
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            problem = "the port is in use by another program" if in_use else str(error)
            if problem != self._problem:
                text = "[consumer] metrics_port: %s:%d: %s; trying again, without metrics meanwhile"
                logger.error(text, HOST, self.port, problem)
            self._problem = problem
            return None
        if self._problem:
            logger.info("metrics are on %s:%d now", HOST, self.port)
        self.port = server.server_address[1]
        return server


class _Server(ThreadingTCPServer):
    """One thread per client; the number of clients and their time are limited."""

    allow_reuse_address = daemon_threads = True
    block_on_close = False

    def __init__(self, port: int, observe: Callable[[], Snapshot]) -> None:
        self.observe = observe
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        self._since: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__((HOST, port), _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._lock:
            if len(self._since) >= CLIENTS:
                return False
            self._since[request] = time.monotonic()
            return True

    def service_actions(self) -> None:
        """Disconnect clients that have taken too long; called several times a second."""
        with self._lock:
            for client, since in self._since.items():
                if time.monotonic() - since > REQUEST_S:
                    with suppress(OSError):
                        client.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._since.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("a client of the metrics port disconnected early", exc_info=True)

    def collect(self) -> Iterator[Metric]:
        """The metrics of a snapshot, which is taken for each scrape."""
        snapshot = self.observe()
        for kind, name, text, label, value in _numbers(snapshot):
            family = kind(f"{PREFIX}_{name}", text, labels=[label] if label else [])
            for key, number in value.items() if isinstance(value, Mapping) else [("", value)]:
                family.add_metric([printable(key)] if label else [], number)
            yield family
        text = "Records that the policy refuses, or would refuse if it enforced."
        refused = Counter(f"{PREFIX}_refused", text, labels=["publisher", "reason"])
        for publisher, reasons in snapshot.refusals.items():
            for reason, count in reasons.items():
                refused.add_metric([publisher, reason], count)
        yield refused
        current = snapshot.health(datetime.now(UTC)).state
        states = {state: state == current for state in STATES}
        yield StateSetMetricFamily(f"{PREFIX}_state", "The state of the daemon.", states)
        for name, text, histogram in (
            ("publish_to_commit_seconds", LAG, snapshot.lags),
            ("batch_messages", "Number of messages in a batch.", snapshot.batches),
        ):
            edges = [*(f"{float(edge)}" for edge in histogram.edges), "+Inf"]
            buckets = list(zip(edges, map(float, histogram.cumulative()), strict=True))
            yield HistogramMetricFamily(
                f"{PREFIX}_{name}", text, buckets=buckets, sum_value=histogram.total
            )


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_S
    server_version, sys_version = "sam-consume", ""

    def do_GET(self) -> None:
        path, status, content_type = self.path.partition("?")[0], HTTPStatus.OK, TEXT
        try:
            if path == "/metrics":
                content_type, body = CONTENT_TYPE_LATEST, generate_latest(self.server.registry)
            elif path in GOOD_STATES:
                health = self.server.observe().health(datetime.now(UTC))
                if health.state not in GOOD_STATES[path]:
                    status = HTTPStatus.SERVICE_UNAVAILABLE
                body = f"{printable(str(health))}\n".encode()
            else:
                status = HTTPStatus.NOT_FOUND
                body = f"not found; the paths are {', '.join(PATHS)}\n".encode()
        except Exception as error:  # a bug in a report must not end the daemon
            logger.exception("request for %s failed", self.path[:80])
            status, body = HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug(format, *args)


def _numbers(
    snapshot: Snapshot,
) -> Iterator[tuple[type[Counter] | type[Gauge], str, str, str, Mapping[str, float] | float]]:
    """Kind, name, help, label and value of each metric; with a label, values by label value."""
    brokers = {broker.broker: broker for broker in snapshot.brokers}
    messages = {name: broker.messages for name, broker in brokers.items()}
    yield Counter, "messages", "Messages committed and acked.", "broker", messages
    yield Counter, "rows", "Rows stored.", "class", snapshot.rows_by_class
    text = "Rows that changed nothing: the database had them, or others that take precedence."
    yield Counter, "duplicates", text, "class", snapshot.duplicates_by_class
    yield Counter, "dead_letters", "New dead letters.", "reason", snapshot.dead_letters
    repeated, summarised = snapshot.repeated_dead_letters, snapshot.summarised_dead_letters
    text = "Dead letters that were stored before."
    yield Counter, "repeated_dead_letters", text, "", repeated
    text = "Dead letters beyond the limits on their senders, only counted in summaries."
    yield Counter, "summarised_dead_letters", text, "", summarised
    text = "Values of keys that have no column in the view."
    yield Counter, "ignored_keys", text, "key", snapshot.ignored_keys
    yield Counter, "checks", "Messages that only test the path.", "", snapshot.checks
    text = "Spool elements that could not be read and were quarantined."
    yield Counter, "damaged_elements", text, "", snapshot.damaged_elements
    text = "Messages of a relay that no broker took, kept in a directory of their own."
    yield Counter, "rejected_messages", text, "", snapshot.rejected_messages
    text = "Log lines that could not be written."
    yield Counter, "log_lines_dropped", text, "", snapshot.log_lines_dropped
    text = "Requests to HTTP doors."
    yield Counter, "requests", text, "status", snapshot.requests

    connected = {name: not broker.missing for name, broker in brokers.items()}
    text = "Whether all addresses and subscriptions of a broker deliver."
    yield Gauge, "broker_connected", text, "broker", connected
    text = "Whether the last attempt to use the database succeeded."
    yield Gauge, "can_commit", text, "", snapshot.waiting_since is None
    held = {name: broker.held for name, broker in brokers.items()}
    yield Gauge, "held_messages", "Messages received and not yet acked.", "broker", held
    yield Gauge, "held_bytes", "Size of the bodies of these messages.", "", snapshot.held_bytes
    yield Gauge, "connections", "Connections to HTTP doors.", "", snapshot.connections
    elements = {
        name: broker.spool_elements
        for name, broker in brokers.items()
        if broker.spool_elements is not None
    }
    yield Gauge, "spool_elements", "Elements of a spool not yet read.", "broker", elements
    if snapshot.lag_s is not None:
        text = "Time from sending to commit of the newest message."
        yield Gauge, "lag_seconds", text, "", snapshot.lag_s
    if snapshot.open_dead_letters is not None:
        text = "Open dead letters in the database."
        yield Gauge, "open_dead_letters", text, "reason", snapshot.open_dead_letters
    for name, text, moment in (
        ("start_timestamp_seconds", "Start of the process.", snapshot.since),
        ("turn_timestamp_seconds", "Last turn of the main loop.", snapshot.turned_at),
        ("last_commit_timestamp_seconds", "Last commit.", snapshot.last_commit),
    ):
        if moment:
            yield Gauge, name, text, "", moment.timestamp()
