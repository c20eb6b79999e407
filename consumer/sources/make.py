"""Makes the sources from the configuration: one per broker URL, by the kind of broker."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial

from sam_pipeline.consumer.core.source import Source
from sam_pipeline.consumer.core.state import State
from sam_pipeline.consumer.process.last_good import LastGood
from sam_pipeline.consumer.process.listening import Listeners, allow_connections
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.sources.door.access import Credentials, DoorSettings
from sam_pipeline.consumer.sources.signatures import SignatureCheck
from sam_pipeline.consumer.sources.spool import SpoolSource
from sam_pipeline.consumer.sources.stomp.records import BrokerRecords
from sam_pipeline.consumer.sources.stomp.session import Address, StompSettings, Subscription
from sam_pipeline.consumer.sources.stomp.source import StompSource
from sam_pipeline.schema.identity.policy import Policy
from sam_pipeline.schema.net.broker import LISTEN, SPOOL, Broker
from sam_pipeline.schema.net.tls import tls_context
from sam_pipeline.schema.program.wording import plural

logger = logging.getLogger(__name__)


def make_sources(
    config: ConsumerConfig,
    policy: Policy | None,
    state: State,
    listeners: Listeners,
    credentials: Credentials,
    is_last_attempt: Callable[[str, str], bool],
) -> list[Source]:
    """One source per configured broker, in the order of the configuration."""
    signatures = SignatureCheck(policy, timedelta(days=config.signature_age_days), state.now)
    owners: dict[Address, str] = {}
    sources: list[Source] = []
    for broker in config.brokers:
        if broker.kind == SPOOL:
            sources.append(SpoolSource(broker, config, signatures, state.full_sources))
        elif broker.kind == LISTEN:
            sources.append(_door(broker, config, signatures, state, listeners, credentials))
        else:
            settings = replace(
                stomp_settings(config, config.process_name, broker, state.out_of_use),
                signatures=signatures,
                is_last_attempt=is_last_attempt,
                records=BrokerRecords(config, broker),
                pause=partial(state.pause_of, str(broker)),
            )
            sources.append(StompSource(broker, settings, owners=owners))
    return sources


def _door(
    broker: Broker,
    config: ConsumerConfig,
    signatures: SignatureCheck,
    state: State,
    listeners: Listeners,
    credentials: Credentials,
) -> Source:
    from sam_pipeline.consumer.sources.door.source import HttpSource  # aiohttp is an extra

    wanted = config.door.max_connections
    allowed = allow_connections(wanted * len(config.doors)) // len(config.doors)
    if allowed < wanted:
        text = "%s: the hard limit on open files allows %s, not max_connections = %d"
        logger.warning(text, broker, plural(allowed, "connection"), wanted)
    config = config.replace(door=config.door.replace(max_connections=allowed))
    settings = DoorSettings(config, listeners, credentials, signatures)
    return HttpSource(broker, settings, state)


def stomp_settings(
    config: ConsumerConfig,
    client_id: str,
    broker: Broker,
    show: Callable[[str, str], object] = lambda *_: None,
) -> StompSettings:
    """The settings for a network broker; `show` as of LastGood. Raises ConfigError."""
    target = config.target_of(broker)
    files, headers = target.tls_files, target.headers
    proxy = LastGood(f"proxy to {broker}", target.find_proxy, show)
    return StompSettings(
        consumer=config.name,
        subscriptions=tuple(
            Subscription(item.destination, item.stamp, config.prefetch, item.shared, headers)
            for item in config.subscriptions_at(broker)
        ),
        client_id=client_id,
        user=target.user or "",
        password=LastGood(f"password at {broker}", target.password.read, show),
        vhost=target.vhost,
        proxy=proxy if target.has_proxy() else None,
        tls_files=files,
        tls_context=LastGood(f"TLS files for {broker}", partial(tls_context, files), show),
        heart_beat_s=config.heart_beat_s,
        max_message_bytes=config.max_message_bytes,
        vouches=str(broker) in config.vouching_brokers,
        relays=config.relay_users,
    )
