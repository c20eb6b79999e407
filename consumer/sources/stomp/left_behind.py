"""The subscriptions that the configuration does not have any more.

A broker goes on storing messages for a durable subscription until it is deleted, and fills its
disk.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.subscription_config import SubscriptionConfig
from sam_pipeline.consumer.sources.stomp.dialects import deletable, dialect_of
from sam_pipeline.consumer.sources.stomp.records import (
    MadeSubscription,
    SubscriptionRecords,
    unsubscribing,
)
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.net.broker_url import Broker

logger = logging.getLogger(__name__)


def left_behind(
    config: ConsumerConfig, made: Sequence[MadeSubscription]
) -> Iterator[MadeSubscription]:
    """The subscriptions that are not configured."""
    return (item for item in made if not is_configured(config, item))


def is_configured(config: ConsumerConfig, made: MadeSubscription) -> bool:
    """Whether the configuration still reads a subscription."""
    return any(
        is_made(config, broker, subscription, made) for broker, subscription in configured(config)
    )


def configured(config: ConsumerConfig) -> Iterator[tuple[Broker, SubscriptionConfig]]:
    """The subscriptions that are read at each network broker."""
    for broker in config.network_brokers:
        for subscription in config.subscriptions_at(broker):
            yield broker, subscription


def is_made(
    config: ConsumerConfig,
    broker: Broker,
    subscription: SubscriptionConfig,
    made: MadeSubscription,
) -> bool:
    """Whether a configured subscription is this one."""
    same_name = made.is_queue or dialect_of(f"{made.server}/").shares_the_name
    return (
        (str(broker), config.target_of(broker).vhost) == (made.broker, made.vhost)
        and subscription.destination == made.destination
        and (same_name or subscription.shared == made.shared)
    )


def warn_of_left_behind(config: ConsumerConfig) -> None:
    """Log each of them, with the command that deletes it."""
    if not config.name:
        return
    try:
        records = SubscriptionRecords(config).all()
    except SpoolError as error:
        logger.warning("%s; continuing without it", error)
        return
    for made in left_behind(config, records):
        advice = f"delete it: {unsubscribing(made)}"
        if not deletable(made.server, made.destination, made.shared):
            advice = f"delete it with the tools of the broker, then: {unsubscribing(made)} --forget"
        logger.warning(
            "broker %s: %s is not read any more, but the broker goes on storing messages in %s: %s",
            made.broker,
            made.destination,
            made.stored_in,
            advice,
            extra={"broker": made.broker},
        )
