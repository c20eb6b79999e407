"""The publisher's STOMP session, and how its end becomes an error of the publisher."""

from __future__ import annotations

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.brokers.connection import open_channel
from sam_pipeline.publisher.errors import BrokerUnavailable, MessageRejected, PublishError
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.sender import SendingSession, is_refusal
from sam_pipeline.schema.net.stomp.session import SessionLost


def open_session(
    address: BrokerAddress, config: PublisherConfig, deadline: Deadline
) -> SendingSession:
    """A session that is logged in; raises BrokerUnavailable."""
    user, password = config.login(address.broker)
    at = config.at(address.broker)
    certificate = at.certificate_file if address.broker.tls else None
    channel = open_channel(address, config, deadline)
    try:
        return SendingSession(channel, user, password, certificate, deadline, at.vhost)
    except SessionLost as loss:
        raise BrokerUnavailable(address, str(loss)) from loss


def judged(address: BrokerAddress, position: int, loss: SessionLost) -> PublishError:
    """The error for a session that ended while only the message at `position` was under way."""
    if is_refusal(loss):
        return MessageRejected(address, position, str(loss))
    return BrokerUnavailable(address, str(loss))
