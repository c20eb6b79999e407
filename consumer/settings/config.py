"""The configuration of the consumer: the section `[consumer]` of sam.toml, and its environment.

A command loads it once and hands it down; only commands also read the environment.
"""

from __future__ import annotations

import argparse
import os
import pwd
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from sam_pipeline.consumer.settings.tables import (
    BrokerConfig,
    DoorConfig,
    SilenceConfig,
    SubscriptionConfig,
    problem_of_source,
    url_of,
)
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.identity import BROKER, broker_identity
from sam_pipeline.schema.messages.foreign import Stamp
from sam_pipeline.schema.messages.message import default_destination
from sam_pipeline.schema.net.broker import (
    LISTEN,
    SPOOL,
    STOMP,
    Broker,
    Target,
    TlsFiles,
    is_loopback,
    named_brokers,
    parse_broker,
)
from sam_pipeline.schema.program.wording import did_you_mean_or_list
from sam_pipeline.schema.records.classes import BUILT_IN
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.schema.settings.broker import SectionKeys, target_of
from sam_pipeline.schema.settings.files import state_dir
from sam_pipeline.schema.settings.key import (
    POSITIVE,
    certificate_key,
    config_key,
    duration_key,
    expected,
    lines,
    path_key,
    secret_key,
    suggestion,
)
from sam_pipeline.schema.settings.section import Findings, examine

SERVICE_DIRECTORY = Path("/var/lib/sam")
"""$STATE_DIRECTORY of the service, which accounts that ask for its status do not have."""

DAY_S = 86_400
HUNDRED_YEARS = "36525d"
"""Older than any grid."""
MAX_PORT = 65535
MIB = 1024 * 1024
_DEFAULT = Limits()
BUILT_IN_SUBSCRIPTIONS = [
    SubscriptionConfig(destination=default_destination(one.name), message_class=one.name)
    for one in BUILT_IN.values()
]


problem_of_target = url_of(STOMP, SPOOL, expected="stomp://HOST, stomp+ssl://HOST or spool:///PATH")


def _check_brokers(urls: tuple[str, ...]) -> str | None:
    if not urls:
        return "the list of brokers is empty"
    return lines(map(problem_of_source, urls)) or _twice(urls)


def _check_targets(urls: tuple[str, ...]) -> str | None:
    problem = lines(map(problem_of_target, urls)) or _twice(urls)
    if not problem and len(urls) > 1 and any(parse_broker(url).kind == SPOOL for url in urls):
        return "expected one spool, or any number of stomp:// and stomp+ssl:// brokers"
    return problem


def _twice(urls: tuple[str, ...]) -> str | None:
    return lines(f"{url} appears twice" for url in _repeated(map(parse_broker, urls)))


def _repeated(names: Iterable[object]) -> list[str]:
    return [name for name, count in Counter(map(str, names)).items() if count > 1]


def _check_accounts(accounts: tuple[str, ...]) -> str | None:
    return lines(
        f"{account!r}: no such account"
        for account in accounts
        if not account.startswith(f"{BROKER}:") and _number_of(account) is None
    )


def _number_of(account: str) -> int | None:
    """The number of an account, which may be given itself; None if it does not exist."""
    if account.isascii() and account.isdigit():
        return int(account)
    try:
        return pwd.getpwnam(account).pw_uid
    except KeyError:
        return None


def _metrics_address(text: str) -> Broker | None:
    """The server of `HOST:PORT` or `[IPv6]:PORT`."""
    try:
        address = parse_broker(f"{LISTEN}+http://{text}")
    except ValueError:
        return None
    return address if address.netloc == text else None


class ConsumerConfig(SectionKeys):
    """`name` is the client-id and names the durable subscriptions: it must be unique and stable."""

    SECTION = "consumer"
    SECRETS = ("password", "proxy_password")

    broker_urls: tuple[str, ...] = config_key(
        "the sources: brokers `stomp://HOST:61613` and `stomp+ssl://HOST:61614`, besides those of"
        " the tables; spools `spool:///DIRECTORY`; HTTP doors `listen+https://ADDRESS:8443`",
        _check_brokers,
        (),
        key="brokers",
    )
    name: str = config_key(
        "letters, digits and `-_.`; required to read from `stomp://` and `stomp+ssl://`",
        expected(
            "letters, digits and -_. only",
            lambda name: name.isascii() and name.translate(dict.fromkeys(b"-_.")).isalnum(),
        ),
        "",
    )
    relay_to: tuple[str, ...] = config_key(
        "makes a relay, which moves messages on instead of loading them: brokers, each message to"
        " the first one that confirms it, or one directory queue",
        _check_targets,
        (),
    )
    subscription: tuple[SubscriptionConfig, ...] = config_key("", default=())
    door: DoorConfig = config_key("", default=DoorConfig())
    broker: tuple[BrokerConfig, ...] = config_key("", default=())
    silence: tuple[SilenceConfig, ...] = config_key("", default=())
    heart_beat_s: float = duration_key(
        "heart_beat",
        "the interval of heart-beats; a connection is lost after 2.5 silent intervals",
        10.0,
    )
    batch_size: int = config_key(
        "the maximum number of messages in one batch; at most half of `prefetch`", POSITIVE, 2000
    )
    prefetch: int | None = config_key(
        "the maximum number of unacknowledged messages per subscription; by default 2000 on"
        " ActiveMQ, 6000 on other brokers",
        POSITIVE,
        None,
    )
    buffer_bytes: int = config_key(
        "the limit on messages that wait in memory; beyond it the brokers wait", POSITIVE, 16 * MIB
    )
    max_message_bytes: int = config_key(
        "a larger message becomes the dead letter *too-large*, with its first 64 KiB",
        POSITIVE,
        _DEFAULT.max_message_bytes,
    )
    max_records: int = config_key(
        "a message with more records becomes the dead letter *too-many-records*",
        POSITIVE,
        _DEFAULT.max_records,
    )
    dead_letters_per_hour: int = config_key(
        "the limit on dead letters of one sender; beyond it they are only counted, in a *flood*",
        POSITIVE,
        1000,
    )
    dead_letter_bytes_per_hour: int = config_key(
        "the limit on the size of their bodies and headers, likewise", POSITIVE, 20_000_000
    )
    max_age_days: float = duration_key(
        "max_age",
        "an older metric result becomes the dead letter *too-old*",
        35.0,
        "1d",
        HUNDRED_YEARS,
        DAY_S,
    )
    max_future_s: float = duration_key(
        "max_future",
        "a metric result further in the future becomes the dead letter *in-the-future*",
        _DEFAULT.future.total_seconds(),
        "1s",
        "366d",
    )
    metrics_listen: str = config_key(
        "where the daemon serves metrics, such as `127.0.0.1:9464`; instance N has the port N"
        " higher",
        expected("ADDRESS:PORT, such as 127.0.0.1:9464", _metrics_address),
        "",
    )
    metrics_certificate_file: Path | None = certificate_key(
        "certificate and chain of the metrics server, which then uses HTTPS"
    )
    metrics_key_file: Path | None = secret_key(
        "its private key, mode 0600; may be part of `metrics_certificate_file`"
    )
    metrics_token_file: Path | None = secret_key(
        "bearer token that readers of metrics need, the first line of the file; mode 0600"
    )
    metrics_insecure: bool = config_key(
        "permit metrics without TLS or without a token beyond this machine", default=False
    )
    policy_file: Path | None = path_key(
        "the policy: which publisher may send which records; by default, all are accepted"
    )
    signature_age_days: float = duration_key(
        "signature_age",
        "a message that was signed longer ago becomes the dead letter *signature-expired*",
        30.0,
        "1d",
        HUNDRED_YEARS,
        DAY_S,
    )
    trusted_brokers: tuple[str, ...] = config_key(
        "brokers that are trusted to name the user who sent a message", default=()
    )
    trusted_relays: tuple[str, ...] = config_key(
        "relays that are trusted to name the identity of a message: accounts that fill spools, by"
        " name or number, and users for whom a broker vouches, `broker:URL/USER`",
        _check_accounts,
        (),
    )
    instance: int | None = None
    """The number of this process, if several share the name."""
    state_directory: Path = Path()
    """Where the consumer stores its state file, locks and claims."""
    notify_socket: str | None = None
    """The address for notifications to systemd."""
    inherited_sockets: int = 0
    """How many listening sockets systemd has passed to this process (sd_listen_fds(3))."""

    @cached_property
    def brokers(self) -> tuple[Broker, ...]:
        """The brokers of the key `brokers`, then those of the tables that are read."""
        listed = tuple(map(parse_broker, self.broker_urls))
        known = {*map(str, listed), *map(str, self.targets)}
        more = [table.broker for table in self.broker if table.destinations != ()]
        return (*listed, *(broker for broker in more if str(broker) not in known))

    @cached_property
    def targets(self) -> tuple[Broker, ...]:
        """Where a relay sends; empty unless this consumer is one."""
        return tuple(map(parse_broker, self.relay_to))

    @property
    def process_name(self) -> str:
        """The name of this process, unique on the host; no consumer name contains an @."""
        digest = sha256(",".join(self.broker_urls).encode()).hexdigest()
        name = self.name or f"spool-{digest[:12]}"
        return name if self.instance is None else f"{name}@{self.instance}"

    @property
    def metrics_address(self) -> Broker | None:
        """Where this process serves metrics, if it does."""
        address = _metrics_address(self.metrics_listen) if self.metrics_listen else None
        return address and address._replace(port=address.port + (self.instance or 0))

    @property
    def metrics_tls_files(self) -> TlsFiles:
        """The files for serving metrics over TLS."""
        return TlsFiles(None, self.metrics_certificate_file, self.metrics_key_file)

    @property
    def rejected_directory(self) -> Path:
        """Where a relay keeps the messages that no broker takes."""
        return self.state_directory / f"consume-{self.process_name}.rejected"

    @property
    def state_directories(self) -> tuple[Path, Path]:
        """Where a daemon may store its state: the directory of this user, and of the service."""
        return self.state_directory, SERVICE_DIRECTORY

    @cached_property
    def network_brokers(self) -> list[Broker]:
        """The brokers that have subscriptions."""
        return [broker for broker in self.brokers if broker.kind == STOMP]

    @cached_property
    def doors(self) -> list[Broker]:
        """The addresses where senders reach us over HTTP."""
        return [broker for broker in self.brokers if broker.kind == LISTEN]

    @property
    def spools(self) -> dict[str, Path]:
        """The directories of the spools by broker URL."""
        return {str(broker): Path(broker.path) for broker in self.brokers if broker.kind == SPOOL}

    @property
    def vouching_brokers(self) -> frozenset[str]:
        """The brokers that are trusted to name the user who sent a message."""
        return frozenset(named_brokers(self.trusted_brokers))

    @property
    def relay_accounts(self) -> frozenset[int]:
        """The numbers of the accounts of relays."""
        numbers = (_number_of(account) for account in self.trusted_relays)
        return frozenset(number for number in numbers if number is not None)

    @property
    def relay_users(self) -> frozenset[str]:
        """The identities of relays for whom a broker vouches."""
        return frozenset(relay for relay in self.trusted_relays if relay.startswith(f"{BROKER}:"))

    @cached_property
    def network_subscriptions(self) -> list[SubscriptionConfig]:
        """The subscriptions of the network brokers; by default those of the built-in classes."""
        return [item for item in self.subscription if item.spool is None] or BUILT_IN_SUBSCRIPTIONS

    @property
    def stamps(self) -> dict[str, Stamp]:
        """By destination, the headers for messages sent there through a door that lack them."""
        return {item.destination: item.stamp for item in self.network_subscriptions}

    def stamp_of(self, spool: Broker) -> Stamp:
        """The headers for elements of a spool that lack them."""
        stamps = (item.stamp for item in self.subscription if str(item.spool) == str(spool))
        return next(stamps, Stamp())

    def limits(self) -> Limits:
        """The limits on messages and records."""
        return Limits(
            past=timedelta(days=self.max_age_days),
            future=timedelta(seconds=self.max_future_s),
            max_message_bytes=self.max_message_bytes,
            max_records=self.max_records,
        )

    def table_of(self, broker: Broker) -> BrokerConfig | None:
        """The table of this broker, if it has one."""
        tables = (table for table in self.broker if str(table.broker) == str(broker))
        return next(tables, None)

    def subscriptions_at(self, broker: Broker) -> list[SubscriptionConfig]:
        """The subscriptions that are read at this network broker."""
        table = self.table_of(broker)
        wanted = table.destinations if table else None
        return [
            subscription
            for subscription in self.network_subscriptions
            if wanted is None or subscription.destination in wanted
        ]

    def target_of(self, broker: Broker) -> Target:
        """A network broker with what applies there."""
        return target_of(broker, self, self.table_of(broker))

    def problems(self) -> Iterator[str]:
        yield from self.connection_problems()
        circular = {*map(str, self.brokers)} & {*map(str, self.targets)}
        for url in sorted(circular):
            yield f"relay_to {url}: this is one of the brokers to read from"
        if self.network_brokers and not self.name:
            yield "name is missing: durable subscriptions of network brokers need it"
        for door in self.doors:
            yield from self.door.problems_of(door)
        for number, rule in enumerate(self.silence, 1):
            if bool(rule.message_class) == bool(rule.site):
                yield f"silence: table {number} needs either class or site"
        if self.metrics_address:
            yield from self._problems_of_metrics(self.metrics_address)
        yield from self._problems_of_identities()
        yield from self._problems_of_tables()

    def connection_problems(self) -> Iterator[str]:
        """Why brokers can't be connected to as configured."""
        for broker in (*self.brokers, *self.targets):
            target = self.target_of(broker)
            if target.user and (problem := target.problem_of_login()):
                yield f"{broker}: {problem}"
            try:
                target.has_proxy()
            except ConfigError as error:
                yield f"broker {broker}: {error}"

    def _problems_of_metrics(self, address: Broker) -> Iterator[str]:
        """Why metrics could be read by others, unless that is permitted; and a bad port."""
        if address.port > MAX_PORT:
            yield f"metrics_listen: port {address.port} of instance {self.instance} is too high"
        needed = {
            "metrics_certificate_file (TLS)": self.metrics_certificate_file,
            "metrics_token_file": self.metrics_token_file,
        }
        missing = [name for name, file in needed.items() if file is None]
        if missing and not (self.metrics_insecure or is_loopback(address.host)):
            yield (
                f"metrics_listen: anybody who reaches {address.netloc} could read the metrics: set"
                f" {' and '.join(missing)}, or metrics_insecure = true"
            )

    def _problems_of_identities(self) -> Iterator[str]:
        network = [str(broker) for broker in self.network_brokers]
        trusted: tuple[str, ...] = ()
        for url in self.trusted_brokers:
            try:
                name = str(parse_broker(url))
            except ValueError:
                name = url
            if name in network:
                trusted = (*trusted, broker_identity(name, ""))
            else:
                advice = suggestion(url, network)
                yield f"trusted_brokers: {url} is not one of the network brokers{advice}"
        for relay in sorted(self.relay_users):
            if not relay.startswith(trusted):
                yield f"trusted_relays: {relay}: no broker in trusted_brokers can name that user"

    def _problems_of_tables(self) -> Iterator[str]:
        for url in _repeated(table.broker for table in self.broker):
            yield f"broker: {url} appears twice"
        destinations = [item.destination for item in self.network_subscriptions]
        listed = named_brokers(self.broker_urls)
        for table in self.broker:
            if str(table.broker) in listed and table.destinations == ():
                yield f"broker {table.broker}: is one of brokers, but its destinations are empty"
            for name in table.destinations or ():
                if name not in destinations:
                    hint = did_you_mean_or_list(name, destinations)
                    yield f"broker {table.broker}: destinations: no subscription of {name} ({hint})"
        for name in sorted(_repeated(item.spool or item.destination for item in self.subscription)):
            yield f"subscription: {name} appears twice"
        needed = "--instance needs shared = true, or each process would get all messages or none"
        for item in self.subscription:
            if item.spool and str(item.spool) not in self.spools:
                yield f"subscription: {item.spool} is not one of the brokers"
            if self.instance is not None and not item.spool and not item.shared:
                yield f"subscription {item.destination}: {needed}"


def load_consumer(args: argparse.Namespace, instance: int | None = None) -> ConsumerConfig:
    """The configuration from file, environment and command line; a ConfigError has all problems."""
    return examine_consumer(
        args, instance, relay_to=tuple(getattr(args, "to", ())) or None
    ).config()


def examine_consumer(
    args: argparse.Namespace, instance: int | None = None, **flags: Any
) -> Findings[ConsumerConfig]:
    """The values and problems of the section; `flags` override both file and environment."""
    is_for_us = os.environ.get("LISTEN_PID") == str(os.getpid())  # not for our parent
    count = os.environ.get("LISTEN_FDS", "") if is_for_us else ""
    surroundings = {
        "instance": instance,
        "state_directory": state_dir(os.environ),
        "notify_socket": os.environ.get("NOTIFY_SOCKET"),
        "inherited_sockets": int(count) if count.isascii() and count.isdigit() else 0,
    }
    findings = examine(ConsumerConfig, args.config, **surroundings, **flags)
    if not {"broker_urls", "broker"} & (findings.values.keys() | findings.bad):
        findings.add_missing("broker_urls")
    return findings
