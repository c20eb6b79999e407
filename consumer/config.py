"""The section `[consumer]` of sam.toml, checked once; the only reader of the environment here."""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from schema.broker import SPOOL, STOMP, Broker, parse_broker
from schema.config import load, read_secret, state_dir
from schema.errors import ConfigError

SECTION = "consumer"
SCHEMES = (STOMP, SPOOL)

SERVICE_DIRECTORY = Path("/var/lib/sam")
"""What systemd names $STATE_DIRECTORY to the service; people who ask about it have no such one."""


def _check_brokers(urls: tuple[str, ...]) -> str | None:
    if not urls:
        return "names no broker"
    problems = [_problem_of(url) for url in urls]
    if len(set(urls)) < len(urls):
        problems.append("names one broker twice")
    return "; ".join(filter(None, problems)) or None


def _problem_of(url: str) -> str | None:
    try:
        broker = parse_broker(url)
    except ValueError as error:
        return str(error)
    return None if broker.scheme in SCHEMES else f"{broker}: no source for {broker.scheme}://"


def _check_name(name: str) -> str | None:
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    return None if plain.isascii() and plain.isalnum() else "want letters, digits and -_. only"


def _check_destination(destination: str) -> str | None:
    return None if destination.startswith("/") else f"want /topic/… or /queue/…, not {destination}"


def _check_positive(number: float) -> str | None:
    return None if number > 0 else "want more than 0"


def _check_port(port: int) -> str | None:
    return None if 0 <= port <= 65535 else "want a port, or 0 for none"


def _check_secret(path: Path) -> str | None:
    try:
        read_secret(path)
    except ConfigError as error:
        return str(error)
    return None


@dataclass(frozen=True)
class SubscriptionConfig:
    """A destination of the network brokers; its class is for messages that name none."""

    destination: str = field(metadata={"check": _check_destination})
    message_class: str = field(default="", metadata={"key": "class"})


@dataclass(frozen=True)
class ConsumerConfig:
    """`name` is the client-id and names the durable subscriptions: keep it, and share it not."""

    brokers: tuple[str, ...] = field(metadata={"check": _check_brokers})
    name: str = field(default="", metadata={"check": _check_name})
    subscription: tuple[SubscriptionConfig, ...] = ()
    user: str = ""
    password_file: Optional[Path] = field(  # noqa: UP045 - the spelling schema.config reads
        default=None, metadata={"check": _check_secret}
    )
    batch_size: int = field(default=1000, metadata={"check": _check_positive})
    batch_age_s: float = field(default=0.2, metadata={"check": _check_positive})
    prefetch: int = field(default=2000, metadata={"check": _check_positive})
    metrics_port: int = field(default=0, metadata={"check": _check_port})
    """On the loopback alone; 0 for none."""

    def parsed_brokers(self) -> list[Broker]:
        return [parse_broker(url) for url in self.brokers]


def load_consumer(args: argparse.Namespace) -> ConsumerConfig:
    """The configuration from file and environment.

    Raises:
        ConfigError: all its problems at once.
    """
    config = load(
        ConsumerConfig,
        SECTION,
        flags={},
        path=args.config,
        environ=os.environ,
        parse_toml=tomllib.loads,
    )
    problems = list(_contradictions(config))
    if problems:
        raise ConfigError(problems)
    return config


def state_directory() -> Path:
    """Where the consumer remembers what it locked."""
    return state_dir(os.environ)


def notify_address() -> str | None:
    """Where systemd wants to be told how we do; None where it does not."""
    return os.environ.get("NOTIFY_SOCKET")


def state_places() -> list[Path]:
    """Where a daemon may keep its state: that of this user, or that of the service."""
    return [state_directory(), SERVICE_DIRECTORY]


def _contradictions(config: ConsumerConfig) -> Iterator[str]:
    """What is wrong between keys that are right by themselves."""
    where = f"[{SECTION}]"
    destinations = [subscription.destination for subscription in config.subscription]
    if any(broker.kind != SPOOL for broker in config.parsed_brokers()):
        if not config.name:
            yield f"{where} name is missing: network brokers know a durable subscription by it"
        if not destinations:
            yield f"{where} has no [[consumer.subscription]]: nothing to ask a network broker for"
    for destination in sorted({each for each in destinations if destinations.count(each) > 1}):
        yield f"{where} subscription: {destination} is there twice"
