"""A minimal STOMP publisher: its messages are on the broker's disk when `publish` returns."""

from __future__ import annotations

from collections.abc import Iterable

from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.stomp.frame import encode
from tests.support.brokers.subscriber import connected, expect

TIMEOUT_S = 30.0
TRANSACTION = 100
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
    login = {"login": user, "passcode": password} if user else {}
    pending = list(messages)
    with connected(host, port, timeout_s, **{"host": vhost, **login}) as (broker, frames, kind):
        large = any(len(message.body) > LARGE_BYTES for message in pending)
        one_by_one = kind.startswith("RabbitMQ") or large
        own = {"receipt": "done"} if one_by_one else {"transaction": "1"}
        for start in range(0, len(pending), TRANSACTION):
            chunk = pending[start : start + TRANSACTION]
            sends = [_send(message, destination, own) for message in chunk]
            if not one_by_one:
                commit = encode("COMMIT", {**own, "receipt": "done"})
                sends = [encode("BEGIN", own), *sends, commit]
            broker.sendall(b"".join(sends))
            for _ in chunk if one_by_one else [chunk]:
                expect(frames, "RECEIPT")
    return len(pending)


def _send(message: Message, destination: str, headers: dict[str, str]) -> bytes:
    own = {"destination": destination, "persistent": "true", **headers}
    try:
        is_text = "\0" not in message.body.decode()
    except UnicodeDecodeError:
        is_text = False
    if not is_text:  # otherwise it ends at a NUL, or ActiveMQ replaces bytes
        own["content-length"] = str(len(message.body))
    return encode("SEND", {**message.headers, **own}, message.body)
