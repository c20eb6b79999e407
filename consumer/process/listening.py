"""Listening sockets: opened here or inherited from systemd, they outlive a restart on SIGHUP."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker_url import Broker

FIRST_INHERITED = 3
"""The descriptor of the first socket that systemd passes (sd_listen_fds(3))."""
BACKLOG = 1024
"""Connections that wait to be accepted, also while the daemon rereads its configuration."""


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
