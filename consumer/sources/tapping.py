"""Makes sources that only look at messages, from the configuration."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from sam_pipeline.consumer.core.source import Source
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.subscription_config import SubscriptionConfig
from sam_pipeline.consumer.sources.make import stomp_settings
from sam_pipeline.consumer.sources.signatures import SignatureCheck
from sam_pipeline.consumer.sources.spool_tap import SpoolTap
from sam_pipeline.consumer.sources.stomp.link import Address
from sam_pipeline.consumer.sources.stomp.session import Subscription
from sam_pipeline.consumer.sources.stomp.source import StompSource
from sam_pipeline.consumer.sources.stomp.tap_session import TapSession
from sam_pipeline.schema.identity.policy import Policy
from sam_pipeline.schema.net.broker_url import LISTEN, SPOOL

logger = logging.getLogger(__name__)


def make_taps(
    config: ConsumerConfig, policy: Policy | None, destinations: Sequence[SubscriptionConfig] = ()
) -> list[Source]:
    """One source per configured broker; `destinations` are read instead of those configured.

    An HTTP door has none: nobody but the daemon itself sees the messages that it receives.
    """
    signatures = SignatureCheck(policy, timedelta(days=config.signature_age_days))
    # A broker refuses a second client with the id of the daemon, or gives it half of the messages.
    client_id = f"{config.name or 'sam'}-tap-{secrets.token_hex(4)}"
    owners: dict[Address, str] = {}
    taps: list[Source] = []
    for broker in config.brokers:
        if broker.kind == LISTEN:
            text = "%s is left out: only the daemon sees the messages that it receives over HTTP"
            logger.warning(text, broker)
        elif broker.kind == SPOOL:
            spool = SpoolTap(
                broker,
                client_id,
                config.state_directory,
                config.stamp_of(broker),
                config.max_message_bytes,
                relays=config.relay_accounts,
                signatures=signatures,
            )
            taps.append(spool)
        else:
            settings = stomp_settings(config, client_id, broker)
            terms = replace(
                settings.terms,
                signatures=signatures,
                is_last_attempt=lambda broker, message_id: True,
            )
            settings = replace(settings, consumer=client_id, session=TapSession, terms=terms)
            if destinations:
                headers = config.target_of(broker).headers
                wanted = (
                    Subscription(item.destination, item.stamp, headers=headers)
                    for item in destinations
                )
                settings = replace(settings, subscriptions=tuple(wanted))
            taps.append(StompSource(broker, settings, owners=owners))
    return taps
