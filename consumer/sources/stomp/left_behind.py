"""Warns of subscriptions that the configuration does not have any more.

A broker goes on storing messages for a durable subscription until it is deleted, and fills its
disk. The last configuration is remembered in the state directory, for reloads and restarts.
"""

from __future__ import annotations

import json
import logging
from contextlib import closing, suppress

from sam_pipeline.consumer.process.hint_file import HintFile
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.sources.stomp.dialects import subscription_name
from sam_pipeline.schema.messages.destination import QUEUES

logger = logging.getLogger(__name__)


def warn_of_left_behind(config: ConsumerConfig) -> None:
    """Log each subscription that only the last run had, and remember those of this one."""
    now = [
        [str(broker), subscription.destination]
        for broker in config.network_brokers
        for subscription in config.network_subscriptions
    ]
    path = config.state_directory / f"consume-{config.process_name}.subscriptions"
    with closing(HintFile(path)) as file:
        before: list[list[str]] = []
        with suppress(ValueError):  # it was cut short
            before = json.loads(file.read() or b"[]")
        if before != now:
            file.replace(json.dumps(now).encode())
    for broker, destination in before:
        if [broker, destination] not in now:
            what = "queue"
            if not destination.startswith(QUEUES):
                what = f"subscription {subscription_name(config.name, destination)}"
            logger.warning(
                "broker %s: %s is not read any more, but the broker goes on storing messages in the"
                " %s: delete it there (docs/consumer.md, Replace a broker) or configure it again",
                broker,
                destination,
                what,
                extra={"broker": broker},
            )
