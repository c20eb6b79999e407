"""From broker URLs to addresses: a name that resolves to many is many brokers."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from publisher.deadline import Deadline
from publisher.errors import BrokerUnavailable
from schema.broker import SPOOL, Broker

HOST_NAME_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class BrokerAddress:
    """One place where a broker is reached: an IP address, or the directory of a spool."""

    broker: Broker
    ip: str = ""

    def __str__(self) -> str:
        named = self.ip in ("", self.broker.host)
        return str(self.broker) if named else f"{self.broker} ({self.ip})"

    @property
    def identity(self) -> tuple[str, str, int, str]:
        """Equal for a broker that is reached by two names."""
        return (self.broker.scheme, self.ip, self.broker.port, self.broker.path)


def addresses_of(broker: Broker, deadline: Deadline) -> list[BrokerAddress]:
    """All addresses of a broker, of one family: a host with two is still one broker.

    Raises:
        BrokerUnavailable: its name does not resolve, or not in time.
    """
    if broker.scheme == SPOOL:
        return [BrokerAddress(broker)]
    try:
        found = _look_up(broker, deadline)
    except (OSError, UnicodeError) as error:
        words = error.strerror if isinstance(error, OSError) and error.strerror else error
        reason = f"its name is not resolved: {words}"
        raise BrokerUnavailable(BrokerAddress(broker), reason) from error
    # A broker with both families answers on IPv4; one with IPv6 alone has no IPv4 address.
    family = socket.AF_INET if socket.AF_INET in {item[0] for item in found} else socket.AF_INET6
    ips = dict.fromkeys(str(item[4][0]) for item in found if item[0] == family)
    return [BrokerAddress(broker, ip) for ip in ips]


def this_host() -> str:
    """The full name of this host; the short one where DNS has none, or does not answer quickly."""
    name = socket.gethostname()
    if "." in name:
        return name
    try:
        full = str(_within(Deadline.after(HOST_NAME_TIMEOUT_S), socket.getfqdn, name))
    except TimeoutError:
        return name
    return name if full.startswith("localhost") else full


def _look_up(broker: Broker, deadline: Deadline) -> Any:
    where = (broker.host, broker.port, 0, socket.SOCK_STREAM, 0)
    try:
        return socket.getaddrinfo(*where, socket.AI_NUMERICHOST)
    except socket.gaierror:
        return _within(deadline, socket.getaddrinfo, *where, socket.AI_ADDRCONFIG)


def _within(deadline: Deadline, call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call that can't be told how long it may take: it is left behind.

    Raises:
        TimeoutError: it took longer; or what the call itself raises.
    """
    answers: queue.SimpleQueue[tuple[Any, Exception | None]] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put((call(*arguments), None))
        except Exception as error:  # carried to the thread that waits, and raised there
            answers.put((None, error))

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer, error = answers.get(timeout=deadline.remaining())
    except queue.Empty:
        raise TimeoutError("no answer in time") from None
    if error:
        raise error
    return answer
