"""From the configuration to the sources: one per broker URL, by its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from consumer.config import ConsumerConfig
from consumer.source import Source
from consumer.spool_source import SpoolSource
from consumer.stomp_link import StompSettings
from consumer.stomp_session import Subscription
from consumer.stomp_source import StompSource
from schema.broker import SPOOL, STOMP, Broker

Build = Callable[[Broker, ConsumerConfig, Path], Source]


def make_sources(config: ConsumerConfig, state: Path) -> list[Source]:
    return [BUILD[broker.kind](broker, config, state) for broker in config.parsed_brokers()]


def room_for(config: ConsumerConfig) -> int:
    """How many deliveries may be under way, so that no network broker's listener ever waits."""
    brokers = sum(broker.kind != SPOOL for broker in config.parsed_brokers())
    return config.prefetch * max(len(config.network_subscriptions()), 1) * max(brokers, 1)


def _stomp(broker: Broker, config: ConsumerConfig, state: Path) -> Source:
    subscriptions = tuple(
        Subscription(each.destination, each.message_class or None, config.prefetch)
        for each in config.network_subscriptions()
    )
    settings = StompSettings(config.name, subscriptions, config.user, config.password_file)
    return StompSource(broker, settings)


def _spool(broker: Broker, config: ConsumerConfig, state: Path) -> Source:
    return SpoolSource(broker, config.name, state, config.stamp_of(broker))


BUILD: Mapping[str, Build] = {STOMP: _stomp, SPOOL: _spool}
