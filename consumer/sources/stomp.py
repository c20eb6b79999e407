"""A network broker as a source: a link to each address behind its name, all at once."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial

from sam_pipeline.consumer.core.backoff import Delays, growing_delays
from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.core.source import start_worker
from sam_pipeline.consumer.sources.stomp_link import Address, StompLink, StompSettings
from sam_pipeline.schema.net.broker_url import Broker

LOOK_UP_S = 10.0
"""How often the name is looked up for addresses that came."""
LINK_END_S = 5.0

Resolve = Callable[[str, int], Sequence[Address]]

logger = logging.getLogger(__name__)


def resolve(host: str, port: int) -> Sequence[Address]:
    """All addresses behind a name, of one family: two families mostly lead to the same brokers.

    Raises:
        OSError: the name has no address, or there is nobody to ask.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family = min(each[0] for each in found)  # IPv4 where there is one
    return sorted({(str(each[4][0]), port) for each in found if each[0] == family})


class StompSource:
    """The broker of one URL: a name with many addresses is many brokers."""

    def __init__(
        self,
        broker: Broker,
        settings: StompSettings,
        *,
        resolve: Resolve = resolve,
        delays: Delays = growing_delays,
        taken: dict[Address, str] | None = None,
    ) -> None:
        """`taken`: who has which address; shared by all sources, since two URLs may lead to one."""
        self.name = str(broker)
        self._broker = broker
        self._settings = settings
        self._resolve = resolve
        self._delays = delays
        self._taken = {} if taken is None else taken
        self._trouble = "not looked up yet"
        self._links: dict[Address, StompLink] = {}
        self._threads: dict[Address, threading.Thread] = {}

    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        waits = self._delays()
        while True:
            self._look_up(inbox, stop)
            if stop.wait(LOOK_UP_S if self._links else next(waits)):
                break
        for thread in self._threads.values():
            thread.join(LINK_END_S)

    def missing(self) -> Sequence[str]:
        links = tuple(self._links.values())
        if not links:
            return [f"{self.name} ({self._trouble})"] if self._trouble else []
        return [f"{link.name} ({link.trouble})" for link in links if link.trouble]

    def _look_up(self, inbox: Inbox, stop: threading.Event) -> None:
        """Start a link to each new address; one that is gone ended, or will at its next loss."""
        try:
            addresses = self._resolve(self._broker.host, self._broker.port)
        except OSError as error:
            self._set_trouble(str(error.strerror or error).lower())
            return
        self._trouble = ""
        for address in addresses:
            if self._taken.setdefault(address, self.name) != self.name:
                continue  # the same broker by another URL
            thread = self._threads.get(address)
            if thread is None or not thread.is_alive():
                self._start(address, inbox, stop)
        self._forget_ended()

    def _start(self, address: Address, inbox: Inbox, stop: threading.Event) -> None:
        exists = partial(self._exists, address)
        link = StompLink(self._broker, address, self._settings, self._delays, exists)
        self._links[address] = link
        self._threads[address] = start_worker(lambda: link.run(inbox, stop), link.name, inbox)

    def _forget_ended(self) -> None:
        alive = {address for address, thread in self._threads.items() if thread.is_alive()}
        for address in self._links.keys() - alive:
            del self._taken[address]
        self._links = {address: self._links[address] for address in alive}
        self._threads = {address: self._threads[address] for address in alive}

    def _exists(self, address: Address) -> bool:
        try:
            return address in self._resolve(self._broker.host, self._broker.port)
        except OSError:  # nobody to ask is no answer
            return True

    def _set_trouble(self, text: str) -> None:
        if text != self._trouble and not self._links:
            logger.warning("broker %s: %s; trying again", self.name, text)
        self._trouble = text
