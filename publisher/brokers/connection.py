"""The connection to a broker: direct or through a proxy, in plain text or under TLS."""

from __future__ import annotations

from typing import Callable, TypeVar

from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker import Target
from sam_pipeline.schema.net.channel import Channel, error_text, open_connection
from sam_pipeline.schema.net.deadline import Deadline

T = TypeVar("T")


def open_channel(target: Target, deadline: Deadline) -> Channel:
    """A connection to the broker: direct or through the proxy, with TLS where its URL says so.

    A proxy forwards plain-HTTP requests (`Channel.forwarded`); all else goes through CONNECT.

    Raises:
        BrokerUnavailable: the reason contains no secret.
    """
    broker = target.broker
    proxy = usable(target, target.find_proxy)
    try:
        address = (target.ip or broker.host, broker.port)
        channel = open_connection(broker, address, proxy, deadline)
        if broker.tls:
            from sam_pipeline.schema.net.tls import secure  # 17 ms, with `ssl`

            channel = secure(channel, broker, target.tls_files)
    except (OSError, ConfigError) as error:
        raise BrokerUnavailable(target, error_text(error)) from error
    return channel


def usable(target: Target, read: Callable[[], T]) -> T:
    """What `read` returns: a login, a token or the proxy.

    Raises:
        BrokerUnavailable: it can't be used now.
    """
    try:
        return read()
    except ConfigError as error:
        raise BrokerUnavailable(target, str(error)) from error
