"""Listening: sockets, the limit on connections, and requests that browsers make for web pages."""

from __future__ import annotations

import errno
import resource
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker import Broker, is_loopback

FIRST_INHERITED = 3
"""The descriptor of the first socket that systemd passes (sd_listen_fds(3))."""
BACKLOG = 1024
"""Connections that wait to be accepted, also while the daemon rereads its configuration."""

OTHER_FILES = 256
"""The files that are left for the database, for other sources, and for elements of spools."""

LOCAL_NAMES = ("", "localhost", "localhost.localdomain")


class Listeners:
    """The sockets on which a daemon listens, by broker URL."""

    def __init__(self, inherited: Sequence[socket.socket] = ()) -> None:
        self._inherited = inherited
        self._opened: dict[str, list[socket.socket]] = {}

    def sockets_of(self, broker: Broker) -> list[socket.socket]:
        """Duplicates of the sockets of a URL, which are opened unless systemd has opened its port.

        Raises:
            OSError: the address can't be used; `strerror` says why.
        """
        sockets = [item for item in self._inherited if _port(item) == broker.port]
        if not sockets:
            url = str(broker)
            if url not in self._opened:
                self._opened[url] = listening_sockets(broker.host, broker.port)
            sockets = self._opened[url]
        return [item.dup() for item in sockets]

    def require_all_used(self, brokers: Iterable[Broker]) -> None:
        """Check that no sender would wait at a socket of systemd; raises ConfigError."""
        ports = {broker.port for broker in brokers}
        addresses = [item.getsockname() for item in self._inherited if _port(item) not in ports]
        unused = [f"{at[0]}:{at[1]}" if isinstance(at, tuple) else str(at) for at in addresses]
        if unused:
            advice = "add listen+https://ADDRESS:PORT to the brokers, or change the socket unit"
            raise ConfigError(
                [f"no broker URL uses the systemd socket {text}: {advice}" for text in unused]
            )

    def retain(self, brokers: Iterable[Broker]) -> None:
        """Close the sockets of all other URLs."""
        for url in self._opened.keys() - set(map(str, brokers)):
            for item in self._opened.pop(url):
                item.close()

    def close(self) -> None:
        """Close all sockets; systemd keeps its own."""
        self.retain(())
        for item in self._inherited:
            item.close()


def inherited_sockets(count: int) -> list[socket.socket]:
    """The sockets that systemd has passed to this process; programs that it runs get none."""
    sockets = []
    for descriptor in range(FIRST_INHERITED, FIRST_INHERITED + count):
        with suppress(OSError):  # closed, or not a socket
            item = socket.socket(fileno=descriptor)
            item.set_inheritable(False)
            sockets.append(item)
    return sockets


def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """A listening socket for each address of a host; an IPv6 address does not include IPv4.

    Raises:
        OSError: the name is unknown, or an address can't be used.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    for family, kind, protocol, _, address in dict.fromkeys(found):
        try:
            item = socket.socket(family, kind, protocol)
        except OSError as error:  # a kernel without IPv6
            missing = error
            continue
        try:
            item.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                item.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            item.bind(address)
            item.listen(BACKLOG)
        except OSError as error:
            item.close()
            if error.errno != errno.EADDRNOTAVAIL:  # such as ::1 of localhost without IPv6
                for opened in sockets:
                    opened.close()
                raise
            missing = error
        else:
            sockets.append(item)
    if not sockets:
        raise missing or OSError(errno.EADDRNOTAVAIL, "has no address")
    return sockets


def _port(item: socket.socket) -> int | None:
    """The port on which a socket accepts TCP connections."""
    accepts = item.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    is_tcp = item.family in (socket.AF_INET, socket.AF_INET6) and item.type == socket.SOCK_STREAM
    return int(item.getsockname()[1]) if accepts and is_tcp else None


def allow_connections(count: int) -> int:
    """Raise the limit on open files for this many connections; returns how many it allows.

    The usual soft limit is 1024; the hard limit, which stays, is much higher.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return count
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return max(limit - OTHER_FILES, 1)


def is_of_a_page(headers: Mapping[str, str]) -> bool:
    """Whether a web page makes this request.

    Browsers send `Origin` with each POST of a page, and `Sec-Fetch-Site`, which is `none` only for
    an address that a person typed. Source: Fetch Metadata Request Headers, W3C.
    """
    return "Origin" in headers or headers.get("Sec-Fetch-Site", "none") != "none"


def is_rebound(own_address: object, host: str) -> bool:
    """Whether a request to an address of this machine alone has another `Host`.

    A web site whose name resolves to 127.0.0.1 would make its pages local ones (DNS rebinding).
    """
    if not is_loopback(str(own_address)):
        return False
    with suppress(ValueError):
        name = urlsplit(f"//{host}").hostname or ""
        return name not in LOCAL_NAMES and not ip_address(name)
    return True
