"""Loads the configuration of the consumer, whole or as much as a command needs."""

from __future__ import annotations

import argparse
import os
import shlex
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from sam_pipeline.consumer.settings.config import LIMITS, SECTION, ConsumerConfig
from sam_pipeline.consumer.settings.metrics_address import exposure_problems
from sam_pipeline.consumer.settings.silence_config import silence_problems
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.identity import broker_identity
from sam_pipeline.schema.net.broker_url import parse_broker
from sam_pipeline.schema.program.wording import did_you_mean, did_you_mean_or_list
from sam_pipeline.schema.settings.files import no_file_found, state_dir
from sam_pipeline.schema.settings.section import Findings, examine


def load_consumer(args: argparse.Namespace, instance: int | None = None) -> ConsumerConfig:
    """The configuration from file, environment and command line; a ConfigError has all problems."""
    to = tuple(getattr(args, "to", ())) or None
    findings = examine_consumer(args, to=to, **_surroundings(instance))
    if findings.problems:
        raise ConfigError(findings.problems)
    config = ConsumerConfig(**findings.values)
    problems = connection_problems(config)
    problems += _problems_of_tables(config)
    circular = {*map(str, config.brokers)} & {*map(str, config.targets)}
    problems += (f"to {url}: this is one of the brokers to read from" for url in sorted(circular))
    if config.reads_network:
        if not config.name:
            problems.append("name is missing: durable subscriptions of network brokers need it")
        if not config.network_subscriptions:
            problems.append("no [[consumer.subscription]] for the network brokers")
    for broker in config.doors:
        problems += config.door.problems(broker)
    problems += silence_problems(config.silence)
    if config.metrics_address and not config.metrics_insecure:
        problems += exposure_problems(
            config.metrics_address, config.metrics_certificate_file, config.metrics_token_file
        )
    network = [str(broker) for broker in config.network_brokers]
    for url in config.vouches:
        try:
            known = str(parse_broker(url)) in network
        except ValueError:
            known = False
        if not known:
            suggestion = did_you_mean(url, network)
            hint = f" ({suggestion})" if suggestion else ""
            problems.append(f"vouches: {url} is not one of the network brokers{hint}")
    for relay in sorted(config.relay_users):
        if not any(relay.startswith(broker_identity(url, "")) for url in config.vouching_brokers):
            problems.append(f"relays: {relay}: no broker in vouches can name that user")
    destinations = Counter(str(item.spool or item.destination) for item in config.subscription)
    for destination in sorted(name for name, count in destinations.items() if count > 1):
        problems.append(f"subscription: {destination} appears twice")
    for subscription in config.subscription:
        destination, spool = subscription.destination, subscription.spool
        if instance is not None and not spool and not subscription.shared:
            needed = (
                "--instance needs shared = true, or each process would get all messages or none"
            )
            problems.append(f"subscription {destination}: {needed}")
        if spool and str(spool) not in config.spools:
            problems.append(f"subscription: {spool} is not one of the brokers")
    if problems:
        raise ConfigError([f"[{SECTION}] {problem}" for problem in problems])
    return config


def connection_problems(config: ConsumerConfig) -> list[str]:
    """Why brokers can't be connected to as configured."""
    problems = []
    for broker in (*config.brokers, *config.targets):
        target = config.target_of(broker)
        if target.user and (problem := target.problem_of_login()):
            problems.append(f"{broker}: {problem}")
        try:
            target.has_proxy()
        except ConfigError as error:
            problems.append(f"broker {broker}: {error}")
    return problems


def _problems_of_tables(config: ConsumerConfig) -> Iterator[str]:
    urls = Counter(str(table.broker) for table in config.broker)
    yield from (f"broker: {url} appears twice" for url, count in urls.items() if count > 1)
    destinations = [item.destination for item in config.network_subscriptions]
    listed = {str(parse_broker(url)) for url in config.broker_urls}
    for table in config.broker:
        if str(table.broker) in listed and table.destinations == ():
            yield f"broker {table.broker}: is one of brokers, but its destinations are empty"
        for name in table.destinations or ():
            if name not in destinations:
                hint = did_you_mean_or_list(name, destinations)
                yield f"broker {table.broker}: destinations: no subscription of {name} ({hint})"


def examine_consumer(args: argparse.Namespace, **flags: Any) -> Findings:
    """The values and problems of the section; `flags` override both file and environment."""
    findings = examine(ConsumerConfig, SECTION, args.config, os.environ, **flags)
    if _names_no_broker(findings):
        problems = [f"{findings.locate('broker_urls')} is missing"]
        if findings.document.path is None:
            problems.append(no_file_found())
        findings.problems += problems
    return findings


def _names_no_broker(findings: Findings) -> bool:
    return not {"broker_urls", "broker"} & (findings.values.keys() | findings.bad)


def load_identity(args: argparse.Namespace) -> ConsumerConfig:
    """Only name and brokers, for accounts that may not read the secrets; raises ConfigError."""
    return _load_keys(args, {"name", "broker_urls"}, instance=args.instance)


def is_relay(args: argparse.Namespace) -> bool:
    """Whether `--to` or the key is set, even if the configuration has problems."""
    try:
        return bool(args.to or examine_consumer(args).values.get("to"))
    except ConfigError:
        return False


def load_for_replay(args: argparse.Namespace) -> ConsumerConfig:
    """Only limits and policy, since a replay needs no brokers; raises ConfigError."""
    return _load_keys(args, {*LIMITS, "publishers", "signature_age_days"})


def policy_path(args: argparse.Namespace) -> Path | None:
    """Only the file of the policy, if there is one; raises ConfigError."""
    return _load_keys(args, {"publishers"}).publishers


def tokens_path(args: argparse.Namespace) -> Path | None:
    """Only the file of tokens, if there is one; raises ConfigError."""
    return _load_keys(args, {"door"}).door.tokens_file


def editor_command() -> list[str]:
    """`$VISUAL` or `$EDITOR`; empty if neither is set."""
    return shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")


def _load_keys(
    args: argparse.Namespace, names: Collection[str], instance: int | None = None
) -> ConsumerConfig:
    """The configuration with some keys, whatever the problems of the others."""
    findings = examine_consumer(args)
    is_missing = "broker_urls" in names and _names_no_broker(findings)
    if findings.bad & set(names) or is_missing:
        raise ConfigError(findings.problems)
    values = {name: value for name, value in findings.values.items() if name in names}
    return ConsumerConfig(**{"broker_urls": (), **values, **_surroundings(instance)})


def _surroundings(instance: int | None) -> dict[str, Any]:
    """The values that the file does not have."""
    return {
        "instance": instance,
        "state_directory": state_dir(os.environ),
        "notify_socket": os.environ.get("NOTIFY_SOCKET"),
        "inherited_sockets": _inherited_sockets(),
    }


def _inherited_sockets() -> int:
    """The number of sockets; 0 if they are for the process that started this one."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return 0
    count = os.environ.get("LISTEN_FDS", "")
    return int(count) if count.isascii() and count.isdigit() else 0
