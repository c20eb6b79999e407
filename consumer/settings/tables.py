"""The tables of the section `[consumer]`: subscriptions, brokers, the door, and silences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from sam_pipeline.schema.messages.destination import problem_of_destination
from sam_pipeline.schema.messages.foreign import FORMATS, Stamp, make_stamp, rename_problems
from sam_pipeline.schema.net.broker import (
    LISTEN,
    SPOOL,
    STOMP,
    Broker,
    TlsFiles,
    is_loopback,
    parse_broker,
)
from sam_pipeline.schema.settings.broker import TableKeys
from sam_pipeline.schema.settings.key import (
    NOT_NEGATIVE,
    POSITIVE,
    Settings,
    between,
    certificate_key,
    config_key,
    duration_key,
    joined,
    one_of,
    path_key,
    secret_key,
)

OURS = frozenset(
    {
        *("id", "destination", "ack", "receipt", "transaction", "client-id", "content-length"),
        *("activemq.subscriptionname", "durable-subscription-name", "durable-subscriber-name"),
        *("x-queue-name", "durable", "auto-delete", "persistent"),
    }
)
"""Headers of SUBSCRIBE that the consumer sets, in lower case."""
LIMITS = frozenset({"activemq.prefetchsize", "consumer-window-size", "prefetch-count"})
"""Headers of the key `prefetch`."""
LOSSY = frozenset({"browser", "exclusive"})
"""Headers of subscriptions that leave messages unacknowledged, or end with the connection."""
NUMBERS = frozenset(
    {
        *("x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-max-priority"),
        *("x-delivery-limit", "x-quorum-initial-group-size"),
    }
)
"""RabbitMQ answers another value with `Processing error`."""


def url_of(*kinds: str, expected: str) -> Callable[[str], str | None]:
    """A check of the URL of a broker: its kind."""

    def problem(url: str) -> str | None:
        try:
            broker = parse_broker(url)
        except ValueError as error:
            return str(error)
        return None if broker.kind in kinds else f"{broker}: expected {expected}"

    return problem


problem_of_source = url_of(
    STOMP, LISTEN, SPOOL, expected="stomp[+ssl]://HOST, listen+http[s]://ADDRESS or spool:///PATH"
)


def _check_destination(destination: str) -> str | None:
    if destination.startswith(f"{SPOOL}:"):
        return problem_of_source(destination)
    problem = problem_of_destination(destination, wildcards=True)
    if problem and not destination.startswith("/"):
        problem += f"; or the URL of a spool, {SPOOL}:///DIRECTORY"
    return problem


class SubscriptionConfig(Settings):
    """A table `[[consumer.subscription]]`: a destination of the network brokers, or a spool.

    Without any for the network brokers, the topics of the built-in classes are read. Class, format
    and renames apply to messages whose headers do not give them.
    """

    destination: str = config_key(
        "`/topic/…` or `/queue/…` on every network broker, and of messages through a door, or the"
        " URL of one of the spools",
        _check_destination,
    )
    message_class: str = config_key("the class of messages that name none", default="", key="class")
    shared: bool = config_key("several processes with one name share the messages", default=False)
    format: str = config_key(
        "the format of the messages; `nstream` for foreign writers",
        one_of(*FORMATS),
        "wlcg",
    )
    rename: dict[str, str] = config_key(
        '`{ theirs = "ours" }`: our names of foreign keys',
        joined(lambda rename: rename_problems(rename.items())),
        default={},
    )

    @cached_property
    def spool(self) -> Broker | None:
        """The spool to read; None for a destination of the network brokers."""
        return None if self.destination.startswith("/") else parse_broker(self.destination)

    @cached_property
    def stamp(self) -> Stamp:
        """The headers for messages that lack them."""
        return make_stamp(self.message_class, self.format, self.rename)


def _problems_of_headers(headers: Mapping[str, str]) -> Iterator[str]:
    for name, value in headers.items():
        known = name.lower()
        if not name or not value:
            yield f"{name or 'a header'}: expected a name and a value"
        elif known in OURS:
            yield f"{name}: the consumer sets this header"
        elif known in LIMITS:
            yield f"{name}: use the key prefetch of [consumer]"
        elif known in LOSSY:
            yield f"{name}: messages could be lost"
        elif known in NUMBERS and not (value.isascii() and value.isdigit()):
            yield f"{name}: expected a whole number, not {value!r}"


class BrokerConfig(TableKeys):
    """A table `[[consumer.broker]]`: a broker that is read or, if it is in `relay_to`, sent to."""

    url: str = config_key(
        "the URL of a broker, in `brokers` or not; it is read, unless it is in `relay_to`",
        url_of(STOMP, expected="stomp://HOST or stomp+ssl://HOST"),
    )
    headers: dict[str, str] = config_key(
        'further headers of each SUBSCRIBE, such as `{ x-queue-type = "quorum" }`',
        joined(_problems_of_headers),
        {},
    )
    destinations: tuple[str, ...] | None = config_key(
        "the destinations of subscriptions to read here (default: all); `[]` for none",
        default=None,
    )


class DoorConfig(Settings):
    """The table `[consumer.door]`: the sources `listen+https://` and `listen+http://`."""

    certificate_file: Path | None = certificate_key(
        "the certificate of the server, and its chain, for `listen+https://`"
    )
    key_file: Path | None = secret_key(
        "its private key, mode 0600; may be part of `certificate_file`"
    )
    client_ca_file: Path | None = path_key(
        "certificate authorities of clients, which are then asked for a certificate"
    )
    crl_file: Path | None = path_key(
        "their revocation lists: a PEM file, or a directory with `*.r0`"
    )
    proxy_depth: int = config_key(
        "how many X.509 proxies (RFC 3820) may follow the certificate of a user, who is then known"
        " by that certificate; 0 accepts none",
        between(0, 9),
        0,
    )
    tokens_file: Path | None = config_key(
        "the tokens of senders, mode 0600: `sam-consume token add NAME` adds one", default=None
    )
    require_identity: bool | None = config_key(
        "senders need a token or a certificate; by default unless the address is of this machine",
        default=None,
    )
    insecure: bool = config_key(
        "permit `listen+http://`, without TLS, beyond this machine", default=False
    )
    answer_timeout_s: float = duration_key(
        "answer_timeout",
        "how long a sender waits for its message to be stored; then it gets 504 and repeats it",
        30.0,
        "1s",
        "1h",
    )
    max_connections: int = config_key(
        "the maximum number of connections; further ones get 503", POSITIVE, 2500
    )
    requests_per_minute: int = config_key(
        "the maximum number of requests of one client, 0 for no limit; beyond it they get 429",
        NOT_NEGATIVE,
        0,
    )

    @property
    def tls_files(self) -> TlsFiles:
        """The files for connections over TLS."""
        return TlsFiles(self.client_ca_file, self.certificate_file, self.key_file, self.crl_file)

    def admits_anonymous(self, broker: Broker) -> bool:
        """Whether who sends to this door needs neither a token nor a certificate."""
        if self.require_identity is None:
            return is_loopback(broker.host)
        return not self.require_identity

    def problems_of(self, broker: Broker) -> Iterator[str]:
        """Why a door can't be opened with these settings."""
        if broker.tls and self.certificate_file is None:
            yield f"{broker}: certificate_file is missing in [consumer.door]"
        if not (broker.tls or self.insecure or is_loopback(broker.host)):
            advice = "use listen+https://, or set insecure = true in [consumer.door]"
            yield f"{broker}: messages would arrive in plain text: {advice}"
        by_certificate = broker.tls and self.client_ca_file
        if not (self.admits_anonymous(broker) or self.tokens_file or by_certificate):
            ways = "set tokens_file or client_ca_file" if broker.tls else "set tokens_file"
            advice = f"{ways} in [consumer.door], or require_identity = false"
            yield f"{broker}: nobody could send: {advice}"


class SilenceConfig(Settings):
    """A table `[[consumer.silence]]`: a limit for classes or for sites, by their names."""

    after_s: float = duration_key(
        "after",
        "how long nothing may arrive before that counts as silence; at most a week",
        low="0.6s",
        high="7d",
    )
    message_class: str = config_key(
        "the name of a class, or a pattern such as `*`", default="", key="class"
    )
    site: str = config_key(
        "the name of a site, or a pattern such as `CERN-*` for sites of the topology", default=""
    )

    def matches(self, name_of: str, name: str) -> bool:
        """Whether it is about this `class` or `site`; names of classes ignore case."""
        if name_of == "class":
            return fnmatchcase(name.lower(), self.message_class.lower())
        return fnmatchcase(name, self.site)

    def exact_name(self, name_of: str) -> str:
        """The `class` or `site`, if the rule is about a single one."""
        pattern = self.message_class if name_of == "class" else self.site
        return "" if {*pattern} & {*"*?["} else pattern
