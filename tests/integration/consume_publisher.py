"""A bare STOMP publisher: what it sent is at the broker when `publish` returns."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

from schema.message import Message

TIMEOUT_S = 30.0
TRANSACTION = 100


def publish(
    host: str,
    port: int,
    destination: str,
    messages: Iterable[Message],
    *,
    timeout_s: float = TIMEOUT_S,
    one_by_one: bool = False,
) -> int:
    """Send persistently, in transactions, and wait for the receipt of each; gives the count.

    A RabbitMQ that is killed may have lost transactions whose COMMIT it confirmed; `one_by_one`
    has a receipt for each message instead, which it keeps.

    Raises:
        OSError: of the last transaction nobody knows whether it was stored.
    """
    sent = 0
    with (
        socket.create_connection((host, port), timeout_s) as connection,
        connection.makefile("rb") as reader,
    ):
        connection.sendall(_frame("CONNECT", {"accept-version": "1.2", "host": "/"}))
        _expect(reader, b"CONNECTED")
        pending = list(messages)
        for start in range(0, len(pending), TRANSACTION):
            chunk = pending[start : start + TRANSACTION]
            frames = _each_confirmed if one_by_one else _in_transaction
            connection.sendall(b"".join(frames(destination, chunk)))
            for _ in chunk if one_by_one else chunk[:1]:
                _expect(reader, b"RECEIPT")
            sent += len(chunk)
    return sent


def _each_confirmed(destination: str, chunk: Sequence[Message]) -> Iterator[bytes]:
    for number, message in enumerate(chunk):
        yield _send(message, destination, {"receipt": str(number)})


def _in_transaction(destination: str, chunk: Sequence[Message]) -> Iterator[bytes]:
    in_transaction = {"transaction": "1"}
    yield _frame("BEGIN", in_transaction)
    for message in chunk:
        yield _send(message, destination, in_transaction)
    yield _frame("COMMIT", {**in_transaction, "receipt": "done"})


def _send(message: Message, destination: str, headers: dict[str, str]) -> bytes:
    own = {"destination": destination, "persistent": "true", **headers}
    if not _is_text(message.body):  # else it would end at a NUL, or be mended by ActiveMQ
        own["content-length"] = str(len(message.body))
    return _frame("SEND", {**message.headers, **own}, message.body)


def _is_text(body: bytes) -> bool:
    try:
        return "\0" not in body.decode()
    except UnicodeDecodeError:
        return False


def _frame(command: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    lines = "".join(f"{key}:{_escaped(value)}\n" for key, value in headers.items())
    return f"{command}\n{lines}\n".encode() + body + b"\0"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace(":", "\\c")


def _expect(reader: BinaryIO, command: bytes) -> None:
    frame = b""
    while not frame.endswith(b"\0"):
        byte = reader.read(1)
        if not byte:
            raise ConnectionError(f"closed instead of {command!r}: {frame!r}")
        frame += byte
    if not frame.lstrip(b"\n").startswith(command):
        raise ConnectionError(f"wanted {command!r}, got {frame!r}")
