"""The HTTP server: connections, their limits, and answers to malformed requests."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.http_exceptions import LineTooLong

from sam_pipeline.consumer.sources.door.access import Strangers
from sam_pipeline.consumer.sources.door.answers import (
    BAD_REQUEST,
    HEAD_TOO_LARGE,
    TOO_SLOW,
    UNAVAILABLE,
    URI_TOO_LONG,
    HttpProblem,
    try_again,
)
from sam_pipeline.consumer.sources.door.exchange import SERVER, response_to
from sam_pipeline.schema.net.channel import error_text
from sam_pipeline.schema.net.tls import refusal_by_server

IDLE_S = 75.0
"""After this time without a request, a connection is closed."""
HEAD_S = 10.0
"""The time limit for the head of a request, and for the first byte of a connection."""
ANSWER_S = 10.0
"""How long answers may wait in full buffers for a sender that does not read them."""
LINGER_S = 2.0
"""How long to read the rest of a body that is not accepted, so that the answer arrives."""
ONCE = ("authorization", "content-encoding", "content-type", "expect", "idempotency-key")
"""Headers that must not be repeated, and so must none of `Sam-*`."""
MAX_PATH_BYTES = 8190
MAX_HEADER_BYTES = 16_380
MAX_HEADERS = 100

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

HANDSHAKE_S = 10.0
RETRY_S = 1.0
"""When to accept connections again after an error, such as too many open files."""

logger = logging.getLogger(__name__)


class DoorServer(web.Server):
    """Makes a protocol for each connection; `count` is informed of each status."""

    def __init__(
        self, door: str, handler: Handler, max_connections: int, count: Callable[[int], None]
    ) -> None:
        super().__init__(
            handler,
            keepalive_timeout=IDLE_S,
            access_log=None,
            logger=logger,
            lingering_time=LINGER_S,
            max_line_size=MAX_PATH_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            max_headers=MAX_HEADERS,
            auto_decompress=False,
        )
        self.door = door
        self.max_connections = max_connections
        self.open_connections = 0
        """The accepted connections; unlike `connections`, without those that are closed."""
        self.count = count
        self.strangers = Strangers(door, max_connections)

    def admit(self, connection: DoorConnection, address: str) -> None:
        """Count a connection that was accepted, which is a stranger's for the time being."""
        self.open_connections += 1
        is_full = self.open_connections > self.max_connections
        connection.is_excess = is_full and not self.strangers.dismiss_oldest()
        self.strangers.add(connection, address)

    def forget(self, connection: DoorConnection) -> None:
        """A connection has ended."""
        self.open_connections -= 1
        self.strangers.remove(connection)

    def __call__(self) -> DoorConnection:
        return DoorConnection(self, loop=self._loop, **self._kwargs)


class DoorConnection(web.RequestHandler):
    """One connection. Between requests it may be idle; the head of a request has a deadline."""

    handshake: asyncio.Task[None] | None = None
    """The task that accepts a connection over TLS, until it is accepted."""
    is_excess = False
    """Whether known senders leave it no room."""

    _server: DoorServer
    _head_timer: asyncio.TimerHandle | None = None
    _answer_timer: asyncio.TimerHandle | None = None

    def __init__(self, server: DoorServer, **options: object) -> None:
        super().__init__(server, **options)  # type: ignore[arg-type]
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.handshake is None:
            self._server.admit(self, transport.get_extra_info("peername", ("",))[0])
        if self.is_excess:
            self.dismiss()
        else:
            self._start_timer()

    @property
    def strangers(self) -> Strangers:
        return self._server.strangers

    def sender_is_known(self) -> None:
        self._server.strangers.remove(self)

    def dismiss(self) -> None:
        """End the connection of a stranger, in favour of a newer one."""
        if self.transport is not None:
            limit = self._server.max_connections
            text = f"there are too many connections (the limit is {limit}): try again later"
            self._refuse(try_again(UNAVAILABLE, text))
        elif self.handshake is not None:
            self.handshake.cancel()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._messages or self._current_request is not None:
            self._stop_timer()
        elif self._head_timer is None and self.transport is not None:
            self._start_timer()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self.transport is not None:
            self._answer_timer = self._loop.call_later(ANSWER_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._answer_timer is not None:
            self._answer_timer.cancel()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_timer()
        self._server.forget(self)
        if self._answer_timer is not None:
            self._answer_timer.cancel()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to a head that can't be parsed; the connection is closed."""
        problem = HttpProblem(status, (message or str(exc)).splitlines()[0][:200])
        if isinstance(exc, LineTooLong):
            is_path = exc.args[1] == MAX_PATH_BYTES
            limit = MAX_PATH_BYTES if is_path else MAX_HEADER_BYTES
            what = "the path" if is_path else "a header"
            status = URI_TOO_LONG if is_path else HEAD_TOO_LARGE
            problem = HttpProblem(status, f"{what} is longer than {limit} bytes")
        elif status == BAD_REQUEST:
            problem = HttpProblem(status, f"the head of the request can't be read: {problem}")
        self._server.count(problem.status)
        response = response_to(problem.reply())
        response.force_close()
        return response

    def _refuse(self, problem: HttpProblem) -> None:
        """Answer without a request, and close the connection."""
        self._server.count(problem.status)
        status, body, content_type, headers = problem.reply()
        lines = [
            f"HTTP/1.1 {status} {problem.document()['title']}",
            f"Content-Type: {content_type}",
            f"Content-Length: {len(body)}",
            f"Server: {SERVER}",
            "Connection: close",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        if self.transport is not None:
            self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.force_close()

    def _start_timer(self) -> None:
        late = HttpProblem(TOO_SLOW, f"the request did not arrive within {HEAD_S:g} s")
        self._head_timer = self._loop.call_later(HEAD_S, self._refuse, late)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def require_plain_head(request: web.BaseRequest) -> None:
    """Raises HttpProblem if another program may read the head differently from us."""
    if request.version not in (HttpVersion10, HttpVersion11):
        version = f"HTTP/{request.version.major}.{request.version.minor}"
        raise HttpProblem(BAD_REQUEST, f"{version} is not supported (expected 1.1)", closes=True)
    headers = request.headers
    if len(set(headers)) < len(headers):
        for name in map(str.lower, headers):
            if (name in ONCE or name.startswith("sam-")) and len(headers.getall(name)) > 1:
                raise HttpProblem(BAD_REQUEST, f"the header {name[:80]} is repeated")
    coding = headers.get("Transfer-Encoding")
    if coding is None:
        return
    if request.version == HttpVersion10 or coding.strip().lower() != "chunked":
        text = f"Transfer-Encoding {coding[:80]!r} is not supported (expected chunked, in HTTP/1.1)"
        raise HttpProblem(BAD_REQUEST, text, closes=True)


class TlsEntrance:
    """Accepts the connections over TLS at one socket until it is closed.

    The servers of asyncio neither report a failed handshake nor send the alert with the reason
    (python/cpython#98078). Without TLS they accept a fifth more connections a second than this one.
    """

    def __init__(self, server: DoorServer, tls: ssl.SSLContext, listener: socket.socket) -> None:
        self._server = server
        self._tls = tls
        self._listener = listener
        self._tasks: set[asyncio.Task[None]] = set()
        listener.setblocking(False)
        self._start(self._accept())

    def close(self) -> None:
        """Accept no more connections; those that were accepted stay, unless they shake hands."""
        for task in self._tasks:
            task.cancel()
        self._listener.close()

    async def _accept(self) -> None:
        problem = ""
        while True:
            try:
                accepted, address = await asyncio.get_running_loop().sock_accept(self._listener)
            except ConnectionError:  # it was reset before it was accepted
                continue
            except OSError as error:
                if error_text(error) != problem:
                    problem = error_text(error)
                    logger.error(
                        "door %s: can't accept connections: %s", self._server.door, problem
                    )
                await asyncio.sleep(RETRY_S)
                continue
            problem = ""
            self._start(self._welcome(accepted, address[0]))
            await asyncio.sleep(0)

    async def _welcome(self, accepted: socket.socket, address: str) -> None:
        connection = self._server()
        connection.handshake = asyncio.current_task()
        self._server.admit(connection, address)
        tls: Any = _AlertingTls(self._tls, accepted)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=tls,
                ssl_handshake_timeout=HANDSHAKE_S,
            )
        except (OSError, asyncio.CancelledError) as error:
            self._server.forget(connection)
            accepted.close()
            if isinstance(error, ssl.SSLError) and (reason := refusal_by_server(error)):
                self._server.strangers.log_refusal(address, f"the TLS handshake failed: {reason}")
        finally:
            connection.handshake = None

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _AlertingTls:
    """A context whose handshakes send an alert when they fail."""

    def __init__(self, context: ssl.SSLContext, accepted: socket.socket) -> None:
        self._context = context
        self._socket = accepted

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, **options: Any
    ) -> ssl.SSLObject:
        def send_alert() -> None:
            with suppress(OSError):
                self._socket.send(outgoing.read())

        self._context.sslobject_class = _Alerting
        secured = self._context.wrap_bio(incoming, outgoing, **options)
        secured.send_alert = send_alert  # type: ignore[attr-defined]
        return secured


class _Alerting(ssl.SSLObject):
    send_alert: Callable[[], None]

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            self.send_alert()
            raise
