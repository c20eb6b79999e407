"""Prove the way to every configured broker by a check message."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial

from sam_pipeline.publisher.brokers.address import BrokerAddress, addresses_of
from sam_pipeline.publisher.brokers.transport import kind_of
from sam_pipeline.publisher.errors import BrokerUnavailable, PublishError
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.messages.message import DESTINATION, Message, new_message
from sam_pipeline.schema.net.broker_url import AMS, DOOR, SPOOL, Broker
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.round_trip import RoundTrip, timed
from sam_pipeline.schema.records.classes import CHECK_CLASS


def check_message(config: PublisherConfig, broker: Broker) -> Message:
    """A message to where results go at a broker; consumers count its class and load nothing."""
    destination = config.destination_at(broker, config.message_class)
    headers = {DESTINATION: destination, **config.origin("check")}
    body = f"sam-publish check on {socket.gethostname()}\n"
    return new_message(CHECK_CLASS, body, headers=headers)


def round_trips(config: PublisherConfig) -> Iterator[RoundTrip]:
    """One for each address of each broker, each in an equal share of the remaining time."""
    deadline = Deadline.after(config.timeout_s)
    brokers = config.broker_list
    for number, broker in enumerate(brokers, 1):
        later = len(brokers) - number
        message = check_message(config, broker)
        destination = message.headers[DESTINATION]
        try:
            via_proxy = config.proxy_for(broker) is not None
            addresses = addresses_of(broker, deadline.share(later + 1), via_proxy)
        except BrokerUnavailable as failure:
            yield RoundTrip(str(broker), "", destination, None, 0.0, str(failure))
            continue
        for position, address in enumerate(addresses):
            share = deadline.share(len(addresses) - position + later)
            prove = partial(kind_of(broker).round_trip, address, config, message, share)
            trip = timed(broker, address.ip, destination, prove, PublishError)
            is_open = trip.problem is None and _anybody_may_publish(address, config, share)
            yield trip._replace(anybody_may_publish=is_open)


def _anybody_may_publish(
    address: BrokerAddress, config: PublisherConfig, deadline: Deadline
) -> bool:
    """Whether a broker that took our message also confirms one without login and certificate."""
    broker = address.broker
    if broker.kind in (AMS, SPOOL):  # they always know the sender
        return False
    at = config.at(broker)
    secret = config.door_token(broker) if broker.kind == DOOR else at.user
    if not (secret or (broker.tls and at.certificate_file)):
        return True
    nobody = config._replace(anonymous=True)
    with suppress(PublishError):
        transport = kind_of(broker).connect(address, nobody, deadline)
        with closing(transport):
            return bool(list(transport.send([check_message(config, broker)], deadline)))
    return False
