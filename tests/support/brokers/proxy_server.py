"""An HTTP proxy in threads: CONNECT and absolute URIs, with a login, with faults on request.

    with ProxyServer(hosts={"msg.example.org": HOST}) as proxy:
        publish([message], PublisherConfig(brokers=("stomp://msg.example.org",), proxy=proxy.url))
    assert proxy.asked == ["CONNECT msg.example.org:61613"]

The fields of `ProxyServer` change its behaviour.
"""

from __future__ import annotations

import select
import socket
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.support.brokers.http_stand_in import DRIP_S, Asked, HttpServer, reply
from tests.support.brokers.stand_in import HOST, POLL_S

QUIET_S = 5.0
HOP_BY_HOP = ("proxy-authorization", "proxy-connection", "connection")


@dataclass
class ProxyServer(HttpServer):
    """Listens on a free port; `asked` has the method and the target of each request."""

    user: str = ""
    """Requires this login, unless empty."""
    password: str = ""
    wants: str = 'Basic realm="tests"'
    """The value of its Proxy-Authenticate header."""
    hosts: Mapping[str, str] = field(default_factory=dict)
    """Addresses by name; other names go to the resolver of this machine."""
    refuses: int = 0
    """Answers every request with this status."""
    mute: bool = False
    """Reads requests and never answers."""
    says: bytes = b""
    """Answers every request with these bytes, and closes."""
    drips: bool = False
    """Sends its own answers one byte every DRIP_S."""
    asked: list[str] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    """The headers of the same requests, by lower-case name."""

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def url_with(self, login: str) -> str:
        return f"http://{login}@{HOST}:{self.port}"

    def _handle(self, connection: socket.socket, asked: Asked) -> bool:
        self.asked.append(f"{asked.method} {asked.target}")
        self.headers.append(asked.headers)
        login = f"Basic {b64encode(f'{self.user}:{self.password}'.encode()).decode()}"
        answer = self.says
        if self.mute:
            self._stopping.wait()  # longer than any client waits
        elif self.refuses:
            answer = reply(self.refuses, reason="Refused")
        elif self.user and asked.headers.get("proxy-authorization") != login:
            reason = "Proxy Authentication Required"
            answer = reply(407, reason=reason, Proxy_Authenticate=self.wants)
        elif not self.says:
            return self._forward(connection, asked)
        self._say(connection, answer, DRIP_S if self.drips else 0.0)
        return not self.says

    def _forward(self, client: socket.socket, asked: Asked) -> bool:
        is_tunnel = asked.method == "CONNECT"
        parts = urlsplit(f"//{asked.target}" if is_tunnel else asked.target)
        host = parts.hostname or ""
        try:
            upstream = socket.create_connection(
                (self.hosts.get(host, host), parts.port or 80), QUIET_S
            )
        except OSError:
            self._say(client, reply(502, reason="Bad Gateway"))
            return True
        with upstream:
            if is_tunnel:
                self._say(client, b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                target = parts._replace(scheme="", netloc="").geturl()
                kept = {k: v for k, v in asked.headers.items() if k not in HOP_BY_HOP}
                lines = [f"{name}: {value}" for name, value in kept.items()]
                head = [f"{asked.method} {target} HTTP/1.1", *lines, "Connection: close", "", ""]
                upstream.sendall("\r\n".join(head).encode() + asked.body)
            self._relay({client: upstream, upstream: client})
        return False

    def _relay(self, ways: Mapping[socket.socket, socket.socket]) -> None:
        """Forward bytes in both directions until either end closes its side."""
        while not self._stopping.is_set():
            for source in select.select(list(ways), [], [], POLL_S)[0]:
                if not (data := source.recv(65536)):
                    return
                self._say(ways[source], data)
