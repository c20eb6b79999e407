"""Accepts connections over TLS, so that a refused handshake gets its reason.

The servers of asyncio neither report a failed handshake nor send the alert with the reason
(python/cpython#98078). Without TLS they accept a fifth more connections a second than this one.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sam_pipeline.consumer.sources.door.server import DoorServer
from sam_pipeline.schema.net.channel import error_text
from sam_pipeline.schema.net.tls import refusal_by_server

HANDSHAKE_S = 10.0
"""The time limit for a TLS handshake."""
RETRY_S = 1.0
"""When to accept connections again after an error, such as too many open files."""

logger = logging.getLogger(__name__)


class TlsEntrance:
    """Accepts the connections at one socket until it is closed."""

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
    """A context whose handshakes send their alert, also the last one."""

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
