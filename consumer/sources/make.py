"""Makes the sources from the configuration: one per broker URL, by the kind of broker."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from sam_pipeline.consumer.config import ConsumerConfig
from sam_pipeline.consumer.core.source import Source
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.sources.signatures import SignatureCheck
from sam_pipeline.consumer.sources.spool import SpoolSource
from sam_pipeline.consumer.sources.stomp import StompSource
from sam_pipeline.consumer.sources.stomp_link import Address, StompSettings
from sam_pipeline.consumer.sources.stomp_session import IsLastAttempt, Subscription, never_last
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.holder import PolicyHolder
from sam_pipeline.schema.net.broker_url import LISTEN, SPOOL, Broker
from sam_pipeline.schema.program.extras import how_to_install


def make_sources(
    config: ConsumerConfig,
    policy: PolicyHolder,
    state: State,
    is_last_attempt: IsLastAttempt = never_last,
) -> list[Source]:
    """One source per configured broker, in the order of the configuration.

    Raises:
        ConfigError: a door can't be opened.
    """
    name = config.process_name
    signatures = SignatureCheck(policy, timedelta(days=config.signature_age_days))
    settings = replace(
        stomp_settings(config, name), signatures=signatures, is_last_attempt=is_last_attempt
    )
    owners: dict[Address, str] = {}
    sources: list[Source] = []
    for broker in config.brokers:
        if broker.kind == SPOOL:
            spool = SpoolSource(
                broker,
                name,
                config.state_directory,
                config.stamp_of(broker),
                config.max_message_bytes,
                relays=config.relay_accounts,
                signatures=signatures,
            )
            sources.append(spool)
        elif broker.kind == LISTEN:
            sources.append(_door(broker, config, signatures, state))
        else:
            sources.append(StompSource(broker, settings, owners=owners))
    return sources


def _door(
    broker: Broker, config: ConsumerConfig, signatures: SignatureCheck, state: State
) -> Source:
    try:
        from sam_pipeline.consumer.sources.door.settings import DoorSettings
        from sam_pipeline.consumer.sources.door.source import HttpSource
    except ModuleNotFoundError as error:
        raise ConfigError(how_to_install(error.name or "") or [str(error)]) from error
    door_settings = DoorSettings(
        config.door, config.max_message_bytes, config.buffer_bytes, signatures
    )
    return HttpSource(broker, door_settings, state)


def stomp_settings(config: ConsumerConfig, client_id: str) -> StompSettings:
    """The settings that all network brokers share."""
    return StompSettings(
        consumer=config.name,
        subscriptions=tuple(
            Subscription(item.destination, item.stamp, config.prefetch, item.shared)
            for item in config.network_subscriptions
        ),
        client_id=client_id,
        user=config.user,
        password=config.password,
        tls_files=config.tls_files,
        heart_beat_s=config.heart_beat_s,
        max_message_bytes=config.max_message_bytes,
        vouches=config.vouching_brokers,
    )
