"""The section `[consumer]` of sam.toml, checked once; the only reader of the environment here."""

from __future__ import annotations

import argparse
import os
import shlex
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Optional

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.messages.foreign import FORMATS, Stamp, make_stamp, rename_problems
from sam_pipeline.schema.net.broker_url import SPOOL, STOMP, Broker, parse_broker
from sam_pipeline.schema.net.secret_file import (
    find_secret,
    problem_of_certificate,
    problem_of_secret,
)
from sam_pipeline.schema.program.config import examine, load, state_dir
from sam_pipeline.schema.records.normalise import Limits

SECTION = "consumer"
SERVICE_DIRECTORY = Path("/var/lib/sam")
"""What systemd names $STATE_DIRECTORY to the service; people who ask about it have no such one."""
PASSWORD = "SAM_CONSUMER_PASSWORD"
PASSWORD_CREDENTIAL = "sam-consumer-password"

MOST_DAYS = 36_525
"""A hundred years, before any grid."""
MOST_FUTURE_S = 31_622_400
"""A year: no clock is that wrong by accident and still worth a result."""
LIMITS = frozenset({"max_message_bytes", "max_records", "max_age_days", "max_future_s"})
_DEFAULT = Limits()


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
    if destination.startswith("/"):
        return None
    if not destination.startswith(f"{SPOOL}://"):
        return f"want /topic/…, /queue/… or the URL of a spool, not {destination}"
    return _problem_of(destination)


def _check_format(name: str) -> str | None:
    return None if name in FORMATS else f"want one of {', '.join(FORMATS)}, not {name!r}"


def _check_rename(rename: dict[str, str]) -> str | None:
    return "\n".join(rename_problems(rename.items())) or None


def _missing(path: Path) -> str | None:
    return None if path.exists() else f"{path}: no such file or directory"


def _check_positive(number: float) -> str | None:
    return None if number > 0 else "want more than 0"


def _check_port(port: int) -> str | None:
    return None if 0 <= port <= 65535 else "want a port, or 0 for none"


def _check_days(days: int) -> str | None:
    return None if 0 < days <= MOST_DAYS else f"want 1 to {MOST_DAYS} days"


def _check_future(seconds: int) -> str | None:
    return None if 0 < seconds <= MOST_FUTURE_S else f"want 1 to {MOST_FUTURE_S} s"


@dataclass(frozen=True)
class SubscriptionConfig:
    """A destination of the network brokers, or one of the spools: what its messages are.

    Class, format and renames are for messages that do not say them by their headers.
    """

    destination: str = field(metadata={"check": _check_destination})
    message_class: str = field(default="", metadata={"key": "class"})
    shared: bool = False
    """Several processes of one name each get a part of the messages."""
    format: str = field(default="wlcg", metadata={"check": _check_format})
    rename: dict[str, str] = field(default_factory=dict, metadata={"check": _check_rename})
    """Our key by that of a foreign writer."""

    @property
    def spool(self) -> Broker | None:
        """The spool that is meant; None of a destination of the network brokers."""
        return None if self.destination.startswith("/") else parse_broker(self.destination)

    @property
    def stamp(self) -> Stamp:
        return make_stamp(self.message_class, self.format, self.rename)


@dataclass(frozen=True)
class ConsumerConfig:
    """`name` is the client-id and names the durable subscriptions: keep it, and share it not."""

    brokers: tuple[str, ...] = field(metadata={"check": _check_brokers})
    name: str = field(default="", metadata={"check": _check_name})
    subscription: tuple[SubscriptionConfig, ...] = ()
    user: str = ""
    password_file: Optional[Path] = field(  # noqa: UP045 - as the reader wants it
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
    batch_size: int = field(default=2000, metadata={"check": _check_positive})
    batch_age_s: float = field(default=0.1, metadata={"check": _check_positive})
    prefetch: int = field(default=6000, metadata={"check": _check_positive})
    buffer_bytes: int = field(default=16 * 1024 * 1024, metadata={"check": _check_positive})
    """Of message bodies that wait here; then the brokers wait."""
    metrics_port: int = field(default=0, metadata={"check": _check_port})
    """On the loopback alone; 0 for none. Instance N has the port N higher."""

    def who(self, instance: int | None) -> str:
        """What tells this process from others on the machine; no name has an @."""
        name = self.name or f"spool-{sha256(','.join(self.brokers).encode()).hexdigest()[:12]}"
        return name if instance is None else f"{name}@{instance}"

    max_message_bytes: int = field(
        default=_DEFAULT.max_message_bytes, metadata={"check": _check_positive}
    )
    max_records: int = field(default=_DEFAULT.max_records, metadata={"check": _check_positive})
    max_age_days: int = field(default=_DEFAULT.past.days, metadata={"check": _check_days})
    max_future_s: int = field(
        default=int(_DEFAULT.future.total_seconds()), metadata={"check": _check_future}
    )

    def parsed_brokers(self) -> list[Broker]:
        return [parse_broker(url) for url in self.brokers]

    def network_subscriptions(self) -> list[SubscriptionConfig]:
        return [each for each in self.subscription if each.spool is None]

    def stamp_of(self, spool: Broker) -> Stamp:
        """What elements of a spool are if they do not say it."""
        return next((each.stamp for each in self.subscription if each.spool == spool), Stamp())

    def limits(self) -> Limits:
        return Limits(
            past=timedelta(days=self.max_age_days),
            future=timedelta(seconds=self.max_future_s),
            max_message_bytes=self.max_message_bytes,
            max_records=self.max_records,
        )


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


def load_limits(args: argparse.Namespace) -> Limits:
    """The limits alone, for who loads without brokers: a replay.

    Raises:
        ConfigError: one of them is no good, or the file is not.
    """
    given = _some(args, LIMITS)
    return ConsumerConfig(brokers=(), **given).limits()


def load_who(args: argparse.Namespace) -> str:
    """Which process is meant, for who only asks how it does and may not read its secrets.

    Raises:
        ConfigError: name or brokers are no good, or the file is not.
    """
    return ConsumerConfig(**_some(args, {"name", "brokers"})).who(args.instance)


def _some(args: argparse.Namespace, names: Collection[str]) -> dict[str, Any]:
    """The values of these keys that are given; what is wrong with others does not matter."""
    found = examine(
        ConsumerConfig,
        SECTION,
        flags={},
        path=args.config,
        environ=os.environ,
        parse_toml=tomllib.loads,
    )
    if found.bad & set(names):
        raise ConfigError(found.problems)
    return {name: value for name, value in found.values.items() if name in names}


def state_directory() -> Path:
    """Where the consumer remembers what it locked."""
    return state_dir(os.environ)


def notify_address() -> str | None:
    """Where systemd wants to be told how we do; None where it does not."""
    return os.environ.get("NOTIFY_SOCKET")


def state_places() -> list[Path]:
    """Where a daemon may keep its state: that of this user, or that of the service."""
    return [state_directory(), SERVICE_DIRECTORY]


def editor_command() -> list[str]:
    """What a person edits with, `$VISUAL` before `$EDITOR`; empty where neither is set."""
    return shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")


def _contradictions(config: ConsumerConfig, instance: int | None) -> Iterator[str]:
    """What is wrong between keys that are right by themselves."""
    where = f"[{SECTION}]"
    brokers = config.parsed_brokers()
    destinations = [str(each.spool or each.destination) for each in config.subscription]
    if any(broker.kind != SPOOL for broker in brokers):
        if not config.name:
            yield f"{where} name is missing: network brokers know a durable subscription by it"
        if not config.network_subscriptions():
            yield f"{where} has no [[consumer.subscription]]: nothing to ask a network broker for"
    for destination in sorted({each for each in destinations if destinations.count(each) > 1}):
        yield f"{where} subscription: {destination} is there twice"
    for each in config.network_subscriptions() if instance is not None else ():
        if not each.shared:
            words = f"{where} subscription {each.destination}: --instance wants shared = true"
            yield f"{words}: a second process would take its messages twice, or not at all"
    for spool in [each.spool for each in config.subscription if each.spool]:
        if spool not in brokers:
            yield f"{where} subscription: {spool} is none of the brokers"
