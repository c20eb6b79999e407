"""`/metrics`, `/healthz` and `/readyz`, over HTTP or HTTPS."""

from __future__ import annotations

import errno
import hmac
import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from sam_pipeline.consumer.monitoring.metrics import SnapshotCollector
from sam_pipeline.consumer.monitoring.snapshot import RUNNING, STATES, STUCK, Snapshot
from sam_pipeline.consumer.process.browsers import is_rebound
from sam_pipeline.consumer.settings.metrics_address import MetricsAddress
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.program.wording import printable
from sam_pipeline.schema.secret_file import read_secret

if TYPE_CHECKING:
    import ssl

    from sam_pipeline.schema.net.target import TlsFiles

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


class Readers(NamedTuple):
    """Who may read metrics: over TLS with a certificate of ours, who sends the token of a file."""

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
        address: MetricsAddress,
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
                logger.error(text, self.address, problem)
            self._problem = problem
            return None
        self.address = self.address._replace(port=server.server_address[1])
        if self._problem:
            logger.info("metrics are on %s now", self.address)
        return server


class _Server(ThreadingTCPServer):
    """One thread per client; the number of clients and their time are limited."""

    allow_reuse_address = daemon_threads = True
    block_on_close = False

    def __init__(
        self, address: MetricsAddress, observe: Callable[[], Snapshot], readers: Readers
    ) -> None:
        self.observe = observe
        self.token_file = readers.token_file
        self.registry = CollectorRegistry()
        self.registry.register(SnapshotCollector(observe))
        ProcessCollector(registry=self.registry)
        self._context = _server_context(readers.tls_files)
        self._since: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
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


def _server_context(files: TlsFiles | None) -> ssl.SSLContext | None:
    """The context of a server with a certificate; raises ConfigError."""
    if files is None or files.certificate_file is None:
        return None
    from sam_pipeline.schema.net.tls import server_context  # `import ssl` is slow

    return server_context(files)


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
