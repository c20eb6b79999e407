"""Connections whose every operation ends at a deadline, whatever the peer does.

They are direct, or through an HTTP proxy, which forwards plain HTTP; the rest goes by CONNECT.
"""

from __future__ import annotations

import errno
import io
import os
import select
import socket
from collections.abc import Iterable
from typing import Any, Callable, Optional

from sam_pipeline.schema.net.broker import STOMP, Broker, Proxy
from sam_pipeline.schema.net.deadline import BackgroundCall, Deadline

RECEIVE_BYTES = 65536
MIN_USER_TIMEOUT_MS = 1000
NO_ANSWER = "no answer in time"
NOT_READING = "it does not read the data we send"


class Channel:
    """An open connection whose reads and writes all end at `deadline`, which may be reset.

    The deadline is a moment: a peer that sends byte by byte does not postpone it. Use from one
    thread.
    """

    is_tls = False

    def __init__(self, opened: socket.socket, deadline: Deadline) -> None:
        self.socket = opened
        self._files = 0
        self._closed = False
        self.deadline = deadline
        self.proxy: Any = None
        """The HTTP proxy at the other end, which needs absolute URIs; None for the broker."""
        self.arrived: Optional[Callable[[bytes], None]] = None
        """Called with bytes that arrive during `send`: the peer may not read until we do."""

    @property
    def forwarded(self) -> bool:
        return self.proxy is not None

    def send(self, data: bytes) -> None:
        """Pass all the data to the kernel.

        Raises:
            OSError: TimeoutError at the deadline; `error_text` gives its message.
        """
        rest = memoryview(data)
        while rest:
            rest = rest[self._when_ready(select.POLLOUT, self.socket.send, rest) :]

    sendall = send

    def receive(self, at_most: int = RECEIVE_BYTES) -> bytes:
        """The bytes that arrived, at least one; empty when the peer closed the connection.

        Raises:
            OSError: TimeoutError at the deadline; `error_text` gives its message.
        """
        if self.deadline.expired:  # with bytes always ready it would never wait, nor time out
            raise TimeoutError(NO_ANSWER)
        data: bytes = self._when_ready(select.POLLIN, self.socket.recv, at_most)
        return data

    def send_now(self, data: bytes) -> int:
        """Pass to the kernel what it takes without waiting; return the number of bytes.

        Raises:
            OSError: the connection is lost; `error_text` gives the message.
        """
        return self._at_once(self.socket.send, data) or 0

    def receive_now(self, at_most: int = RECEIVE_BYTES) -> Optional[bytes]:
        """The bytes that have arrived; None if none have, empty when the peer has closed.

        Raises:
            OSError: the connection is lost; `error_text` gives the message.
        """
        data: Optional[bytes] = self._at_once(self.socket.recv, at_most)
        return data

    def has_arrived(self) -> bool:
        """Whether `receive` would not have to wait."""
        arrived = select.poll()
        arrived.register(self.socket, select.POLLIN)
        return bool(arrived.poll(0))

    def close(self) -> None:
        """Close, once all files of `makefile` are closed: http.client closes before it reads."""
        self._closed = True
        if not self._files:
            self.socket.close()

    def makefile(self, mode: str) -> io.BufferedReader:
        """The reading side as a file."""
        self._files += 1
        return io.BufferedReader(_Reading(self), RECEIVE_BYTES)

    def file_closed(self) -> None:
        self._files -= 1
        if self._closed:
            self.close()

    def _when_ready(self, events: int, call: Callable[..., Any], *arguments: object) -> Any:
        while True:
            try:
                return call(*arguments)
            except BlockingIOError:
                self._wait(events, NO_ANSWER if events == select.POLLIN else NOT_READING)

    def _at_once(self, call: Callable[..., Any], *arguments: object) -> Any:
        """What the call returns; None if it would have to wait."""
        try:
            return call(*arguments)
        except BlockingIOError:
            return None

    def _wait(self, events: int, timeout_message: str) -> None:
        if events == select.POLLIN:  # the peer may hold its next small answer until our ACK
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        arrived = self.arrived if events == select.POLLOUT else None
        poll = select.poll()
        poll.register(self.socket, events | select.POLLIN if arrived else events)
        left_ms = self.deadline.remaining() * 1000
        ready = poll.poll(left_ms) if left_ms else []
        if not ready:
            raise TimeoutError(timeout_message)
        if arrived and ready[0][1] & select.POLLIN:
            try:
                data = self.socket.recv(RECEIVE_BYTES)
            except OSError:  # half a TLS record; a real failure shows in the next send
                return
            arrived(data)


class _Reading(io.RawIOBase):
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._rest or self._channel.receive()
        size = min(len(data), len(buffer))
        buffer[:size] = data[:size]
        self._rest = data[size:]
        return size

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._channel.file_closed()


def connect(ip: str, port: int, deadline: Deadline) -> Channel:
    """A channel to one address; raises OSError, or TimeoutError at the deadline."""
    opened = socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET, socket.SOCK_STREAM)
    channel = Channel(opened, deadline)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The kernel also gives up on bytes that a dead broker never acknowledges.
        patience_ms = max(MIN_USER_TIMEOUT_MS, int(deadline.remaining() * 1000))
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience_ms)
        code = opened.connect_ex((ip, port))
        if code == errno.EINPROGRESS:
            channel._wait(select.POLLOUT, NO_ANSWER)
            code = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
    except BaseException:
        opened.close()
        raise
    return channel


def error_text(error: Exception) -> str:
    """The message of an error; of one of the operating system, without its number."""
    system = error.strerror if isinstance(error, OSError) else None
    return (system or "").lower() or str(error) or type(error).__name__


class Resolver:
    """Looks up names, any number of times and from any thread.

    A look-up that outlives its deadline goes on, and the next caller waits for it instead of
    starting another: a name server that hangs costs one thread, and the answer of a slow one is
    used in the end.
    """

    def __init__(self) -> None:
        self._pending: dict[tuple[object, ...], BackgroundCall] = {}

    def ips_of(self, host: str, port: int, deadline: Deadline) -> list[str]:
        """All addresses of a name, in the order in which to try them (RFC 6724).

        Raises:
            OSError: the name does not resolve, or not in time.
        """
        numeric = (host, port, 0, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)
        query = (host, port, 0, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
        try:
            try:
                infos = socket.getaddrinfo(*numeric)
            except socket.gaierror:
                call = self._pending.get(query)
                if call is None:  # two threads may both start one: each gets an answer
                    call = self._pending[query] = BackgroundCall(socket.getaddrinfo, *query)
                try:
                    infos = call.result(deadline)
                finally:
                    if call.finished:
                        self._pending.pop(query, None)
        except (OSError, UnicodeError) as error:
            raise OSError(f"name resolution failed: {error_text(error)}") from error
        return list(dict.fromkeys(str(info[4][0]) for info in infos))


def by_family(ips: Iterable[str]) -> list[list[str]]:
    """Addresses by IPv4 and IPv6, in order: the two usually lead to the same hosts."""
    families: dict[bool, list[str]] = {}
    for ip in ips:
        families.setdefault(":" in ip, []).append(ip)
    return list(families.values())


MAX_ANSWER_BYTES = 65536
UNAVAILABLE = 500
"""From here on, the status of an answer may be another one the next time."""
END = b"\r\n\r\n"
LOGIN = b"proxy-authenticate"


class ProxyRefused(OSError):
    """The proxy requires a login, or does not permit the connection: someone must act."""


def open_connection(
    broker: Broker, address: tuple[str, int], proxy: Optional[Proxy], deadline: Deadline
) -> Channel:
    """A channel to one address of the broker, or through the proxy, which resolves its name.

    The proxy forwards plain HTTP (`forwarded`). Its addresses are tried in order, each in its share
    of the time.

    Raises:
        OSError: TimeoutError at the deadline, ProxyRefused; its message names the proxy.
    """
    if proxy is None:
        return connect(*address, deadline)
    try:
        ips = Resolver().ips_of(proxy.host, proxy.port, deadline)
        for position, ip in enumerate(ips, 1):
            try:
                channel = connect(ip, proxy.port, deadline.share(len(ips) - position + 1))
                break
            except OSError:
                if position == len(ips):
                    raise
    except OSError as error:
        raise OSError(f"{proxy}: {error_text(error)}") from error
    channel.deadline = deadline
    if broker.kind != STOMP and not broker.tls:
        channel.proxy = proxy
        return channel
    try:
        _ask_to_connect(channel, proxy, broker)
    except BaseException:
        channel.close()
        raise
    return channel


def _ask_to_connect(channel: Channel, proxy: Proxy, broker: Broker) -> None:
    """Send CONNECT and read the answer, after which the bytes are the broker's."""
    lines = [f"CONNECT {broker.netloc} HTTP/1.1", f"Host: {broker.netloc}"]
    lines += [f"{name}: {value}" for name, value in proxy.headers.items()]
    try:
        channel.send("\r\n".join([*lines, "", ""]).encode())
        answer = b""
        while END not in answer and len(answer) < MAX_ANSWER_BYTES:
            data = channel.receive()
            if not data:
                break
            answer += data
        head, end, rest = answer.partition(END)
    except OSError as error:
        raise OSError(f"{proxy}: {error_text(error)}") from error
    line, *fields = head.split(b"\r\n")
    version, _, rest_of_line = line.decode("latin-1").partition(" ")
    code, _, reason = rest_of_line.partition(" ")
    is_http = version.startswith("HTTP/1.") and len(code) == 3 and code.isdecimal()
    status = int(code) if is_http else 0
    if not end or not status:
        raise OSError(f"{proxy}: its answer to CONNECT is not HTTP")
    if not 200 <= status < 300:
        pairs = (field.partition(b":") for field in fields)
        schemes = [v.strip().decode("latin-1") for k, _, v in pairs if k.strip().lower() == LOGIN]
        text = proxy.refusal(status, reason, ", ".join(schemes))
        raise OSError(text) if status >= UNAVAILABLE else ProxyRefused(text)
    if rest:  # a broker never speaks first
        raise OSError(f"{proxy}: it sent more than its answer to CONNECT")
