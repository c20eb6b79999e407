"""The round trip of a check message: send it to a STOMP broker and wait until it comes back."""

from __future__ import annotations

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.stomp.session import judged, open_session
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.messages.destination import QUEUES
from sam_pipeline.schema.messages.message import DESTINATION, MESSAGE_ID, Message
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.headers import send_headers
from sam_pipeline.schema.net.stomp.sender import MISSING, SendingSession, says
from sam_pipeline.schema.net.stomp.session import NoAnswer, SessionLost

ROUND_TRIP = "round trip"
SUBSCRIPTION = "check"

QUEUE_PATIENCE_S = 2.0
"""How long to wait for our message in a queue, where a consumer may be faster (s)."""

# One message at a time: a header for each kind of broker, ignored by the others.
ONE_MESSAGE = {
    "activemq.prefetchSize": "1",
    "consumer-window-size": "1",  # bytes: Artemis sends a message while any are left
    "prefetch-count": "1",
}


def round_trip(
    address: BrokerAddress, config: PublisherConfig, message: Message, deadline: Deadline
) -> str:
    """Send a check message and read it back; see `BrokerKind.round_trip`."""
    destination = message.headers[DESTINATION]
    is_queue = destination.startswith(QUEUES)
    mode = {"ack": "client", **ONE_MESSAGE} if is_queue else {"ack": "auto"}
    subscription = {"id": SUBSCRIPTION, "destination": destination, **mode}
    forbidden = ""
    session = open_session(address, config, deadline)
    try:
        try:
            session.ask("SUBSCRIBE", subscription, deadline)
        except SessionLost as loss:
            if not loss.by_error or says(MISSING, loss):
                raise
            forbidden = str(loss)
            session.drop()
            session = open_session(address, config, deadline)
        headers = {**send_headers(message), **config.at(address.broker).headers}
        session.ask("SEND", headers, deadline, message.body)
        if forbidden:
            return f"confirmed, not read back: not allowed to subscribe ({forbidden})"
        if is_queue:
            proven = _look_in_queue(session, message, deadline)
        else:
            try:
                while session.message(deadline).headers.get(MESSAGE_ID) != message.message_id:
                    pass
            except NoAnswer as error:
                lost = f"confirmed, but it did not come back from {destination}: {error}"
                raise BrokerUnavailable(address, lost) from error
            proven = ROUND_TRIP
        # Messages that were not acknowledged return to the queue as if never delivered.
        session.ask("UNSUBSCRIBE", {"id": SUBSCRIPTION}, deadline)
        return proven
    except SessionLost as loss:
        raise judged(address, 0, loss) from loss
    finally:
        session.close()


def _look_in_queue(session: SendingSession, message: Message, deadline: Deadline) -> str:
    """Wait for the first message of the queue, and acknowledge it only if it is our own."""
    try:
        patience_s = min(QUEUE_PATIENCE_S, deadline.remaining() / 2)
        frame = session.message(Deadline.after(patience_s))
    except NoAnswer:
        return "confirmed, not read back: a consumer may have been faster"
    if frame.headers.get(MESSAGE_ID) != message.message_id:
        return "confirmed, not read back: another message is ahead of it in the queue"
    session.ask("ACK", {"id": frame.headers.get("ack", "")}, deadline)
    return ROUND_TRIP
