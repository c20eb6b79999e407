"""One STOMP connection, from the socket to DISCONNECT: everything that touches stomp.py.

stomp.py's own waits have no limit and its `timeout` ends no send, so the socket, the waits and
the deadlines here are ours. Its reading thread only puts what arrives on a queue.
"""

from __future__ import annotations

import logging
import os
import queue
import select
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from publisher.address import BrokerAddress
from publisher.deadline import Deadline
from publisher.errors import BrokerUnavailable

os.environ.setdefault("STOMP_SKIP_HOSTNAME_SCAN", "1")  # else its import asks DNS, without limit
import stomp

VERSION = "1.2"
GOODBYE = "goodbye"
GOODBYE_S = 0.5

logger = logging.getLogger(__name__)
logging.getLogger("stomp.py").setLevel(logging.CRITICAL)  # what it knows, our errors say

# The reading thread closes the socket whenever the broker does, also in the midst of a send.
_SEND_ERRORS = (OSError, ValueError, AttributeError, stomp.exception.StompException)


class SessionEnded(Exception):
    """The broker ended it: by ERROR, then the text is the broker's, or by closing."""


class StompSession:
    """Use from one thread. Sending never waits for an answer; `receipt` does.

    A wait that reaches its deadline raises BrokerUnavailable. There are no heart-beats: nobody
    listens longer than a deadline here.
    """

    def __init__(
        self, address: BrokerAddress, login: tuple[str | None, str | None], deadline: Deadline
    ) -> None:
        self._address = address
        self._arrived = _Arrived()
        self._over = False
        self._socket = _open_socket(address, deadline)
        self._connection = _connection()
        self._connection.set_listener("session", self._arrived)
        # A transport that has a socket does not connect by itself: it would hide the reason of
        # a failure, and know no deadline.
        self._connection.transport.socket = self._socket
        self._connection.transport.current_host_and_port = (address.ip, address.broker.port)
        try:
            self.server = self._log_in(login, deadline)
        except BaseException:
            self.drop()
            raise

    def send(
        self, command: str, headers: Mapping[str, str], body: bytes, deadline: Deadline
    ) -> None:
        """Hand a frame to the kernel.

        A failure shows where one waits: the receipts of earlier frames may still come in. Nothing
        is sent after it, since half a frame would swallow the next one.
        """
        if self._over:
            return
        self._socket.deadline = deadline
        try:
            self._connection.send_frame(command, dict(headers), body)
        except _SEND_ERRORS as error:
            logger.debug("%s: sending failed: %r", self._address, error)
            self._over = True

    def receipt(self, deadline: Deadline) -> str:
        """The id of the next receipt.

        Raises:
            SessionEnded: none will come.
        """
        while True:
            command, headers = self._next(deadline)
            if command == "RECEIPT":
                return headers.get("receipt-id", "")

    def close(self) -> None:
        """DISCONNECT, wait a little for its receipt, and let go in any case."""
        if not self._over:
            deadline = Deadline.after(GOODBYE_S)
            self.send("DISCONNECT", {"receipt": GOODBYE}, b"", deadline)
            with suppress(BrokerUnavailable, SessionEnded):
                while self.receipt(deadline) != GOODBYE:
                    pass
        self.drop()

    def drop(self) -> None:
        """Close the socket without a word."""
        with suppress(AttributeError, OSError):  # the reading thread may be closing it, too
            self._connection.transport.disconnect_socket()
        self._socket.close()

    def _log_in(self, login: tuple[str | None, str | None], deadline: Deadline) -> str:
        """The name of the server's software."""
        self._socket.deadline = deadline
        try:
            self._connection.connect(*login)
            headers: Mapping[str, str] = {}
            command = ""
            while command != "CONNECTED":
                command, headers = self._next(deadline)
        except SessionEnded as error:
            raise BrokerUnavailable(self._address, f"at login: {error}") from error
        except _SEND_ERRORS as error:
            raise BrokerUnavailable(self._address, f"at login: {_words(error)}") from error
        version = headers.get("version", "1.0")
        if version != VERSION:
            raise BrokerUnavailable(self._address, f"speaks STOMP {version}, not {VERSION}")
        return headers.get("server", "")

    def _next(self, deadline: Deadline) -> tuple[str, Mapping[str, str]]:
        try:
            command, headers, text = self._arrived.frames.get(timeout=deadline.remaining())
        except queue.Empty:
            self._over = True
            raise BrokerUnavailable(self._address, "no answer in the time it was given") from None
        if command in ("ERROR", "CLOSED"):
            self._over = True
            raise SessionEnded(text)
        return command, headers


def frame_bytes(command: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """The frame as `StompSession.send` puts it on the wire."""
    connection, wire = _connection(), _Wire()
    connection.transport.socket = wire
    connection.send_frame(command, dict(headers), body)
    return wire.sent


def _connection() -> Any:
    return stomp.Connection12(
        prefer_localhost=False,
        try_loopback_connect=False,
        reconnect_attempts_max=1,
        vhost="/",  # RabbitMQ refuses the host name; the others do not look
        auto_decode=False,
        auto_content_length=False,
    )


class _Arrived(stomp.ConnectionListener):  # type: ignore[misc]  # stomp.py has no types
    """What stomp.py's reading thread saw, in order: (command, headers, text)."""

    def __init__(self) -> None:
        self.frames: queue.SimpleQueue[tuple[str, Mapping[str, str], str]] = queue.SimpleQueue()

    def on_connected(self, frame: Any) -> None:
        self.frames.put(("CONNECTED", frame.headers, ""))

    def on_receipt(self, frame: Any) -> None:
        self.frames.put(("RECEIPT", frame.headers, ""))

    def on_error(self, frame: Any) -> None:
        self.frames.put(("ERROR", frame.headers, _error_text(frame.headers, frame.body)))

    def on_disconnected(self) -> None:
        self.frames.put(("CLOSED", {}, "it closed the connection"))


class _Socket(socket.socket):
    """Its sends end at `deadline`; its reads, on another thread, wait for ever.

    A timeout of the socket would end both.
    """

    deadline = Deadline(0)

    def sendall(self, data: Any, flags: int = 0) -> None:
        writable = select.poll()
        writable.register(self, select.POLLOUT)
        rest = memoryview(data)
        while rest:
            if not writable.poll(self.deadline.remaining() * 1000):
                raise TimeoutError("the broker takes no bytes")
            with suppress(BlockingIOError):
                rest = rest[self.send(rest, flags | socket.MSG_DONTWAIT) :]


class _Wire:
    """Remembers what is sent."""

    sent = b""

    def sendall(self, data: bytes) -> None:
        self.sent += data


def _open_socket(address: BrokerAddress, deadline: Deadline) -> _Socket:
    opened = _Socket(socket.AF_INET6 if ":" in address.ip else socket.AF_INET, socket.SOCK_STREAM)
    try:
        opened.settimeout(max(deadline.remaining(), 0.001))
        opened.connect((address.ip, address.broker.port))
        opened.settimeout(None)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel, too, gives up what a dead broker never took.
        patience_ms = max(1, int(deadline.remaining() * 1000))
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience_ms)
    except OSError as error:
        opened.close()
        raise BrokerUnavailable(address, _words(error)) from error
    return opened


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error).lower() or type(error).__name__


def _error_text(headers: Mapping[str, str], body: bytes | None) -> str:
    """The broker's words; RabbitMQ has one word in the header and the sentence in the body."""
    message = headers.get("message", "").strip()
    if " " in message:
        return message
    lines = (body or b"").decode("utf-8", "replace").strip("\0\n\r ").splitlines()[:1]
    return ": ".join(filter(None, [message, *lines])) or "ERROR without words"
