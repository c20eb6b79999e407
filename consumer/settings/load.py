"""Loads the configuration of the consumer, whole or as much as a command needs."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.tables import SubscriptionConfig
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker_url import parse_broker
from sam_pipeline.schema.settings.files import find_file, read_configuration, state_dir
from sam_pipeline.schema.settings.section import Findings, examine

_OF_SPOOLS = {"name", "broker_urls", "broker", "subscription", "max_message_bytes"}


def load_consumer(args: argparse.Namespace, instance: int | None = None) -> ConsumerConfig:
    """The configuration from file, environment and command line; a ConfigError has all problems."""
    return examine_consumer(
        args, instance, relay_to=tuple(getattr(args, "to", ())) or None
    ).config()


def examine_consumer(
    args: argparse.Namespace, instance: int | None = None, **flags: Any
) -> Findings[ConsumerConfig]:
    """The values and problems of the section; `flags` override both file and environment."""
    surroundings = {
        "instance": instance,
        "state_directory": state_dir(os.environ),
        "notify_socket": os.environ.get("NOTIFY_SOCKET"),
        "inherited_sockets": _inherited_sockets(),
    }
    findings = examine(ConsumerConfig, args.config, **surroundings, **flags)
    if not {"broker_urls", "broker"} & (findings.values.keys() | findings.bad):
        findings.add_missing("broker_urls")
    return findings


def is_relay(args: argparse.Namespace) -> bool:
    """Whether `--to` or the key is set, even if the configuration has problems."""
    try:
        return bool(args.to or examine_consumer(args).values.get("relay_to"))
    except ConfigError:
        return False


def load_for_find(args: argparse.Namespace) -> ConsumerConfig:
    """What names and describes our spools; a host may have none, and no consumer."""
    findings = examine_consumer(args)
    return findings.only(*_OF_SPOOLS & {*findings.values, *findings.rejected})


def publisher_spools(args: argparse.Namespace) -> Iterator[Path]:
    """The spools of the publisher with this sam.toml and environment, and those of its copies."""
    document = read_configuration(find_file(args.config, os.environ))
    section: Any = document.values.get("publisher", {})

    def path(value: object, *keys: str | int) -> Path:
        return document.directory("publisher", *keys) / str(value)

    state = (
        path(section["state_dir"], "state_dir") if "state_dir" in section else state_dir(os.environ)
    )
    if spool := os.environ.get("SAM_PUBLISHER_SPOOL"):
        yield Path(spool)
    else:
        yield path(section["spool"], "spool") if "spool" in section else state / "spool"
    for number, copy in enumerate(section.get("copy", ()), 1):
        if "spool" in copy:
            yield path(copy["spool"], "copy", number, "spool")
        else:
            yield state / "copies" / str(copy.get("name")) / "spool"


def load_for_tap(
    args: argparse.Namespace, brokers: Sequence[str] = (), destinations: Sequence[str] = ()
) -> ConsumerConfig:
    """The configuration of a look at messages, which needs no name; raises ConfigError.

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
    problems = [*config.connection_problems()]
    for broker in config.network_brokers:
        if not destinations and not config.subscriptions_at(broker):
            problems.append(f"{broker}: no subscription is configured, and no --destination given")
    if problems:
        raise ConfigError([f"[consumer] {problem}" for problem in problems])
    return config


def _inherited_sockets() -> int:
    """The number of sockets; 0 if they are for the process that started this one."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return 0
    count = os.environ.get("LISTEN_FDS", "")
    return int(count) if count.isascii() and count.isdigit() else 0
