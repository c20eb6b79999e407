"""HTTP/1 by hand: requests of any bytes, and a strict reader of the answers.

with RawConnection(port) as connection:
    connection.send(request("POST", "/v1/messages/metricOutput", body=b"..."))
    answer = connection.answer()
"""

from __future__ import annotations

import json
import re
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

HOST = "127.0.0.1"
TIMEOUT_S = 20.0
STATUS_LINE = re.compile(rb"HTTP/[0-9]\.[0-9] ([1-5]\d\d) [ -~]*")
FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([\t -~\x80-\xff]*)")

TEXT = "text/plain"
JSON = "application/json"
LINES = "application/x-ndjson"

Field = tuple[str, str]


class NotHttp(Exception):
    """What arrived is not an answer."""


class Truncated(NotHttp):
    """An answer has begun, but its end is missing."""


class HttpAnswer(NamedTuple):
    """`headers` have lower-case names."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The documents of all complete lines."""
        return [json.loads(line) for line in self.body.splitlines(True) if line.endswith(b"\n")]

    @property
    def documents(self) -> list[dict[str, Any]]:
        """All its documents; none if it is not JSON."""
        content_type = self.headers.get("content-type", "")
        if content_type.startswith(LINES):
            return self.lines
        return [self.document] if content_type.startswith(JSON) else []


def request(
    method: str,
    target: str,
    *fields: Field,
    body: bytes | None = None,
    version: str = "HTTP/1.1",
) -> bytes:
    """A request, with `Content-Length` if it has a body, and `Host` unless it is among `fields`."""
    head = [f"{method} {target} {version}"]
    if all(name.lower() != "host" for name, _ in fields):
        head.append("Host: localhost")
    if body is not None:
        head.append(f"Content-Length: {len(body)}")
    head += [f"{name}: {value}" for name, value in fields]
    return "\r\n".join([*head, "", ""]).encode("utf-8", "surrogateescape") + (body or b"")


class AnswerReader:
    """Reads answers from what `more` returns: the next bytes, or none at the end."""

    def __init__(self, more: Callable[[], bytes]) -> None:
        self._read = more
        self._received = b""

    @property
    def at_end(self) -> bool:
        """Whether no further byte arrives; waits until one does."""
        return not self._received and not self._more()

    def answer(self, method: str = "POST") -> HttpAnswer:
        """The next answer, which may be an interim one (1xx).

        Raises:
            EOFError: there is none.
            NotHttp: these bytes are not an answer, or, as Truncated, only a part of one.
        """
        if self.at_end:
            raise EOFError
        status_line, *lines = self._until(b"\r\n\r\n").split(b"\r\n")
        found = STATUS_LINE.fullmatch(status_line)
        if not found:
            raise NotHttp(status_line)
        status, fields = int(found[1]), _fields(lines)
        return HttpAnswer(status, fields, self._body(method, status, fields))

    def answers(self) -> Sequence[HttpAnswer]:
        """All answers until the end."""
        answers = []
        while not self.at_end:
            answers.append(self.answer())
        return answers

    def _body(self, method: str, status: int, fields: dict[str, str]) -> bytes:
        if method == "HEAD" or status < 200 or status in (204, 304):
            return b""
        if fields.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self._until(b"\r\n"), 16):
                body += self._exactly(size)
                if self._exactly(2) != b"\r\n":
                    raise NotHttp(f"a chunk of {size} bytes does not end there")
            if self._exactly(2) != b"\r\n":
                raise NotHttp("a trailer")
            return body
        if "content-length" in fields:
            return self._exactly(int(fields["content-length"]))
        while self._more():
            pass
        body, self._received = self._received, b""
        return body

    def _until(self, end: bytes) -> bytes:
        while end not in self._received:
            if not self._more():
                raise Truncated(self._received)
        part, _, self._received = self._received.partition(end)
        return part

    def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            if not self._more():
                raise Truncated(self._received)
        part, self._received = self._received[:size], self._received[size:]
        return part

    def _more(self) -> bool:
        data = self._read()
        self._received += data
        return bool(data)


class RawConnection(AnswerReader):
    """A connection that sends any bytes, over TLS if it has a context."""

    def __init__(
        self, port: int, timeout_s: float = TIMEOUT_S, context: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(self._receive)
        self.socket: Any = socket.create_connection((HOST, port), timeout_s)
        if context:
            self.socket = context.wrap_socket(self.socket, server_hostname=HOST)

    def __enter__(self) -> RawConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send the bytes; a peer that has closed the connection may have answered before."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def _receive(self) -> bytes:
        try:
            received: bytes = self.socket.recv(65536)
            return received
        except ConnectionResetError:
            return b""


def _fields(lines: Sequence[bytes]) -> dict[str, str]:
    """The headers by lower-case name, none of them twice."""
    fields: dict[str, str] = {}
    for line in lines:
        found = FIELD.fullmatch(line)
        if not found:
            raise NotHttp(line)
        name = found[1].decode().lower()
        if name in fields:
            raise NotHttp(f"{name} twice")
        fields[name] = found[2].decode("latin-1").strip()
    if "content-length" in fields and "transfer-encoding" in fields:
        raise NotHttp("both content-length and transfer-encoding")
    return fields
