"""STOMP brokers as a kind of the publisher."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.stomp.session import open_session
from sam_pipeline.publisher.errors import BrokerUnavailable, MessageRejected
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker_url import Broker
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.headers import RECEIPT
from sam_pipeline.schema.net.stomp.sender import SendRefused, StompSender, send_frame
from sam_pipeline.schema.net.stomp.session import SessionLost


def refusal_of(broker: Broker, message: Message) -> str:
    return ""


def preview(broker: Broker, config: PublisherConfig, message: Message) -> bytes:
    return send_frame(message, {**config.at(broker).headers, RECEIPT: "1"}) + b"\n"


def round_trip(
    address: BrokerAddress, config: PublisherConfig, message: Message, deadline: Deadline
) -> str:
    from sam_pipeline.publisher.brokers.stomp.round_trip import round_trip

    return round_trip(address, config, message, deadline)


class StompTransport(StompSender):
    """The sender of one address, with the errors of a transport."""

    def __init__(self, address: BrokerAddress, config: PublisherConfig, deadline: Deadline) -> None:
        self._address = address
        headers = config.at(address.broker).headers
        super().__init__(partial(open_session, address, config), deadline, headers)

    def send(self, messages: Sequence[Message], deadline: Deadline) -> Iterator[int]:
        try:
            yield from super().send(messages, deadline)
        except SendRefused as refusal:
            raise MessageRejected(self._address, refusal.position, refusal.reason) from refusal
        except SessionLost as loss:
            raise BrokerUnavailable(self._address, str(loss)) from loss


connect = StompTransport
