"""The tables `[[consumer.broker]]`: the settings of single brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sam_pipeline.schema.net.broker_url import STOMP, Broker, parse_broker
from sam_pipeline.schema.net.proxy import problem_of_proxy
from sam_pipeline.schema.settings.key import (
    certificate_key,
    config_key,
    expected,
    path_key,
    private_key,
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


def _check_url(url: str) -> str | None:
    try:
        broker = parse_broker(url)
    except ValueError as error:
        return str(error)
    return None if broker.kind == STOMP else "expected stomp://HOST or stomp+ssl://HOST"


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


@dataclass(frozen=True)
class BrokerConfig:
    """A broker that is read or, if it is in `to`, sent to.

    If it has credentials of its own, none of the section are used there.
    """

    url: str = config_key(
        "the URL of a broker, which may also be in `brokers`; it is read, unless it is in `to`",
        _check_url,
    )
    user: str = config_key("the login, unless the URL has one", default="")
    password_file: Path | None = secret_key("the first line is the password; mode 0600")
    certificate_file: Path | None = certificate_key("the client certificate")
    key_file: Path | None = private_key()
    ca_file: Path | None = path_key("its certificate authorities, instead of those of the section")
    crl_file: Path | None = path_key("their revocation lists, instead of those of the section")
    vhost: str = config_key(
        "the virtual host, on RabbitMQ", expected("the name of a virtual host", bool), "/"
    )
    proxy: str | None = config_key(
        'the HTTP proxy to this broker, or "none", instead of that of the section',
        problem_of_proxy,
        None,
    )
    proxy_password_file: Path | None = secret_key("its password: the first line, mode 0600")
    headers: dict[str, str] = config_key(
        'further headers of each SUBSCRIBE, such as `{ x-queue-type = "quorum" }`',
        lambda headers: "\n".join(_problems_of_headers(headers)) or None,
        default_factory=dict,
    )
    destinations: tuple[str, ...] | None = config_key(
        "those of the subscriptions that are read here; by default all, and none with `[]`",
        default=None,
    )

    @property
    def broker(self) -> Broker:
        return parse_broker(self.url)

    @property
    def has_credentials(self) -> bool:
        """Whether none of the credentials of the section are used at this broker."""
        ours = (self.user, self.password_file, self.certificate_file, self.key_file)
        return any(ours) or self.broker.user is not None

    def is_for(self, broker: Broker) -> bool:
        """Whether it describes this broker."""
        return str(self.broker) == str(broker)
