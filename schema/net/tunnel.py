"""Connections through an HTTP proxy: plain HTTP is forwarded by it, the rest goes by CONNECT."""

from __future__ import annotations

from typing import Optional

from sam_pipeline.schema.net.broker_url import STOMP, Broker
from sam_pipeline.schema.net.channel import Channel, connect, error_text
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.proxy import Proxy
from sam_pipeline.schema.net.resolver import Resolver

MAX_ANSWER_BYTES = 65536
UNAVAILABLE = 500
"""From here on, the status of an answer may be another one the next time."""
END = b"\r\n\r\n"
LOGIN = b"proxy-authenticate"


class ProxyRefused(OSError):
    """The proxy requires a login, or does not permit the connection: someone must act."""


def open_connection(
    broker: Broker, address: tuple[str, int], proxy: Optional[Proxy], deadline: Deadline
) -> Channel:
    """A channel to one address of the broker, or through the proxy, which resolves its name.

    Raises:
        OSError: TimeoutError at the deadline, ProxyRefused; its message names the proxy.
    """
    if proxy is None:
        return connect(*address, deadline)
    return open_tunnel(proxy, broker, deadline)


def open_tunnel(proxy: Proxy, broker: Broker, deadline: Deadline) -> Channel:
    """A channel through the proxy to the broker, or for plain HTTP to the proxy (`forwarded`).

    The addresses of the proxy are tried in order, each in its share of the time.

    Raises:
        OSError: its message names the proxy.
    """
    try:
        ips = Resolver().ips_of(proxy.host, proxy.port, deadline)
        for position, ip in enumerate(ips, 1):
            try:
                channel = connect(ip, proxy.port, deadline.share(len(ips) - position + 1))
                break
            except OSError:
                if position == len(ips):
                    raise
    except OSError as error:
        raise OSError(f"{proxy}: {error_text(error)}") from error
    channel.deadline = deadline
    if broker.kind != STOMP and not broker.tls:
        channel.proxy = proxy
        return channel
    try:
        _ask_to_connect(channel, proxy, broker)
    except BaseException:
        channel.close()
        raise
    return channel


def _ask_to_connect(channel: Channel, proxy: Proxy, broker: Broker) -> None:
    """Send CONNECT and read the answer, after which the bytes are the broker's."""
    lines = [f"CONNECT {broker.netloc} HTTP/1.1", f"Host: {broker.netloc}"]
    lines += [f"{name}: {value}" for name, value in proxy.headers.items()]
    try:
        channel.send("\r\n".join([*lines, "", ""]).encode())
        answer = b""
        while END not in answer and len(answer) < MAX_ANSWER_BYTES:
            data = channel.receive()
            if not data:
                break
            answer += data
        head, end, rest = answer.partition(END)
    except OSError as error:
        raise OSError(f"{proxy}: {error_text(error)}") from error
    line, *fields = head.split(b"\r\n")
    version, _, rest_of_line = line.decode("latin-1").partition(" ")
    code, _, reason = rest_of_line.partition(" ")
    is_http = version.startswith("HTTP/1.") and len(code) == 3 and code.isdecimal()
    status = int(code) if is_http else 0
    if not end or not status:
        raise OSError(f"{proxy}: its answer to CONNECT is not HTTP")
    if not 200 <= status < 300:
        pairs = (field.partition(b":") for field in fields)
        schemes = [v.strip().decode("latin-1") for k, _, v in pairs if k.strip().lower() == LOGIN]
        text = proxy.refusal(status, reason, ", ".join(schemes))
        raise OSError(text) if status >= UNAVAILABLE else ProxyRefused(text)
    if rest:  # a broker never speaks first
        raise OSError(f"{proxy}: it sent more than its answer to CONNECT")
