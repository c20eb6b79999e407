"""STOMP brokers: each gets many messages in the way that is quickest for it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence

from publisher.address import BrokerAddress
from publisher.config import PublisherConfig
from publisher.deadline import Deadline
from publisher.errors import BrokerUnavailable, MessageRejected
from publisher.frame import RECEIPT, TRANSACTION, send_headers
from publisher.stomp_session import SessionEnded, StompSession, frame_bytes
from schema.message import Message

WINDOW = 100
"""Receipts awaited at a time, and messages of a transaction."""

SLOW_RECEIPTS = "ActiveMQ/"
"""Server that syncs its disk for each receipt: seven times quicker with transactions.

The others answer a window of receipts at least as quickly.
"""

# What brokers say when the message or its destination is the trouble. With any other words the
# broker is: then the next one is tried.
_REFUSAL = re.compile(
    r"not authorized|access.?refused|denied|permission|too (large|big|long)|maximum .*(length|size)"
    r"|not.?found|no such|inequivalent|precondition|invalid|illegal|unknown (exchange|destination)",
    re.IGNORECASE,
)

Way = Callable[[Sequence[Message], Deadline], Iterator[int]]


def connect(address: BrokerAddress, config: PublisherConfig, deadline: Deadline) -> StompTransport:
    return StompTransport(address, config, deadline)


def preview(message: Message) -> bytes:
    return frame_bytes("SEND", {**send_headers(message), RECEIPT: "1"}, message.body) + b"\n"


class StompTransport:
    """One connection at a time: a message that ends it leaves another for the next."""

    def __init__(self, address: BrokerAddress, config: PublisherConfig, deadline: Deadline) -> None:
        self._address = address
        self._config = config
        self._receipts = map(str, itertools.count(1))
        self._session = self._open(deadline)

    def send(self, messages: Sequence[Message], deadline: Deadline) -> Iterator[int]:
        unconfirmed = dict.fromkeys(range(len(messages)))
        if len(messages) == 1:
            yield from self._one_by_one(messages, [0], deadline)
            return
        try:
            for position in self._quickest_way()(messages, deadline):
                del unconfirmed[position]
                yield position
        except SessionEnded:
            # Perhaps for one of the messages, and the broker's words may be lost with the
            # connection: so the rest goes singly, on a new one.
            self._reopen(deadline)
            yield from self._one_by_one(messages, list(unconfirmed), deadline)

    def close(self) -> None:
        self._session.close()

    def _quickest_way(self) -> Way:
        slow_receipts = self._session.server.startswith(SLOW_RECEIPTS)
        return self._in_transactions if slow_receipts else self._in_a_window

    def _one_by_one(
        self, messages: Sequence[Message], positions: Sequence[int], deadline: Deadline
    ) -> Iterator[int]:
        for position in positions:
            waiting = {self._send(messages[position], deadline): position}
            try:
                yield self._confirmed(waiting, deadline)
            except SessionEnded as error:
                if not _REFUSAL.search(str(error)):
                    raise BrokerUnavailable(self._address, str(error)) from error
                self._reopen(deadline)
                raise MessageRejected(self._address, position, str(error)) from error

    def _in_a_window(self, messages: Sequence[Message], deadline: Deadline) -> Iterator[int]:
        waiting: dict[str, int] = {}
        for position, message in enumerate(messages):
            if len(waiting) == WINDOW:
                yield self._confirmed(waiting, deadline)
            waiting[self._send(message, deadline)] = position
        while waiting:
            yield self._confirmed(waiting, deadline)

    def _in_transactions(self, messages: Sequence[Message], deadline: Deadline) -> Iterator[int]:
        """The receipt of a COMMIT confirms all of its messages."""
        for start in range(0, len(messages), WINDOW):
            group = range(start, min(start + WINDOW, len(messages)))
            receipt = next(self._receipts)
            transaction = {TRANSACTION: receipt}
            self._session.send("BEGIN", transaction, b"", deadline)
            for position in group:
                message = messages[position]
                headers = {**send_headers(message), **transaction}
                self._session.send("SEND", headers, message.body, deadline)
            self._session.send("COMMIT", {**transaction, RECEIPT: receipt}, b"", deadline)
            self._confirmed({receipt: start}, deadline)
            yield from group

    def _send(self, message: Message, deadline: Deadline) -> str:
        """The id of the receipt that will confirm the message."""
        receipt = next(self._receipts)
        headers = {**send_headers(message), RECEIPT: receipt}
        self._session.send("SEND", headers, message.body, deadline)
        return receipt

    def _confirmed(self, waiting: dict[str, int], deadline: Deadline) -> int:
        """The position of the next confirmed message, taken out of `waiting`."""
        while True:
            receipt = self._session.receipt(deadline)
            if receipt in waiting:
                return waiting.pop(receipt)

    def _open(self, deadline: Deadline) -> StompSession:
        return StompSession(self._address, self._config.login(self._address.broker), deadline)

    def _reopen(self, deadline: Deadline) -> None:
        self._session.drop()
        self._session = self._open(deadline)
