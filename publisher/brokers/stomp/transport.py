"""STOMP brokers: each gets many messages in the way that is quickest for it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.stomp.headers import RECEIPT, TRANSACTION, send_headers
from sam_pipeline.publisher.brokers.stomp.session import FORBIDDEN, PublishingSession, judged, says
from sam_pipeline.publisher.brokers.transport import nothing_else
from sam_pipeline.publisher.errors import MessageRejected
from sam_pipeline.publisher.settings.config import DESTINATION, PublisherConfig
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker_url import Broker
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp_frame import encode
from sam_pipeline.schema.net.stomp_session import SessionLost

WRITE_BYTES = 64 * 1024
"""Frames are joined up to this: one write for many."""

ENOUGH_REFUSALS = 3

UNDER_WAY = 500
"""Messages that are sent and not confirmed: more are not quicker, and after a break in doubt."""
FEWER = 10
"""A break divides it by this, until the message that is to blame is alone."""

# ActiveMQ syncs its disk for each receipt: a window of them is seven times slower there.
PER_RECEIPT = {"ActiveMQ": 100}
"""Messages of a transaction, by server; the others get none, and a receipt for each message."""

Unit = Sequence[int]
"""The positions of messages that one receipt confirms."""


def preview(broker: Broker, config: PublisherConfig, message: Message) -> bytes:
    return _send_frame(message, {RECEIPT: "1"}) + b"\n"


def round_trip(
    address: BrokerAddress, config: PublisherConfig, message: Message, deadline: Deadline
) -> str:
    from sam_pipeline.publisher.brokers.stomp.round_trip import round_trip

    return round_trip(address, config, message, deadline)


class StompTransport:
    """One connection at a time: a message that ends it leaves another for the next."""

    def __init__(self, address: BrokerAddress, config: PublisherConfig, deadline: Deadline) -> None:
        self._address = address
        self._config = config
        self.meanwhile = nothing_else
        self._receipts = map(str, itertools.count(1))
        self._forbidden: dict[str, list[str]] = {}
        """By destination, the reasons the broker gave for refusing us there."""
        self._session = PublishingSession(address, config, deadline)

    def send(self, messages: Sequence[Message], deadline: Deadline) -> Iterator[int]:
        # Each refusal costs connections: after a few of a destination there is no more to ask.
        for position, message in enumerate(messages if self._forbidden else ()):
            reasons = self._forbidden.get(message.headers[DESTINATION], [])
            if len(reasons) >= ENOUGH_REFUSALS:
                raise MessageRejected(self._address, position, reasons[-1])
        yield from self._confirmed(messages, range(len(messages)), UNDER_WAY, deadline)

    def close(self) -> None:
        self._session.close()

    def _confirmed(
        self, messages: Sequence[Message], positions: Sequence[int], most: int, deadline: Deadline
    ) -> Iterator[int]:
        """The positions as they are confirmed; at most `most` messages are in doubt at a time."""
        size = min(most, PER_RECEIPT.get(self._session.server.partition("/")[0], 1))
        units = (positions[start : start + size] for start in range(0, len(positions), size))
        window = most // size
        while True:
            waiting: dict[str, Unit] = {}
            """By receipt, the units that are under way on this connection."""
            try:
                while True:
                    if len(waiting) <= window // 2:  # few large writes, no idle broker
                        fresh = itertools.islice(units, window - len(waiting))
                        self._launch(messages, fresh, waiting, deadline)
                    if not waiting:
                        return
                    for receipt in self._session.receipts(deadline, self.meanwhile):
                        yield from waiting.pop(receipt, ())
            except SessionLost as loss:
                doubtful = [position for unit in waiting.values() for position in unit]
                if most == 1 or (loss.by_error and len(doubtful) == 1):
                    error = judged(self._address, doubtful[0], loss)
                    if isinstance(error, MessageRejected):
                        self._reopen(deadline)  # for the other messages
                        if says(FORBIDDEN, error.reason):
                            destination = messages[doubtful[0]].headers[DESTINATION]
                            self._forbidden.setdefault(destination, []).append(error.reason)
                    raise error from loss
            # Perhaps for one of them, and the broker's words may be lost with the connection.
            self._reopen(deadline)
            yield from self._confirmed(messages, doubtful, max(1, most // FEWER), deadline)

    def _launch(
        self,
        messages: Sequence[Message],
        units: Iterable[Unit],
        waiting: dict[str, Unit],
        deadline: Deadline,
    ) -> None:
        frames: list[bytes] = []
        size = 0
        for unit in units:
            receipt = next(self._receipts)
            waiting[receipt] = unit
            for frame in _frames(messages, unit, receipt):
                frames.append(frame)
                size += len(frame)
                if size >= WRITE_BYTES:
                    self._session.send(b"".join(frames), deadline)
                    frames, size = [], 0
        self._session.send(b"".join(frames), deadline)

    def _reopen(self, deadline: Deadline) -> None:
        self._session.drop()
        self._session = PublishingSession(self._address, self._config, deadline)


connect = StompTransport


def _frames(messages: Sequence[Message], unit: Unit, receipt: str) -> Iterator[bytes]:
    if len(unit) == 1:
        yield _send_frame(messages[unit[0]], {RECEIPT: receipt})
        return
    transaction = {TRANSACTION: receipt}
    yield encode("BEGIN", transaction)
    for position in unit:
        yield _send_frame(messages[position], transaction)
    yield encode("COMMIT", {**transaction, RECEIPT: receipt})


def _send_frame(message: Message, more: dict[str, str]) -> bytes:
    headers = send_headers(message)
    headers.update(more)
    return encode("SEND", headers, message.body)
