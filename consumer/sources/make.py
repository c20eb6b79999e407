"""From the configuration to the sources: one per broker URL, by its kind."""

from __future__ import annotations

from pathlib import Path

from sam_pipeline.consumer.config import ConsumerConfig, password
from sam_pipeline.consumer.core.source import Source
from sam_pipeline.consumer.sources.spool import SpoolSource
from sam_pipeline.consumer.sources.stomp import StompSource
from sam_pipeline.consumer.sources.stomp_link import Address, StompSettings
from sam_pipeline.consumer.sources.stomp_session import Subscription
from sam_pipeline.schema.net.broker_url import SPOOL
from sam_pipeline.schema.net.tls import TlsFiles


def make_sources(config: ConsumerConfig, who: str, state: Path) -> list[Source]:
    """`who` is the process: the name of the consumer, and its number if it shares the name."""
    settings = stomp_settings(config, who)
    taken: dict[Address, str] = {}
    return [
        SpoolSource(broker, who, state, config.stamp_of(broker))
        if broker.kind == SPOOL
        else StompSource(broker, settings, taken=taken)
        for broker in config.parsed_brokers()
    ]


def stomp_settings(config: ConsumerConfig, who: str) -> StompSettings:
    """What all network brokers share; `who` is the client-id."""
    return StompSettings(
        consumer=config.name,
        subscriptions=tuple(
            Subscription(wanted.destination, wanted.stamp, config.prefetch, wanted.shared)
            for wanted in config.network_subscriptions()
        ),
        client_id=who,
        user=config.user,
        password=lambda: password(config),
        tls_files=TlsFiles(config.ca_file, config.certificate_file, config.key_file),
        heart_beat_s=config.heart_beat_s,
    )
