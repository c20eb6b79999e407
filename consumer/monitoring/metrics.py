"""`/metrics`, `/healthz` and `/readyz` on a loopback port, for whoever asks there."""

from __future__ import annotations

import errno
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    StateSetMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from sam_pipeline.consumer.core.histogram import Distribution
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.monitoring.snapshot import STATES, STUCK, Snapshot, judge
from sam_pipeline.schema.errors import ConfigError

HOST = "127.0.0.1"
PREFIX = "sam_consume"
REQUEST_S = 10.0
"""A client that takes longer to ask and to read is let go."""
POLL_S = 0.2
CLIENTS = 8
"""So many at a time; the others are refused."""
TEXT = "text/plain; charset=utf-8"

Say = Callable[[], Snapshot]

logger = logging.getLogger(__name__)


@contextmanager
def serving(port: int, say: Say, state: State) -> Iterator[int]:
    """The questions are answered inside the block; gives the port (0: any that is free).

    Raises:
        ConfigError: the port can't be had.
    """
    registry = CollectorRegistry()
    registry.register(_Collector(say, state))
    ProcessCollector(registry=registry)
    answers = {
        "/metrics": lambda: (HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(registry)),
        "/healthz": lambda: _health(say()),
        "/readyz": lambda: _readiness(say()),
    }
    try:
        server = _Server(port, answers)
    except (OSError, OverflowError) as error:
        taken = getattr(error, "errno", None) == errno.EADDRINUSE
        words = "another program has that port" if taken else str(error)
        raise ConfigError([f"[consumer] metrics_port: {HOST}:{port}: {words}"]) from error
    thread = threading.Thread(
        target=server.serve_forever, args=(POLL_S,), name="metrics", daemon=True
    )
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


Answer = tuple[HTTPStatus, str, bytes]


def _health(snapshot: Snapshot) -> Answer:
    """Restarting would help, or it would not."""
    verdict = judge(snapshot, datetime.now(UTC))
    bad = verdict.state == STUCK
    return _words(HTTPStatus.SERVICE_UNAVAILABLE if bad else HTTPStatus.OK, str(verdict))


def _readiness(snapshot: Snapshot) -> Answer:
    """Whether it can commit, and every broker delivers."""
    verdict = judge(snapshot, datetime.now(UTC))
    good = verdict.healthy
    return _words(HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE, str(verdict))


def _words(status: HTTPStatus, text: str) -> Answer:
    return status, TEXT, f"{text}\n".encode("utf-8", "replace")


class _Server(ThreadingMixIn, HTTPServer):
    """A thread for each of a few clients, none of which may stay for long."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int, answers: Mapping[str, Callable[[], Answer]]) -> None:
        self.answers = answers
        self._since: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__((HOST, port), _Handler)

    def server_bind(self) -> None:
        """Without the look-up of our own name that HTTPServer makes."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = HOST, self.server_address[1]

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._lock:
            if len(self._since) >= CLIENTS:
                return False
            self._since[request] = time.monotonic()
            return True

    def service_actions(self) -> None:
        """Some times a second: end what has lasted too long, whatever it waits for."""
        with self._lock:
            late = [each for each, at in self._since.items() if time.monotonic() - at > REQUEST_S]
            for client in late:
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._since.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("a client of the metrics port left early", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_S
    server_version, sys_version = "sam-consume", ""

    def do_GET(self) -> None:
        answer = self.server.answers.get(self.path.partition("?")[0])
        if answer is None:
            self._send(*_words(HTTPStatus.NOT_FOUND, f"here are {', '.join(self.server.answers)}"))
            return
        try:
            self._send(*answer())
        except OSError:
            raise
        except Exception as error:  # a bug in what is told must not end what is done
            logger.exception("%s was not answered", self.path[:80])
            self._send(*_words(HTTPStatus.INTERNAL_SERVER_ERROR, type(error).__name__))

    def _send(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug(format, *args)


class _Collector:
    """Asks when it is asked: nothing is kept twice."""

    def __init__(self, say: Say, state: State) -> None:
        self._say = say
        self._state = state

    def collect(self) -> Iterator[Metric]:
        snapshot, standing = self._say(), self._state.standing()
        yield from _counters(snapshot)
        yield from _gauges(snapshot)
        text = "From sending a message to the commit of its rows."
        yield _histogram("publish_to_commit_seconds", text, standing.lags)
        yield _histogram("batch_messages", "Messages of a batch.", standing.batches)


def _counters(said: Snapshot) -> Iterator[Metric]:
    by_broker = {broker.broker: broker.messages for broker in said.brokers}
    yield _counter("messages", "Messages committed and acked.", by_broker, "broker")
    yield _counter("rows", "Rows stored, or there already.", said.rows_by_class, "class")
    yield _counter("dead_letters", "New dead letters.", said.dead_letters, "reason")
    yield _counter("ignored_keys", "Keys for which a view has no column.", said.ignored_keys, "key")
    yield _counter("checks", "Messages that only prove a path.", said.checks)
    yield _counter("damaged_elements", "Spool elements put aside unread.", said.damaged_elements)
    text = "Lines of the log that could not be written."
    yield _counter("log_lines_dropped", text, said.log_lines_dropped)


def _gauges(said: Snapshot) -> Iterator[Metric]:
    now = judge(said, datetime.now(UTC)).state
    text = "How the daemon does."
    yield StateSetMetricFamily(f"{PREFIX}_state", text, {each: each == now for each in STATES})
    connected = {broker.broker: float(not broker.missing) for broker in said.brokers}
    yield _gauge("broker_connected", "Whether all of a broker delivers.", connected, "broker")
    text = "Whether what was given to the database last could be stored."
    yield _gauge("can_commit", text, float(said.waiting_since is None))
    held = {broker.broker: float(broker.held) for broker in said.brokers}
    yield _gauge("held_messages", "Taken from a broker and not acked.", held, "broker")
    yield _gauge("held_bytes", "Bodies of the messages held.", said.held_bytes)
    spools = {each.broker: each.spool_elements for each in said.brokers}
    waiting = {name: float(count) for name, count in spools.items() if count is not None}
    yield _gauge("spool_elements", "Elements that wait in a spool untaken.", waiting, "broker")
    if said.lag_s is not None:
        yield _gauge("lag_seconds", "From sending to commit, of the newest message.", said.lag_s)
    if said.open_dead_letters is not None:
        found = {reason: float(count) for reason, count in said.open_dead_letters.items()}
        yield _gauge("open_dead_letters", "Dead letters that wait for somebody.", found, "reason")
    text = "When the process began its work."
    yield _gauge("start_timestamp_seconds", text, said.since.timestamp())
    text = "When the main loop turned last."
    yield _gauge("turn_timestamp_seconds", text, said.turned_at.timestamp())
    if said.last_commit:
        text = "When the last batch was committed."
        yield _gauge("last_commit_timestamp_seconds", text, said.last_commit.timestamp())


def _counter(name: str, text: str, value: Mapping[str, int] | int, label: str = "") -> Metric:
    if not isinstance(value, Mapping):
        return CounterMetricFamily(f"{PREFIX}_{name}", text, value=value)
    family = CounterMetricFamily(f"{PREFIX}_{name}", text, labels=[label])
    for key, count in value.items():
        family.add_metric([key], count)
    return family


def _gauge(name: str, text: str, value: Mapping[str, float] | float, label: str = "") -> Metric:
    if not isinstance(value, Mapping):
        return GaugeMetricFamily(f"{PREFIX}_{name}", text, value=value)
    family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=[label])
    for key, number in value.items():
        family.add_metric([key], number)
    return family


def _histogram(name: str, text: str, found: Distribution) -> Metric:
    edges = [*(f"{float(edge)}" for edge in found.edges), "+Inf"]
    buckets = [(edge, float(count)) for edge, count in zip(edges, found.counts, strict=True)]
    return HistogramMetricFamily(f"{PREFIX}_{name}", text, buckets=buckets, sum_value=found.total)
