"""Remembers, on disk, which subscriptions a consumer has made at which broker.

A broker stores messages for a durable subscription until it is deleted, whether the configuration
still has it or not. The file is a log: each line adds a subscription or removes one, so that
several processes of one name can write to it.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from sam_pipeline.consumer.core.recovery import HintFile
from sam_pipeline.consumer.errors import SubscriptionRefused
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.tables import SubscriptionConfig
from sam_pipeline.consumer.sources.stomp.dialects import (
    BrokerDialect,
    deletable,
    dialect_of,
    stored_in,
)
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.messages.destination import QUEUES
from sam_pipeline.schema.net.broker import Broker, parse_broker
from sam_pipeline.schema.times import format_time

SELECTOR = "selector"
ADDED, REMOVED = "added", "removed"

logger = logging.getLogger(__name__)


class RecordKey(NamedTuple):
    """What identifies a subscription of a consumer."""

    broker: str
    vhost: str
    stored_in: str


@dataclass(frozen=True)
class MadeSubscription:
    """A subscription that the broker has confirmed, and where it stores the messages."""

    consumer: str
    broker: str
    """The URL, without the user."""
    vhost: str
    destination: str
    shared: bool
    server: str
    """The kind of broker."""
    stored_in: str
    """The queue, or the name of the durable subscription."""
    user: str = ""
    """The user in the URL, if any."""
    has_table: bool = False
    """Whether the broker had a table `[[consumer.broker]]`, and so perhaps credentials in it."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers of SUBSCRIBE that the configuration added."""
    since: str = ""
    addresses: tuple[str, ...] = ()
    """The hosts behind the name of the broker that have confirmed it."""

    @property
    def key(self) -> RecordKey:
        return RecordKey(self.broker, self.vhost, self.stored_in)

    @property
    def is_queue(self) -> bool:
        """Whether it is a queue, which publishers and other consumers use as well."""
        return self.destination.startswith(QUEUES)

    def address(self) -> Broker:
        """The broker, with the user of its URL."""
        return parse_broker(self.broker)._replace(user=self.user or None)


class SubscriptionRecords:
    """The file of one consumer."""

    def __init__(self, config: ConsumerConfig) -> None:
        self.path: Path = config.state_directory / f"consume-{config.name}.subscriptions"

    def all(self) -> list[MadeSubscription]:
        """The subscriptions that were made and not deleted since, oldest first.

        Raises:
            SpoolError: the file can't be opened.
        """
        made: dict[RecordKey, MadeSubscription] = {}
        with closing(HintFile(self.path)) as file:
            lines = file.read().splitlines()
        for line in filter(None, lines):
            with suppress(ValueError, TypeError, KeyError):  # it was cut short
                entry = json.loads(line)
                if ADDED in entry:
                    subscription = MadeSubscription(**entry[ADDED])
                    before = made.get(subscription.key, subscription)
                    addresses = tuple(sorted({*before.addresses, *subscription.addresses}))
                    made[subscription.key] = replace(subscription, addresses=addresses)
                else:
                    made.pop(RecordKey(*entry[REMOVED]), None)
        return list(made.values())

    def add(self, subscription: MadeSubscription) -> None:
        self._append({ADDED: asdict(subscription)})

    def remove(self, key: RecordKey) -> None:
        self._append({REMOVED: key})

    def _append(self, entry: object) -> None:
        with closing(HintFile(self.path)) as file:
            file.append(f"\n{json.dumps(entry)}\n".encode())  # the line before may be cut short
            with suppress(OSError):
                os.fsync(file.descriptor)


class BrokerRecords:
    """The part of the file that is about one broker, as its sessions use it."""

    def __init__(self, config: ConsumerConfig, broker: Broker) -> None:
        self._records = SubscriptionRecords(config)
        self._consumer = config.name
        self._broker = broker
        self._vhost = config.target_of(broker).vhost
        self._has_table = config.table_of(broker) is not None
        self._address = broker.host

    def at(self, address: str) -> BrokerRecords:
        """The records of one of the hosts behind the name of the broker."""
        records = copy(self)
        records._address = address
        return records

    def have_all(self, subscriptions: Collection[tuple[str, bool]]) -> bool:
        """Whether the host has confirmed these: destination, and whether it is shared."""
        try:
            made = {
                (before.destination, before.shared)
                for before in self._records.all()
                if (before.broker, before.vhost) == (str(self._broker), self._vhost)
                and self._address in before.addresses
            }
        except SpoolError:
            return False
        return made.issuperset(subscriptions)

    def require_unchanged(self, made: MadeSubscription) -> None:
        """Raise SubscriptionRefused if the subscription exists with another selector.

        ActiveMQ would drop the messages that wait in it, and Artemis would ignore the new selector.
        """
        for before in self._before(made):
            selector = before.headers.get(SELECTOR)
            if selector != made.headers.get(SELECTOR) and not made.is_queue:
                raise SubscriptionRefused(
                    made.destination,
                    f"the subscription was made with the selector {selector!r}: restore it,"
                    " or load the messages that wait with it, stop the daemon, and delete the"
                    f" subscription: {unsubscribing(made)} --yes",
                )

    def add(self, made: MadeSubscription) -> None:
        """Remember a subscription that the broker has confirmed."""
        for before in self._before(made):
            known = before.addresses if self._address in before.addresses else made.addresses
            made = replace(made, since=before.since, addresses=known)
            if made == before:
                return
        try:
            self._records.add(made)
        except SpoolError as error:
            logger.warning("%s; continuing without it", error)

    def made(
        self, dialect: BrokerDialect, destination: str, shared: bool, headers: Mapping[str, str]
    ) -> MadeSubscription:
        """A subscription that is made now."""
        return MadeSubscription(
            self._consumer,
            str(self._broker),
            self._vhost,
            destination,
            shared,
            dialect.kind,
            stored_in(dialect, self._consumer, destination, shared),
            self._broker.user or "",
            self._has_table,
            dict(headers),
            format_time(datetime.now(UTC)),
            (self._address,),
        )

    def _before(self, made: MadeSubscription) -> Iterator[MadeSubscription]:
        with suppress(SpoolError):
            yield from (before for before in self._records.all() if before.key == made.key)


def unsubscribing(made: MadeSubscription) -> str:
    """The command that deletes a subscription."""
    return f"sam-consume subscription delete {made.broker} {made.destination}"


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
            "broker %s: %s is no longer read, but the broker still stores messages in %s: %s",
            made.broker,
            made.destination,
            made.stored_in,
            advice,
            extra={"broker": made.broker},
        )
