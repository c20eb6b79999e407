"""The metrics of the daemon, and the port with `/metrics`, `/healthz` and `/readyz`."""

from __future__ import annotations

import errno
import hmac
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily as Counter
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import HistogramMetricFamily, Metric, StateSetMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from sam_pipeline.consumer.monitoring.snapshot import RUNNING, STATES, STUCK, Snapshot
from sam_pipeline.consumer.process.listening import is_rebound
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker import Broker
from sam_pipeline.schema.net.tls import server_context
from sam_pipeline.schema.program.wording import printable
from sam_pipeline.schema.secret_file import read_secret

if TYPE_CHECKING:
    from sam_pipeline.schema.net.broker import TlsFiles

PREFIX = "sam_consume"
LAG = "Time from sending a message to the commit of its rows."
COMMIT = "Time to store and commit a batch."

REQUEST_S = 10.0
"""The time limit for a client to shake hands, send a request and read the response."""
POLL_S = 0.2
RETRY_S = 10.0
"""How often to try to open a port that is in use."""
CLIENTS = 8
"""The limit on simultaneous clients; others are refused."""
TEXT = "text/plain; charset=utf-8"

GOOD_STATES = {"/healthz": {*STATES} - {STUCK}, "/readyz": {RUNNING}}
"""In other states the answer is 503."""
PATHS = ("/metrics", *GOOD_STATES)
SCHEME = "Bearer "

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SnapshotCollector:
    """Collects the metrics of a new snapshot for each scrape."""

    observe: Callable[[], Snapshot]

    def collect(self) -> Iterator[Metric]:
        snapshot = self.observe()
        text = "The version of the program, and of the schema of the database."
        build = Gauge(f"{PREFIX}_build_info", text, labels=["version", "schema"])
        build.add_metric([snapshot.version, snapshot.schema], 1)
        yield build
        for kind, name, text, label, value in _numbers(snapshot):
            family = kind(f"{PREFIX}_{name}", text, labels=[label] if label else [])
            for key, number in value.items() if isinstance(value, Mapping) else [("", value)]:
                family.add_metric([printable(key)] if label else [], number)
            yield family
        for _, count, numbers in snapshot.counts.described():
            counter = Counter(f"{PREFIX}_{count.metric}", count.help, labels=count.labels)
            for values, number in numbers.items():
                counter.add_metric([*map(printable, values)], number)
            yield counter
        current = snapshot.health(datetime.now(UTC)).state
        states = {state: state == current for state in STATES}
        yield StateSetMetricFamily(f"{PREFIX}_state", "The state of the daemon.", states)
        for name, text, histogram in (
            ("publish_to_commit_seconds", LAG, snapshot.lags),
            ("commit_seconds", COMMIT, snapshot.commits),
            ("batch_messages", "Number of messages in a batch.", snapshot.batches),
        ):
            edges = [*(f"{float(edge)}" for edge in histogram.edges), "+Inf"]
            buckets = list(zip(edges, map(float, histogram.cumulative()), strict=True))
            yield HistogramMetricFamily(
                f"{PREFIX}_{name}", text, buckets=buckets, sum_value=histogram.total
            )


def _numbers(
    snapshot: Snapshot,
) -> Iterator[tuple[type[Counter] | type[Gauge], str, str, str, Mapping[str, float] | float]]:
    """Kind, name, help, label and value of each metric; with a label, values by label value."""
    brokers = {broker.broker: broker for broker in snapshot.brokers}
    text = "Log lines that could not be written."
    yield Counter, "log_lines_dropped", text, "", snapshot.log_lines_dropped
    text = "Requests to HTTP doors."
    yield Counter, "requests", text, "status", snapshot.requests

    reconnects = {name: broker.reconnects for name, broker in brokers.items()}
    text = "Sessions with a broker that replaced a lost one."
    yield Counter, "reconnects", text, "broker", reconnects
    connected = {name: not broker.missing for name, broker in brokers.items()}
    text = "Whether all addresses and subscriptions of a broker deliver."
    yield Gauge, "broker_connected", text, "broker", connected
    text = "Whether the last attempt to use the database succeeded."
    yield Gauge, "can_commit", text, "", snapshot.waiting_since is None
    text = "Files that can't be used as they are now; their previous content is in use."
    yield Gauge, "unused_files", text, "", len(snapshot.unused_files)
    text = "How far the clock of the database is ahead of that of this host."
    yield Gauge, "clock_offset_seconds", text, "", snapshot.clock_offset_s
    held = {name: broker.held for name, broker in brokers.items()}
    yield Gauge, "held_messages", "Messages received and not yet acked.", "broker", held
    yield (
        Gauge,
        "held_bytes",
        "Size of the bodies of messages received and not yet acked.",
        "",
        snapshot.held_bytes,
    )
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
    text = "New dead letters of the last hour."
    yield Gauge, "dead_letters_last_hour", text, "", snapshot.dead_letters_last_hour
    text = "Number of classes, sites and probes silent for longer than their limit."
    yield Gauge, "silent", text, "kind", snapshot.silent
    text = "All messages sent before this time have arrived; silence is judged up to it."
    if snapshot.coverage:
        until = snapshot.coverage.until.timestamp()
        yield Gauge, "covered_until_timestamp_seconds", text, "", until
    received = {name: moment.timestamp() for name, moment in snapshot.received.items()}
    text = "When records of the class last arrived."
    yield Gauge, "last_received_timestamp_seconds", text, "class", received
    sites = {name: moment.timestamp() for name, moment in snapshot.sites.items() if moment}
    text = "The newest result of a site that should report."
    yield Gauge, "site_last_received_timestamp_seconds", text, "site", sites
    expiries = {life.file: life.end.timestamp() for life in snapshot.certificates}
    text = "When the certificate expires."
    yield Gauge, "certificate_expiry_timestamp_seconds", text, "file", expiries
    for name, text, moment in (
        ("start_timestamp_seconds", "Start of the process.", snapshot.since),
        ("turn_timestamp_seconds", "Last turn of the main loop.", snapshot.turned_at),
        ("last_commit_timestamp_seconds", "Last commit.", snapshot.last_commit),
    ):
        if moment:
            yield Gauge, name, text, "", moment.timestamp()


class Readers(NamedTuple):
    """Who may read metrics: clients with the token of a file, over TLS with our certificate."""

    tls_files: TlsFiles | None = None
    token_file: Path | None = None


EVERYBODY = Readers()


class MetricsPort:
    """Answers requests in its own thread, from when the port can be used until it is closed.

    Messages are loaded meanwhile: a port in use, or a certificate that can't be used, is an error
    in the log, and tried again.
    """

    def __init__(
        self,
        address: Broker,
        observe: Callable[[], Snapshot],
        readers: Readers = EVERYBODY,
        retry_s: float = RETRY_S,
    ) -> None:
        """A port of 0 is any free one."""
        self.address = address
        self._observe = observe
        self._readers = readers
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
            server = _Server(self.address, self._observe, self._readers)
        except (OSError, ConfigError) as error:
            in_use = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            problem = "the port is in use by another program" if in_use else str(error)
            if problem != self._problem:
                text = "[consumer] metrics_listen: %s: %s; trying again, without metrics meanwhile"
                logger.error(text, self.address.netloc, problem)
            self._problem = problem
            return None
        self.address = self.address._replace(port=server.server_address[1])
        if self._problem:
            logger.info("serving metrics on %s now", self.address.netloc)
        return server


class _Server(ThreadingTCPServer):
    """One thread per client; the number of clients and their time are limited."""

    allow_reuse_address = daemon_threads = True
    block_on_close = False

    def __init__(self, address: Broker, observe: Callable[[], Snapshot], readers: Readers) -> None:
        self.observe = observe
        self.token_file = readers.token_file
        self.registry = CollectorRegistry()
        self.registry.register(SnapshotCollector(observe))
        ProcessCollector(registry=self.registry)
        files = readers.tls_files
        self._context = server_context(files) if files and files.certificate_file else None
        self._since: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        found = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        self.address_family, _, _, _, place = found[0]
        super().__init__(place[:2], _Handler)  # type: ignore[arg-type]

    def get_request(self) -> tuple[Any, Any]:
        request, client_address = super().get_request()
        if self._context:  # the handshake follows in the thread of the client
            request = self._context.wrap_socket(
                request, server_side=True, do_handshake_on_connect=False
            )
        return request, client_address

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
                    with suppress(OSError):  # that of `ssl` would send further bytes unencrypted
                        socket.socket.shutdown(client, socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._since.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("a client of the metrics port disconnected early", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_S
    server_version, sys_version = "sam-consume", ""

    def do_GET(self) -> None:
        path, status, content_type = self.path.partition("?")[0], HTTPStatus.OK, TEXT
        try:
            if is_rebound(self.server.server_address[0], self.headers.get("Host", "")):
                status = HTTPStatus.FORBIDDEN
                body = b"the host of the request is not this machine\n"
            elif not self._may_read():
                status = HTTPStatus.UNAUTHORIZED
                body = b"the token is missing or wrong (Authorization: Bearer TOKEN)\n"
            elif path == "/metrics":
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
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", SCHEME.strip())
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _may_read(self) -> bool:
        """Whether the client knows the token, which is read again for each request."""
        if self.server.token_file is None:
            return True
        given = self.headers.get("Authorization", "")
        try:
            token = read_secret(self.server.token_file)
        except ConfigError as error:
            logger.error("[consumer] metrics_token_file: %s; nobody can read the metrics", error)
            return False
        return hmac.compare_digest(given.encode(), f"{SCHEME}{token}".encode())

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug(format, *args)
