"""An HTTP server in a thread that answers with the given bytes, with faults on request.

with HttpStandIn(lambda asked: reply(200, b"yes")) as server:
    ...
assert server.asked[0].target == "/path"
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from tests.support.brokers.stand_in import POLL_S, StandIn

DRIP_S = 0.1


@dataclass(frozen=True)
class Asked:
    method: str
    target: str
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes
    connection: int
    """The number of connections before the one of this request."""

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True, strict_parsing=True))

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def reply(status: int, body: bytes = b"", reason: str = "Reason", **headers: str) -> bytes:
    """The bytes of an answer; a header's `_` stands for `-`."""
    lines = [f"HTTP/1.1 {status} {reason}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def json_reply(status: int, document: object) -> bytes:
    return reply(status, json.dumps(document).encode(), Content_Type="application/json")


class HttpServer(StandIn):
    """Reads requests one after the other, each with its body unless `hears_no_body`."""

    context: ssl.SSLContext | None = None
    hears_no_body: bool = False

    @abstractmethod
    def _handle(self, connection: socket.socket, asked: Asked) -> bool:
        """Answer, and return whether the connection goes on."""

    def _serve(self, connection: socket.socket, number: int) -> None:
        connection.settimeout(5)
        with connection, suppress(OSError):
            if self.context:
                connection = self.context.wrap_socket(connection, server_side=True)
            connection.settimeout(POLL_S)
            with connection:
                self._converse(connection, number)

    def _converse(self, connection: socket.socket, number: int) -> None:
        buffer = b""
        for chunk in self._chunks(connection):
            buffer += chunk
            while b"\r\n\r\n" in buffer:
                head, _, rest = buffer.partition(b"\r\n\r\n")
                first, *lines = head.decode().split("\r\n")
                method, target, _ = first.split(" ")
                pairs = (line.split(": ", 1) for line in lines)
                headers = {name.lower(): value for name, value in pairs}
                size = 0 if self.hears_no_body else int(headers.get("content-length", "0"))
                if len(rest) < size:
                    break
                buffer = rest[size:]
                if not self._handle(
                    connection, Asked(method, target, headers, rest[:size], number)
                ):
                    return


@dataclass
class HttpStandIn(HttpServer):
    answer: Callable[[Asked], bytes] = lambda asked: reply(200)
    """Closes the connection instead of answering if this returns no bytes."""
    drips: bool = False
    """Sends one byte every DRIP_S."""
    closes_when_idle: bool = False
    """Closes after each answer without announcing it in the answer."""
    hears_no_body: bool = False
    """Answers as soon as it has read the headers, and closes."""
    context: ssl.SSLContext | None = None
    asked: list[Asked] = field(default_factory=list)
    closed: threading.Event = field(default_factory=threading.Event)
    """Set once the server has closed a connection."""

    def _serve(self, connection: socket.socket, number: int) -> None:
        super()._serve(connection, number)
        self.closed.set()

    def _handle(self, connection: socket.socket, asked: Asked) -> bool:
        self.asked.append(asked)
        answer = self.answer(asked)
        self._say(connection, answer, DRIP_S if self.drips else 0.0)
        return bool(answer) and not (self.closes_when_idle or self.hears_no_body)
