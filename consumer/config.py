"""The section `[consumer]` of sam.toml, checked once; the only reader of the environment here."""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Optional

from schema.broker import SPOOL, STOMP, Broker, parse_broker
from schema.config import load, state_dir
from schema.errors import ConfigError
from schema.secret_file import find_secret, problem_of_certificate, problem_of_secret

SECTION = "consumer"
PASSWORD = "SAM_CONSUMER_PASSWORD"
PASSWORD_CREDENTIAL = "sam-consumer-password"


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
    return None if broker.kind in (STOMP, SPOOL) else f"{broker}: no source for {broker.scheme}://"


def _check_name(name: str) -> str | None:
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    return None if plain.isascii() and plain.isalnum() else "want letters, digits and -_. only"


def _check_destination(destination: str) -> str | None:
    return None if destination.startswith("/") else f"want /topic/… or /queue/…, not {destination}"


def _missing(path: Path) -> str | None:
    return None if path.exists() else f"{path}: no such file or directory"


def _check_positive(number: float) -> str | None:
    return None if number > 0 else "want more than 0"


@dataclass(frozen=True)
class SubscriptionConfig:
    """A destination of the network brokers; its class is for messages that name none."""

    destination: str = field(metadata={"check": _check_destination})
    message_class: str = field(default="", metadata={"key": "class"})
    shared: bool = False
    """Several processes of one name each get a part of the messages."""


@dataclass(frozen=True)
class ConsumerConfig:
    """`name` is the client-id and names the durable subscriptions: keep it, and share it not."""

    brokers: tuple[str, ...] = field(metadata={"check": _check_brokers})
    name: str = field(default="", metadata={"check": _check_name})
    subscription: tuple[SubscriptionConfig, ...] = ()
    user: str = ""
    password_file: Optional[Path] = field(  # noqa: UP045 - the spelling schema.config reads
        default=None, metadata={"check": problem_of_secret}
    )
    ca_file: Optional[Path] = field(default=None, metadata={"check": _missing})  # noqa: UP045
    certificate_file: Optional[Path] = field(  # noqa: UP045
        default=None, metadata={"check": problem_of_certificate}
    )
    key_file: Optional[Path] = field(  # noqa: UP045
        default=None, metadata={"check": problem_of_secret}
    )
    heart_beat_s: float = field(default=10.0, metadata={"check": _check_positive})
    batch_size: int = field(default=1000, metadata={"check": _check_positive})
    batch_age_s: float = field(default=0.15, metadata={"check": _check_positive})
    prefetch: int = field(default=2000, metadata={"check": _check_positive})
    buffer_bytes: int = field(default=16 * 1024 * 1024, metadata={"check": _check_positive})
    """Of message bodies that wait here; then the brokers wait."""

    def who(self, instance: int | None) -> str:
        """What tells this process from others on the machine."""
        name = self.name or f"spool-{sha256(','.join(self.brokers).encode()).hexdigest()[:12]}"
        return name if instance is None else f"{name}-{instance}"

    def parsed_brokers(self) -> list[Broker]:
        return [parse_broker(url) for url in self.brokers]


def load_consumer(args: argparse.Namespace, instance: int | None = None) -> ConsumerConfig:
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
    problems = list(_contradictions(config, instance))
    if problems:
        raise ConfigError(problems)
    return config


def password(config: ConsumerConfig) -> str | None:
    """Read anew at each connect.

    Raises:
        ConfigError: it is in a file that can't be used now.
    """
    return find_secret(config.password_file, PASSWORD, PASSWORD_CREDENTIAL, os.environ)


def state_directory() -> Path:
    """Where the consumer remembers what it locked."""
    return state_dir(os.environ)


def _contradictions(config: ConsumerConfig, instance: int | None) -> Iterator[str]:
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
    for each in config.subscription if instance is not None else ():
        if not each.shared:
            words = f"{where} subscription {each.destination}: --instance wants shared = true"
            yield f"{words}: a second process would take its messages twice, or not at all"
