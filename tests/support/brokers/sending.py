"""Send messages through one transport, and see the outcome of each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.transport import kind_of, outcomes
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker_url import parse_broker
from sam_pipeline.schema.net.deadline import Deadline
from tests.support.brokers.stand_in import HOST


def sent_to(
    url: str, messages: Sequence[Message], config: PublisherConfig | None = None
) -> dict[int, str | None]:
    """By position: None if the broker confirmed the message, else why it rejected it."""
    address = BrokerAddress(parse_broker(url), HOST)
    deadline = Deadline.after(10)
    kind = kind_of(address.broker)
    with closing(kind.connect(address, config or PublisherConfig(), deadline)) as transport:
        return {
            position: rejection.reason if rejection else None
            for position, rejection in outcomes(transport, messages, deadline)
        }


def rejection_of(url: str, message: Message, config: PublisherConfig | None = None) -> str:
    reason = sent_to(url, [message], config)[0]
    assert reason is not None
    return reason
