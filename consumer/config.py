"""The section `[consumer]` of sam.toml; only this module of the consumer reads the environment."""

from __future__ import annotations

import argparse
import os
import shlex
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import MISSING, dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

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
"""The service's $STATE_DIRECTORY, which the accounts that ask for its status do not have."""
PASSWORD = "SAM_CONSUMER_PASSWORD"
PASSWORD_CREDENTIAL = "sam-consumer-password"

MOST_DAYS = 36_525
"""A hundred years: older than any grid."""
MOST_FUTURE_S = 31_622_400
"""A year: results of a clock that is further ahead are worthless."""
MIB = 1024 * 1024
LIMITS = frozenset({"max_message_bytes", "max_records", "max_age_days", "max_future_s"})
_DEFAULT = Limits()


def _check_brokers(urls: tuple[str, ...]) -> str | None:
    if not urls:
        return "names no broker"
    problems = [_check_url(url) for url in urls]
    if len(set(urls)) < len(urls):
        problems.append("names one broker twice")
    return "; ".join(filter(None, problems)) or None


def _check_url(url: str) -> str | None:
    try:
        broker = parse_broker(url)
    except ValueError as error:
        return str(error)
    return None if broker.kind in (STOMP, SPOOL) else f"{broker}: no source for {broker.scheme}://"


def _check_name(name: str) -> str | None:
    plain = name.replace("-", "").replace("_", "").replace(".", "")
    return None if plain.isascii() and plain.isalnum() else "expected letters, digits and -_. only"


def _check_destination(destination: str) -> str | None:
    if destination.startswith("/"):
        return None
    if not destination.startswith(f"{SPOOL}://"):
        return f"expected /topic/…, /queue/… or the URL of a spool, not {destination}"
    return _check_url(destination)


def _check_format(name: str) -> str | None:
    return None if name in FORMATS else f"expected one of {', '.join(FORMATS)}, not {name!r}"


def _check_positive(number: float) -> str | None:
    return None if number > 0 else "expected more than 0"


def _within(lowest: int, highest: int, what: str) -> Callable[[int], str | None]:
    problem = f"expected {lowest} to {highest} {what}"
    return lambda number: None if lowest <= number <= highest else problem


def _key(what: str, check: Any = None, default: Any = MISSING, **options: Any) -> Any:
    """A key of the file; `what` is what the documentation says of it."""
    name = {"key": options.pop("key")} if "key" in options else {}
    return field(default=default, metadata={"what": what, "check": check, **name}, **options)


@dataclass(frozen=True)
class SubscriptionConfig:
    """A destination of the network brokers, or one of the spools: what its messages are.

    Class, format and renames are for messages whose headers do not say them.
    """

    destination: str = _key(
        "`/topic/…` or `/queue/…` on every network broker, or the URL of one of the spools",
        _check_destination,
    )
    message_class: str = _key("of messages without one", default="", key="class")
    shared: bool = _key("several processes of one name share its messages", default=False)
    format: str = _key("or `nstream`, for foreign writers", _check_format, "wlcg")
    rename: dict[str, str] = _key(
        '`{ theirs = "ours" }`: names of keys',
        lambda rename: "\n".join(rename_problems(rename.items())) or None,
        default_factory=dict,
    )

    @property
    def spool(self) -> Broker | None:
        """The spool it is about; None for a destination of the network brokers."""
        return None if self.destination.startswith("/") else parse_broker(self.destination)

    @property
    def stamp(self) -> Stamp:
        return make_stamp(self.message_class, self.format, self.rename)


@dataclass(frozen=True)
class ConsumerConfig:
    """`name` is the client-id and names the durable subscriptions: it must be unique and stable."""

    brokers: tuple[str, ...] = _key(
        "URLs: `stomp://HOST:61613`, `stomp+ssl://HOST:61614`, `spool:///DIRECTORY`", _check_brokers
    )
    name: str = _key(
        "letters, digits and `-_.`; required unless all brokers are spools", _check_name, ""
    )
    subscription: tuple[SubscriptionConfig, ...] = ()
    user: str = _key("the login for brokers whose URL has none (`stomp://USER@HOST`)", default="")
    password_file: Path | None = _key(
        "its first line is the password; mode 0600", problem_of_secret, None
    )
    ca_file: Path | None = _key(
        "certificate authorities for `stomp+ssl://` instead of the system's",
        lambda path: None if path.exists() else f"{path}: no such file or directory",
        None,
    )
    certificate_file: Path | None = _key(
        "our certificate, for brokers that ask for one", problem_of_certificate, None
    )
    key_file: Path | None = _key(
        "its key, mode 0600; may be in `certificate_file`", problem_of_secret, None
    )
    heart_beat_s: float = _key(
        "a broker is lost after 2.5 times as long without a sign of life", _check_positive, 10.0
    )
    batch_size: int = _key("most messages in one transaction", _check_positive, 2000)
    batch_age_s: float = _key(
        "how long a batch waits for more messages, and at most 0.1 s for the next one",
        _check_positive,
        0.1,
    )
    prefetch: int = _key(
        "unacknowledged messages that a broker may send for one subscription", _check_positive, 6000
    )
    buffer_bytes: int = _key(
        "message bodies in memory; when they are more, the brokers wait", _check_positive, 16 * MIB
    )
    max_message_bytes: int = _key(
        "a larger message is the dead letter *too-large*",
        _check_positive,
        _DEFAULT.max_message_bytes,
    )
    max_records: int = _key(
        "a message with more is the dead letter *too-many-records*",
        _check_positive,
        _DEFAULT.max_records,
    )
    max_age_days: int = _key(
        "an older metric result is the dead letter *too-old*",
        _within(1, MOST_DAYS, "days"),
        _DEFAULT.past.days,
    )
    max_future_s: int = _key(
        "a metric result further ahead is the dead letter *in-the-future*",
        _within(1, MOST_FUTURE_S, "s"),
        int(_DEFAULT.future.total_seconds()),
    )
    metrics_port: int = _key(
        "for Prometheus, on the loopback only; 0: none; instance N has the port N higher",
        lambda port: None if 0 <= port <= 65535 else "expected a port, or 0 for none",
        0,
    )

    def who(self, instance: int | None) -> str:
        """The name of this process, unique on the machine; no consumer's name has an @."""
        name = self.name or f"spool-{sha256(','.join(self.brokers).encode()).hexdigest()[:12]}"
        return name if instance is None else f"{name}@{instance}"

    def parsed_brokers(self) -> list[Broker]:
        return [parse_broker(url) for url in self.brokers]

    def spools(self) -> dict[str, Path]:
        """The directories of those brokers that are spools, by URL."""
        brokers = self.parsed_brokers()
        return {str(broker): Path(broker.path) for broker in brokers if broker.kind == SPOOL}

    def network_subscriptions(self) -> list[SubscriptionConfig]:
        return [one for one in self.subscription if one.spool is None]

    def stamp_of(self, spool: Broker) -> Stamp:
        """What elements of a spool are if they do not say it."""
        return next((one.stamp for one in self.subscription if one.spool == spool), Stamp())

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
    config = load(ConsumerConfig, SECTION, args.config, os.environ)
    brokers = config.parsed_brokers()
    problems = []
    if any(broker.kind != SPOOL for broker in brokers):
        if not config.name:
            problems.append("name is missing: network brokers know a durable subscription by it")
        if not config.network_subscriptions():
            problems.append("has no [[consumer.subscription]]: nothing to ask a network broker for")
    destinations = Counter(str(part.spool or part.destination) for part in config.subscription)
    for destination in sorted(name for name, count in destinations.items() if count > 1):
        problems.append(f"subscription: {destination} is there twice")
    for subscription in config.subscription:
        destination, spool = subscription.destination, subscription.spool
        if instance is not None and not spool and not subscription.shared:
            needed = "--instance needs shared = true: a second process would take its messages"
            problems.append(f"subscription {destination}: {needed} twice, or none")
        if spool and spool not in brokers:
            problems.append(f"subscription: {spool} is not one of the brokers")
    if problems:
        raise ConfigError([f"[{SECTION}] {problem}" for problem in problems])
    return config


def password(config: ConsumerConfig) -> str | None:
    """Read at each connect.

    Raises:
        ConfigError: its file can't be used now.
    """
    return find_secret(config.password_file, PASSWORD, PASSWORD_CREDENTIAL, os.environ)


def load_limits(args: argparse.Namespace) -> Limits:
    """The limits alone: a replay loads without brokers.

    Raises:
        ConfigError: one of them is bad, or the file is.
    """
    return ConsumerConfig(brokers=(), **_some(args, LIMITS)).limits()


def load_who(args: argparse.Namespace) -> str:
    """The name of the process alone: accounts that ask for its status may not read its secrets.

    Raises:
        ConfigError: name or brokers are bad, or the file is.
    """
    return ConsumerConfig(**_some(args, {"name", "brokers"})).who(args.instance)


def _some(args: argparse.Namespace, names: Collection[str]) -> dict[str, Any]:
    """The values of these keys, as far as they are set; problems of other keys do not matter."""
    findings = examine(ConsumerConfig, SECTION, args.config, os.environ)
    if findings.bad & set(names):
        raise ConfigError(findings.problems)
    return {name: value for name, value in findings.values.items() if name in names}


def state_directory() -> Path:
    """Where the consumer keeps its state file, locks and claims."""
    return state_dir(os.environ)


def state_places() -> list[Path]:
    """Where a daemon may keep its state: the directory of this user, or of the service."""
    return [state_directory(), SERVICE_DIRECTORY]


def notify_address() -> str | None:
    """systemd's socket for notifications; None without systemd."""
    return os.environ.get("NOTIFY_SOCKET")


def editor_command() -> list[str]:
    """`$VISUAL`, or `$EDITOR`; empty where neither is set."""
    return shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
