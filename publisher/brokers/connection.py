"""The connection to a broker: direct or through a proxy, in plain text or under TLS."""

from __future__ import annotations

from sam_pipeline.publisher.brokers.address import BrokerAddress
from sam_pipeline.publisher.errors import BrokerUnavailable
from sam_pipeline.publisher.settings.config import PublisherConfig
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.channel import Channel, connect, error_text
from sam_pipeline.schema.net.deadline import Deadline


def open_channel(address: BrokerAddress, config: PublisherConfig, deadline: Deadline) -> Channel:
    """A connection to the broker: direct or through the proxy, with TLS where its URL says so.

    A proxy forwards plain-HTTP requests (`Channel.forwarded`); all else goes through CONNECT.

    Raises:
        BrokerUnavailable: the reason contains no secret.
    """
    broker = address.broker
    proxy = config.proxy_for(broker)
    try:
        if proxy is None:
            channel = connect(address.ip or broker.host, broker.port, deadline)
        else:
            from sam_pipeline.schema.net.tunnel import open_tunnel

            channel = open_tunnel(proxy, broker, deadline)
        if broker.tls:
            from sam_pipeline.schema.net.tls import secure  # `import ssl` is slow

            channel = secure(channel, broker, config.tls_files(broker))
    except (OSError, ConfigError) as error:
        raise BrokerUnavailable(address, error_text(error)) from error
    return channel
