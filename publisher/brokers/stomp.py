"""Brokers that speak STOMP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from sam_pipeline.publisher.brokers.connection import open_channel, usable
from sam_pipeline.publisher.brokers.transport import Transport
from sam_pipeline.publisher.errors import BrokerUnavailable, MessageRejected
from sam_pipeline.schema.messages.destination import QUEUES
from sam_pipeline.schema.messages.headers import RECEIPT, send_headers
from sam_pipeline.schema.messages.message import DESTINATION, MESSAGE_ID, Message
from sam_pipeline.schema.net.broker import Target
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.sender import (
    MISSING,
    SendingSession,
    SendRefused,
    StompSender,
    is_refusal,
    says,
    send_frame,
)
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


class StompTransport(StompSender, Transport):
    """The sender of one address, with the errors of a transport."""

    def __init__(self, target: Target, deadline: Deadline) -> None:
        self._target = target
        super().__init__(partial(open_session, target), deadline, target.headers)

    def send(self, messages: Sequence[Message], deadline: Deadline) -> Iterator[int]:
        try:
            yield from super().send(messages, deadline)
        except SendRefused as refusal:
            raise MessageRejected(self._target, refusal.position, refusal.reason) from refusal
        except SessionLost as loss:
            raise BrokerUnavailable(self._target, str(loss)) from loss

    @classmethod
    def preview(cls, target: Target, message: Message) -> bytes:
        return send_frame(message, {**target.headers, RECEIPT: "1"}) + b"\n"

    @classmethod
    def round_trip(cls, target: Target, message: Message, deadline: Deadline) -> str:
        destination = message.headers[DESTINATION]
        is_queue = destination.startswith(QUEUES)
        mode = {"ack": "client", **ONE_MESSAGE} if is_queue else {"ack": "auto"}
        subscription = {"id": SUBSCRIPTION, "destination": destination, **mode}
        forbidden = ""
        session = open_session(target, deadline)
        try:
            try:
                session.ask("SUBSCRIBE", subscription, deadline)
            except SessionLost as loss:
                if not loss.by_error or says(MISSING, loss):
                    raise
                forbidden = str(loss)
                session.drop()
                session = open_session(target, deadline)
            headers = {**send_headers(message), **target.headers}
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
                    raise BrokerUnavailable(target, lost) from error
                proven = ROUND_TRIP
            # Messages that were not acknowledged return to the queue as if never delivered.
            session.ask("UNSUBSCRIBE", {"id": SUBSCRIPTION}, deadline)
            return proven
        except SessionLost as loss:
            if is_refusal(loss):  # only one message was under way
                raise MessageRejected(target, 0, str(loss)) from loss
            raise BrokerUnavailable(target, str(loss)) from loss
        finally:
            session.close()


def open_session(target: Target, deadline: Deadline) -> SendingSession:
    """A session that is logged in; raises BrokerUnavailable."""
    user, password = usable(target, target.login)
    certificate = target.tls_files.certificate_file if target.broker.tls else None
    channel = open_channel(target, deadline)
    try:
        return SendingSession(channel, user, password, certificate, deadline, target.vhost)
    except SessionLost as loss:
        raise BrokerUnavailable(target, str(loss)) from loss


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
