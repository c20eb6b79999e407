"""Makes the sources from the configuration: one per broker URL, by the kind of broker."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from sam_pipeline.consumer.config import ConsumerConfig
from sam_pipeline.consumer.core.source import Source
from sam_pipeline.consumer.sources.signatures import SignatureCheck
from sam_pipeline.consumer.sources.spool import SpoolSource
from sam_pipeline.consumer.sources.stomp import StompSource
from sam_pipeline.consumer.sources.stomp_link import Address, StompSettings
from sam_pipeline.consumer.sources.stomp_session import IsLastAttempt, Subscription, never_last
from sam_pipeline.schema.identity.holder import PolicyHolder
from sam_pipeline.schema.net.broker_url import SPOOL


def make_sources(
    config: ConsumerConfig, policy: PolicyHolder, is_last_attempt: IsLastAttempt = never_last
) -> list[Source]:
    """One source per configured broker, in the order of the configuration."""
    name = config.process_name
    signatures = SignatureCheck(policy, timedelta(days=config.signature_age_days))
    settings = replace(
        stomp_settings(config, name), signatures=signatures, is_last_attempt=is_last_attempt
    )
    owners: dict[Address, str] = {}
    return [
        SpoolSource(
            broker,
            name,
            config.state_directory,
            config.stamp_of(broker),
            config.max_message_bytes,
            relays=config.relay_accounts,
            signatures=signatures,
        )
        if broker.kind == SPOOL
        else StompSource(broker, settings, owners=owners)
        for broker in config.brokers
    ]


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
