"""Prove the way to a STOMP broker and back: send a check message and see it come."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.stomp.headers import RECEIPT, send_headers
from sam_pipeline.publisher.brokers.stomp.session import SessionEnded, StompSession
from sam_pipeline.publisher.brokers.stomp.stomp_refusal import MISSING, judged, says
from sam_pipeline.publisher.brokers.transport import nothing_else
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.settings.config import DESTINATION, PublisherConfig
from sam_pipeline.schema.messages.message import MESSAGE_ID, Message
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp_frame import Frame, encode

ROUND_TRIP = "round trip"
SUBSCRIPTION = "check"

QUEUES = ("/queue/", "/amq/queue/")
"""What waits there belongs to a consumer, and a consumer may be quicker than we."""
QUEUE_PATIENCE_S = 2.0

# One message at a time, in the words of each broker; the others ignore them.
ONE_MESSAGE = {
    "activemq.prefetchSize": "1",
    "consumer-window-size": "1",  # bytes: Artemis sends a message while any are left
    "prefetch-count": "1",
}


def round_trip(
    address: BrokerAddress, config: PublisherConfig, message: Message, deadline: Deadline
) -> str:
    """What was proven; `BrokerKind.round_trip` tells more."""
    with closing(_Check(address, config, message, deadline)) as check:
        try:
            return check.words()
        except SessionEnded as end:
            raise judged(address, 0, end) from end


class _Check:
    """Each step waits for the broker's answer; any may raise SessionEnded."""

    def __init__(
        self, address: BrokerAddress, config: PublisherConfig, message: Message, deadline: Deadline
    ) -> None:
        self._address = address
        self._config = config
        self._message = message
        self._destination = message.headers[DESTINATION]
        self._deadline = deadline
        self._session = StompSession(address, config, deadline)

    def words(self) -> str:
        forbidden = self._subscribe()
        self._ask("SEND", send_headers(self._message), self._message.body)
        if forbidden:
            return f"confirmed, may not subscribe to see it ({forbidden})"
        words = self._look_in_queue() if self._is_queue else self._look_in_topic()
        # What was not acknowledged is back in its place, and counts as never delivered.
        self._ask("UNSUBSCRIBE", {"id": SUBSCRIPTION})
        return words

    def close(self) -> None:
        self._session.close()

    @property
    def _is_queue(self) -> bool:
        return self._destination.startswith(QUEUES)

    def _subscribe(self) -> str:
        """The words of a broker that does not let us, on a new connection then."""
        way = {"ack": "client", **ONE_MESSAGE} if self._is_queue else {"ack": "auto"}
        headers = {"id": SUBSCRIPTION, "destination": self._destination, **way}
        try:
            self._ask("SUBSCRIBE", headers)
        except SessionEnded as end:
            if not end.by_error or says(MISSING, end):
                raise
            self._session.drop()
            self._session = StompSession(self._address, self._config, self._deadline)
            return str(end)
        return ""

    def _look_in_topic(self) -> str:
        try:
            while not self._is_ours(self._session.frame(self._deadline)):
                pass
        except BrokerUnavailable as error:
            lost = f"confirmed, but it did not come back from {self._destination}: {error.reason}"
            raise BrokerUnavailable(self._address, lost) from error
        return ROUND_TRIP

    def _look_in_queue(self) -> str:
        """Only our own message is acknowledged: what else waits there is not ours to take."""
        patience = Deadline.after(min(QUEUE_PATIENCE_S, self._deadline.remaining() / 2))
        try:
            frame = self._session.frame(patience)
        except BrokerUnavailable:
            return "confirmed, not seen again: nothing came, perhaps a consumer was quicker"
        if not self._is_ours(frame):
            return "confirmed, not seen again: another message stands before it in the queue"
        self._ask("ACK", {"id": frame.headers.get("ack", "")})
        return ROUND_TRIP

    def _is_ours(self, frame: Frame) -> bool:
        return frame.headers.get(MESSAGE_ID) == self._message.message_id

    def _ask(self, command: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        frame = encode(command, {**headers, RECEIPT: command}, body)
        self._session.send(frame, self._deadline)
        while command not in self._session.receipts(self._deadline, nothing_else):
            pass
