"""A minimal STOMP publisher: its messages are on the broker's disk when `publish` returns."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import BinaryIO

from sam_pipeline.schema.messages.message import Message

TIMEOUT_S = 30.0
TRANSACTION = 100
ONE_BY_ONE = b"server:RabbitMQ"
"""RabbitMQ confirms a transaction before it is on disk, but a single message only afterwards."""
LARGE_BYTES = 1_000_000
"""ActiveMQ under load sometimes fails to commit a transaction with a body of 60 MB."""


def publish(
    host: str,
    port: int,
    destination: str,
    messages: Iterable[Message],
    *,
    timeout_s: float = TIMEOUT_S,
    user: str = "",
    password: str = "",
    vhost: str = "/",
) -> int:
    """Send persistently, in transactions where they are safe, and wait for all receipts.

    A killed RabbitMQ may have lost transactions whose COMMIT it confirmed; there each message has
    its own receipt.

    Returns:
        The number of messages.

    Raises:
        OSError: it is unknown whether the last hundred messages were stored.
    """
    sent = 0
    login = {"login": user, "passcode": password} if user else {}
    with (
        socket.create_connection((host, port), timeout_s) as connection,
        connection.makefile("rb") as reader,
    ):
        connection.sendall(_frame("CONNECT", {"accept-version": "1.2", "host": vhost, **login}))
        pending = list(messages)
        large = any(len(message.body) > LARGE_BYTES for message in pending)
        one_by_one = ONE_BY_ONE in _expect(reader, b"CONNECTED") or large
        for start in range(0, len(pending), TRANSACTION):
            chunk = pending[start : start + TRANSACTION]
            if one_by_one:
                frames = [_send(message, destination, {"receipt": "done"}) for message in chunk]
            else:
                frames = _transaction(chunk, destination)
            connection.sendall(b"".join(frames))
            for _ in chunk if one_by_one else [chunk]:
                _expect(reader, b"RECEIPT")
            sent += len(chunk)
    return sent


def _transaction(messages: Iterable[Message], destination: str) -> list[bytes]:
    ours = {"transaction": "1"}
    sends = [_send(message, destination, ours) for message in messages]
    return [_frame("BEGIN", ours), *sends, _frame("COMMIT", {**ours, "receipt": "done"})]


def _send(message: Message, destination: str, headers: dict[str, str]) -> bytes:
    own = {"destination": destination, "persistent": "true", **headers}
    if not _is_text(message.body):  # otherwise it ends at a NUL, or ActiveMQ replaces bytes
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


def _expect(reader: BinaryIO, command: bytes) -> bytes:
    """The next frame, which must have this command."""
    frame = b""
    while not frame.endswith(b"\0"):
        byte = reader.read(1)
        if not byte:
            raise ConnectionError(f"closed instead of {command!r}: {frame!r}")
        frame += byte
    if not frame.lstrip(b"\n").startswith(command):
        raise ConnectionError(f"expected {command!r}, got {frame!r}")
    return frame
