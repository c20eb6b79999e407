"""The way through a proxy: to it alone for plain HTTP, else by CONNECT to the broker."""

from __future__ import annotations

from sam_pipeline.publisher.settings.proxy import Proxy
from sam_pipeline.schema.net.broker_url import STOMP, Broker
from sam_pipeline.schema.net.channel import Channel, connect, words_of
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.resolver import Resolver

MAX_ANSWER_BYTES = 65536
END = b"\r\n\r\n"
LOGIN = b"proxy-authenticate"


def open_tunnel(proxy: Proxy, broker: Broker, deadline: Deadline) -> Channel:
    """A channel to the broker; to the proxy itself, which is `forwarded`, for plain HTTP.

    Raises:
        OSError: its words name the proxy.
    """
    try:
        channel = _connect_to(proxy, deadline)
    except OSError as error:
        raise OSError(f"{proxy}: {words_of(error)}") from error
    if broker.kind != STOMP and not broker.tls:
        channel.proxy = proxy
        return channel
    try:
        _pass_through(channel, proxy, broker)
    except BaseException:
        channel.close()
        raise
    return channel


def _connect_to(proxy: Proxy, deadline: Deadline) -> Channel:
    """The first of its addresses that answers, each in its share of the time."""
    ips = Resolver().ips_of(proxy.host, proxy.port, deadline)
    for later in range(len(ips) - 1, 0, -1):
        try:
            channel = connect(ips[-1 - later], proxy.port, deadline.share(later + 1))
        except OSError:
            continue
        channel.deadline = deadline
        return channel
    return connect(ips[-1], proxy.port, deadline)


def _pass_through(channel: Channel, proxy: Proxy, broker: Broker) -> None:
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
        raise OSError(f"{proxy}: {words_of(error)}") from error
    line, *fields = head.split(b"\r\n")
    version, _, rest_of_line = line.decode("latin-1").partition(" ")
    code, _, reason = rest_of_line.partition(" ")
    is_http = version.startswith("HTTP/1.") and len(code) == 3 and code.isdecimal()
    status = int(code) if is_http else 0
    if not end or not status:
        raise OSError(f"{proxy}: its answer to CONNECT is not HTTP")
    if not 200 <= status < 300:
        pairs = (field.partition(b":") for field in fields)
        wanted = [v.strip().decode("latin-1") for k, _, v in pairs if k.strip().lower() == LOGIN]
        raise OSError(proxy.refusal(status, reason, ", ".join(wanted)))
    if rest:  # a broker never speaks first
        raise OSError(f"{proxy}: it sends more than its answer to CONNECT")
