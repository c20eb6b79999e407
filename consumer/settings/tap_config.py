"""The configuration of a look at messages, whose brokers and destinations may be other ones."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from sam_pipeline.consumer.settings.config import SECTION, ConsumerConfig
from sam_pipeline.consumer.settings.load import connection_problems, examine_consumer
from sam_pipeline.consumer.settings.subscription_config import SubscriptionConfig
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker_url import parse_broker


def load_for_tap(
    args: argparse.Namespace, brokers: Sequence[str] = (), destinations: Sequence[str] = ()
) -> ConsumerConfig:
    """The configuration, which needs no name; raises ConfigError.

    `brokers` and `destinations` are read instead of those configured. What is configured for one of
    them applies.
    """
    configured = examine_consumer(args).values.get("broker_urls", ())
    url_of = {str(parse_broker(url)): url for url in configured}  # it may have a user
    urls = tuple(url_of.get(str(parse_broker(url)), url) for url in brokers)
    findings = examine_consumer(args, broker_urls=urls or None)
    if findings.problems:
        raise ConfigError(findings.problems)
    config = ConsumerConfig(**findings.values)
    if urls:
        names = {str(parse_broker(url)) for url in urls}
        tables = (table for table in config.broker if str(table.broker) in names)
        config = config.replace(broker=tuple(tables))
    if destinations:
        known = {item.destination: item for item in config.subscription}
        of_spools = [item for item in config.subscription if item.spool]
        wanted = [known.get(name) or SubscriptionConfig(destination=name) for name in destinations]
        config = config.replace(subscription=(*of_spools, *wanted))
    problems = connection_problems(config)
    for broker in config.network_brokers:
        if not destinations and not config.subscriptions_at(broker):
            problems.append(f"{broker}: no subscription is configured, and no --destination given")
    if problems:
        raise ConfigError([f"[{SECTION}] {problem}" for problem in problems])
    return config
