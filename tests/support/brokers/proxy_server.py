"""An HTTP proxy in threads: CONNECT and absolute URIs, with a login, with faults on request.

    with ProxyServer(hosts={"msg.example.org": HOST}) as proxy:
        publish([message], PublisherConfig(("stomp://msg.example.org",), proxy=proxy.url))
    assert proxy.asked == ["CONNECT msg.example.org:61613"]

The fields of `ProxyServer` change its behaviour.
"""

from __future__ import annotations

import http.client
import select
import socket
import threading
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from urllib.parse import urlsplit

HOST = "127.0.0.1"
POLL_S = 0.005
DRIP_S = 0.1
QUIET_S = 5.0
HOP_BY_HOP = ("proxy-authorization", "proxy-connection", "connection", "transfer-encoding")
SIZES = ("content-length", "transfer-encoding", "connection")


@dataclass
class ProxyServer:
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

    def __enter__(self) -> ProxyServer:
        self.stopping = threading.Event()
        self._server = _Server((HOST, 0), _Handler)
        self._server.proxy = self
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(POLL_S,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def url_with(self, login: str) -> str:
        return f"http://{login}@{HOST}:{self.port}"

    def connection_to(self, host: str, port: int) -> socket.socket:
        return socket.create_connection((self.hosts.get(host, host), port), QUIET_S)


class _Server(ThreadingTCPServer):
    proxy: ProxyServer

    def handle_error(self, *_: object) -> None:
        """A client may disconnect at any time."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = QUIET_S
    server: _Server

    def do_CONNECT(self) -> None:
        if not self._is_welcome():
            return
        host, _, port = self.path.rpartition(":")
        try:
            broker = self.server.proxy.connection_to(host.strip("[]"), int(port))
        except OSError:
            self._say(502, "Bad Gateway")
            return
        with broker:
            self._write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            self._relay(broker)
        self.close_connection = True

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self._is_welcome():
            self._forward(body)

    do_GET = do_PUT = do_DELETE = do_POST

    def log_message(self, *_: object) -> None:
        """Logs nothing: tests read `asked`."""

    def _is_welcome(self) -> bool:
        """Whether to forward the request; if not, it is answered here."""
        proxy = self.server.proxy
        headers = {name.lower(): value for name, value in self.headers.items()}
        proxy.asked.append(f"{self.command} {self.path}")
        proxy.headers.append(headers)
        login = f"Basic {b64encode(f'{proxy.user}:{proxy.password}'.encode()).decode()}"
        if proxy.mute:
            proxy.stopping.wait()  # longer than any client waits
            self.close_connection = True
        elif proxy.says:
            self._write(proxy.says)
            self.close_connection = True
        elif proxy.refuses:
            self._say(proxy.refuses, "Refused")
        elif proxy.user and headers.get("proxy-authorization") != login:
            self._say(407, "Proxy Authentication Required", f"Proxy-Authenticate: {proxy.wants}")
        else:
            return True
        return False

    def _forward(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        upstream = http.client.HTTPConnection(parts.hostname or "", parts.port or 80)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP_BY_HOP}
        target = parts._replace(scheme="", netloc="").geturl()
        try:
            upstream.sock = self.server.proxy.connection_to(upstream.host, upstream.port)
            upstream.request(self.command, target, body, headers)
            answer = upstream.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):
            self._say(502, "Bad Gateway")
            return
        finally:
            upstream.close()
        lines = [f"{name}: {value}" for name, value in answer.getheaders()]
        self._say(answer.status, answer.reason, *lines, "Via: 1.1 tests", body=content)

    def _say(self, status: int, reason: str, *lines: str, body: bytes = b"") -> None:
        kept = [line for line in lines if line.split(":")[0].lower() not in SIZES]
        head = [f"HTTP/1.1 {status} {reason}", f"Content-Length: {len(body)}", *kept, "", ""]
        self._write("\r\n".join(head).encode("latin-1") + body)

    def _write(self, answer: bytes) -> None:
        drips = self.server.proxy.drips
        for part in [bytes([byte]) for byte in answer] if drips else [answer]:
            self.wfile.write(part)
            if drips and self.server.proxy.stopping.wait(DRIP_S):
                return

    def _relay(self, broker: socket.socket) -> None:
        """Forward bytes in both directions until either end closes its side."""
        ways = {self.connection: broker, broker: self.connection}
        while not self.server.proxy.stopping.is_set():
            for source in select.select(list(ways), [], [], POLL_S)[0]:
                data = b""
                with suppress(OSError):
                    data = source.recv(65536)
                if not data:
                    return
                ways[source].sendall(data)
