"""The tables `[[consumer.broker]]`: the settings of single brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sam_pipeline.schema.net.broker_url import STOMP, parse_broker
from sam_pipeline.schema.settings.broker import TableKeys
from sam_pipeline.schema.settings.key import config_key, joined

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


class BrokerConfig(TableKeys):
    """A table `[[consumer.broker]]`: a broker that is read or, if it is in `to`, sent to."""

    url: str = config_key(
        "the URL of a broker, which may also be in `brokers`; it is read, unless it is in `to`",
        _check_url,
    )
    headers: dict[str, str] = config_key(
        'further headers of each SUBSCRIBE, such as `{ x-queue-type = "quorum" }`',
        joined(_problems_of_headers),
        {},
    )
    destinations: tuple[str, ...] | None = config_key(
        "those of the subscriptions that are read here; by default all, and none with `[]`",
        default=None,
    )
