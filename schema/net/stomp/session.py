"""The client side of a STOMP 1.2 session, shared by publisher and consumer.

Sending never waits for replies. Incoming frames are sorted as they arrive, and a wait for one of
them ends at its deadline. A session ends once: every later wait raises the same SessionLost.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Callable, Optional

from sam_pipeline.schema.net.channel import RECEIVE_BYTES, Channel, error_text
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.frame import Fault, Frame, FrameReader, encode

VERSION = "1.2"
VIRTUAL_HOST = "/"
"""RabbitMQ refuses the name of the host here; the others ignore the header."""
GOODBYE_S = 2.0
CLOSED = "it closed the connection"
RESET = os.strerror(errno.ECONNRESET).lower()
MAYBE_TLS = "does it speak TLS on this port (stomp+ssl://)?"


class SessionLost(Exception):
    """The session has ended, or could not be opened.

    `by_error`: the broker gave the reason in an ERROR frame.
    """

    def __init__(self, reason: str, by_error: bool = False) -> None:
        super().__init__(reason)
        self.by_error = by_error


class NoAnswer(SessionLost):
    """The deadline has passed."""


Feed = Callable[[bytes], Iterable["Frame | Fault"]]
Arrived = Callable[[bytes, "list[Frame | Fault]"], None]


class StompSession:
    """A session on an open channel; use from one thread."""

    def __init__(
        self,
        channel: Channel,
        feed: Optional[Feed] = None,
        receive_bytes: int = RECEIVE_BYTES,
        arrived: Optional[Arrived] = None,
    ) -> None:
        """`feed` cuts the incoming bytes into frames; by default it is that of a FrameReader.

        `arrived` gets the bytes of each read, and the messages and faults in them; `message` then
        returns none.
        """
        self._channel = channel

        def take_while_sending(data: bytes) -> None:
            self._take(data)
            if self.loss:
                raise ConnectionAbortedError(str(self.loss))

        # A broker may stop reading until we have read what it sent.
        channel.arrived = take_while_sending
        self._receive_bytes = receive_bytes
        self._feed = feed or FrameReader().feed
        self._arrived = arrived or self._keep
        self._connected: Frame | Fault | None = None
        self._receipts: list[str] = []
        self._messages: deque[Frame | Fault] = deque()
        self.loss: Optional[SessionLost] = None
        """Why the session has ended."""
        self.unreadable = ""
        """Why nothing more can be read, although the session can still send."""
        self.send_failure = ""
        """Why nothing more can be sent, although something may still arrive."""

    def log_in(self, login: Mapping[str, Optional[str]], deadline: Deadline) -> dict[str, str]:
        """Send CONNECT with the headers that are not None; return the headers of CONNECTED.

        The header `host` is the virtual host; without one it is VIRTUAL_HOST.

        Raises:
            SessionLost: no answer in time, a refusal, or another version of STOMP.
        """
        given = {name: value for name, value in login.items() if value is not None}
        connect = {"accept-version": VERSION, "host": VIRTUAL_HOST, **given}
        self._send_one("CONNECT", connect, deadline)
        try:
            self._wait_for("CONNECTED", lambda: self._connected, deadline)
        except SessionLost as loss:
            if str(loss) in (CLOSED, RESET) and not self._channel.is_tls:
                raise SessionLost(f"{loss}; {MAYBE_TLS}") from loss
            raise
        headers = self._connected.headers if self._connected else {}
        version = headers.get("version", "1.0")
        if version != VERSION:
            raise self.lose(f"it speaks STOMP {version}, not {VERSION}")
        return headers

    def ask(
        self, command: str, headers: Mapping[str, str], deadline: Deadline, body: bytes = b""
    ) -> None:
        """Send a frame and wait for its receipt; raises SessionLost if none arrives in time."""
        self._send_one(command, {**headers, "receipt": command}, deadline, body)
        self._wait_for("RECEIPT", lambda: command in self._receipts, deadline)
        self._receipts.remove(command)

    def send(self, frames: bytes, deadline: Deadline) -> None:
        """Pass complete frames to the kernel.

        A failure is raised by the next wait, since receipts for earlier frames may still arrive.
        Nothing is sent after a failure: the broker would read it as part of a broken frame.
        """
        if self.send_failure or self.loss:
            return
        self._channel.deadline = deadline
        try:
            self._channel.send(frames)
        except OSError as error:
            self.send_failure = error_text(error)

    def message(self, deadline: Deadline) -> Frame | Fault:
        """The next MESSAGE.

        Raises:
            NoAnswer: none arrived in time.
            SessionLost: none will.
        """
        while not self._messages:
            self.receive(deadline)
        return self._messages.popleft()

    def receive(self, deadline: Deadline) -> None:
        """Read and sort the frames that arrive next.

        Raises:
            NoAnswer: nothing arrived in time.
            SessionLost: nothing will.
        """
        self._require_readable()
        self._channel.deadline = deadline
        try:
            data = self._channel.receive(self._receive_bytes)
        except TimeoutError as error:
            raise NoAnswer(self.send_failure or error_text(error)) from error
        except OSError as error:
            raise self.lose(error_text(error)) from error
        self._take(data)

    def fileno(self) -> int:
        """The descriptor of the connection, to wait for many sessions at once."""
        return self._channel.socket.fileno()

    def send_now(self, frames: bytes) -> int:
        """Pass to the kernel what it takes without waiting; return the number of bytes.

        Raises:
            SessionLost: the connection is lost.
        """
        if self.loss:
            raise self.loss
        try:
            return self._channel.send_now(frames)
        except OSError as error:
            raise self.lose(error_text(error)) from error

    def receive_now(self) -> bool:
        """Read and sort the frames that have arrived, without waiting; return whether any had.

        Raises:
            SessionLost: nothing more will arrive.
        """
        self._require_readable()
        try:
            data = self._channel.receive_now(self._receive_bytes)
        except OSError as error:
            raise self.lose(error_text(error)) from error
        if data is not None:
            self._take(data)
        return data is not None

    def receipts_now(self) -> list[str]:
        """The ids of the receipts that arrived since the last call."""
        receipts, self._receipts = self._receipts, []
        return receipts

    def close(self, timeout_s: float = GOODBYE_S) -> None:
        """DISCONNECT, wait a little for its receipt, and close the connection in any case."""
        with suppress(SessionLost):
            self.ask("DISCONNECT", {}, Deadline.after(timeout_s))
        self.drop()

    def drop(self) -> None:
        """Close the connection without DISCONNECT."""
        self.lose("we closed the connection")
        self._channel.close()

    def lose(self, reason: str, by_error: bool = False) -> SessionLost:
        """End the session and return the error; if it had ended before, with the first reason."""
        self.loss = self.loss or SessionLost(reason, by_error)
        return self.loss

    def _require_readable(self) -> None:
        if self.loss:
            raise self.loss
        if self.unreadable:
            raise SessionLost(self.unreadable)

    def _wait_for(self, reply: str, arrived: Callable[[], object], deadline: Deadline) -> None:
        timeout_s = deadline.remaining()
        try:
            while not arrived():
                self.receive(deadline)
        except NoAnswer as error:
            silence = f"no answer (no {reply} within {round(timeout_s, 1):g} s)"
            self.loss = NoAnswer(self.send_failure or silence)
            raise self.loss from error

    def _send_one(
        self, command: str, headers: Mapping[str, str], deadline: Deadline, body: bytes = b""
    ) -> None:
        try:
            self.send(encode(command, headers, body), deadline)
        except ValueError as error:  # such as a login that STOMP can't carry
            raise self.lose(str(error)) from error

    def _take(self, data: bytes) -> None:
        """Sort the frames that are complete now; those before an ERROR still count."""
        if not data:
            self.lose(self.send_failure or CLOSED)
            return
        messages: list[Frame | Fault] = []
        for frame in self._feed(data):
            if frame.command == "MESSAGE" or (isinstance(frame, Fault) and frame.is_last):
                messages.append(frame)
            elif frame.command == "RECEIPT":
                self._receipts.append(frame.headers.get("receipt-id", ""))
            elif frame.command == "ERROR":
                # Nothing after it counts: a COMMIT may get its receipt although one of its
                # messages got an ERROR.
                self.lose(error_message(frame), by_error=True)
                break
            else:
                self._connected = frame
        self._arrived(data, messages)

    def _keep(self, data: bytes, messages: list[Frame | Fault]) -> None:
        for message in messages:
            if isinstance(message, Fault) and message.is_last:
                self.lose(message.problem)
            else:
                self._messages.append(message)


def error_message(error: Frame | Fault) -> str:
    """The header `message` of an ERROR, with the first line of the body if that adds to it.

    RabbitMQ's does; ActiveMQ's is a stack trace, and Artemis repeats the header.
    """
    message = " ".join(error.headers.get("message", "").split())
    detail = error.body.decode("utf-8", "replace").strip("\0\r\n ").partition("\n")[0].rstrip()
    repeats = "Exception" in detail or detail.replace(":", "") in message.replace(":", "")
    parts = [message] if message and repeats else [message, detail]
    versions = error.headers.get("version", VERSION)
    if VERSION not in versions.split(","):
        parts.append(f"it speaks STOMP {versions}, not {VERSION}")
    return ": ".join(filter(None, parts)) or "ERROR without a message"
