"""Prove the way to every configured broker by a check message."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial

from sam_pipeline.publisher.brokers.tokens import door_token
from sam_pipeline.publisher.brokers.transport import kind_of
from sam_pipeline.publisher.delivery.origin import command_origin
from sam_pipeline.publisher.delivery.outgoing import destination_at
from sam_pipeline.publisher.delivery.route import addresses_of
from sam_pipeline.publisher.errors import BrokerUnavailable, PublishError
from sam_pipeline.publisher.settings import PublisherConfig
from sam_pipeline.schema.messages.message import DESTINATION, Message, new_message
from sam_pipeline.schema.net.broker_url import AMS, DOOR, SPOOL
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.round_trip import RoundTrip, timed
from sam_pipeline.schema.net.target import Target
from sam_pipeline.schema.records.classes import CHECK_CLASS
from sam_pipeline.schema.secret_file import Secret


def check_message(config: PublisherConfig, target: Target) -> Message:
    """A message to where results go at a broker; consumers count its class and load nothing."""
    destination = destination_at(target, config.message_class, config)
    headers = {DESTINATION: destination, **command_origin("check")}
    body = f"sam-publish check on {socket.gethostname()}\n"
    return new_message(CHECK_CLASS, body, headers=headers)


def round_trips(config: PublisherConfig) -> Iterator[RoundTrip]:
    """One for each address of each broker, each in an equal share of the remaining time."""
    deadline = Deadline.after(config.timeout_s)
    for number, named in enumerate(config.targets, 1):
        later = len(config.targets) - number
        message = check_message(config, named)
        destination = message.headers[DESTINATION]
        try:
            addresses = addresses_of(named, deadline.share(later + 1))
        except BrokerUnavailable as failure:
            yield RoundTrip(str(named), "", destination, None, 0.0, str(failure))
            continue
        for position, target in enumerate(addresses):
            share = deadline.share(len(addresses) - position + later)
            prove = partial(kind_of(target.broker).round_trip, target, message, share)
            trip = timed(target.broker, target.ip, destination, prove, PublishError)
            is_open = trip.problem is None and _anybody_may_publish(target, config, share)
            yield trip._replace(anybody_may_publish=is_open)


def _anybody_may_publish(target: Target, config: PublisherConfig, deadline: Deadline) -> bool:
    """Whether a broker that took our message also confirms one without login and certificate."""
    broker, files = target.broker, target.tls_files
    if broker.kind in (AMS, SPOOL):  # they always know the sender
        return False
    secret = door_token(target) if broker.kind == DOOR else target.user
    if not (secret or (broker.tls and files.certificate_file)):
        return True
    trust = files._replace(certificate_file=None, key_file=None)
    nobody = target._replace(user=None, token=Secret(), tls_files=trust)
    with suppress(PublishError):
        transport = kind_of(broker).connect(nobody, deadline)
        with closing(transport):
            return bool(list(transport.send([check_message(config, target)], deadline)))
    return False
