"""A network broker as a source: a link to each address behind its name, all at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial

from sam_pipeline.consumer.core.backoff import Delays, growing_delays
from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.core.source import start_worker
from sam_pipeline.consumer.sources.stomp_link import Address, StompLink, StompSettings
from sam_pipeline.schema.net.broker_url import Broker
from sam_pipeline.schema.net.channel import error_text
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.resolver import Resolver

LOOK_UP_EVERY_S = 10.0
"""How often the name is looked up, to find addresses that were added."""
LOOK_UP_TIMEOUT_S = 3.0
"""Short, because a reconnect waits for it; a look-up that takes longer counts the next time."""
LINK_END_S = 5.0

Resolve = Callable[[str, int], Sequence[Address]]

logger = logging.getLogger(__name__)


class StompSource:
    """The broker of one URL: a name with many addresses is many brokers."""

    def __init__(
        self,
        broker: Broker,
        settings: StompSettings,
        *,
        resolve: Resolve | None = None,
        delays: Delays = growing_delays,
        taken: dict[Address, str] | None = None,
    ) -> None:
        """`taken`: who has which address; shared by all sources, since two URLs may lead to one."""
        self.name = str(broker)
        self._broker = broker
        self._settings = settings
        self._resolve = resolve or partial(_look_up, Resolver())
        self._delays = delays
        self._taken = {} if taken is None else taken
        self._trouble = "not looked up yet"
        self._links: dict[Address, tuple[StompLink, threading.Thread]] = {}

    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        waits = self._delays()
        while True:
            self._connect_to_new_addresses(inbox, stop)
            if stop.wait(LOOK_UP_EVERY_S if self._links else next(waits)):
                break
        for _, thread in self._links.values():
            thread.join(LINK_END_S)

    def missing(self) -> Sequence[str]:
        links = [link for link, _ in tuple(self._links.values())]
        if not links:
            return [f"{self.name} ({self._trouble})"] if self._trouble else []
        return [f"{link.name} ({link.trouble})" for link in links if link.trouble]

    def _connect_to_new_addresses(self, inbox: Inbox, stop: threading.Event) -> None:
        """Start a link to each; one whose address is gone ended, or will when it is next lost."""
        try:
            addresses = self._resolve(self._broker.host, self._broker.port)
        except OSError as error:
            trouble = error_text(error)
            if trouble != self._trouble and not self._links:
                logger.warning("broker %s: %s; trying again", self.name, trouble)
            self._trouble = trouble
            return
        for address in addresses:
            if self._taken.setdefault(address, self.name) != self.name:
                continue  # the same broker by another URL
            if address in self._links and self._links[address][1].is_alive():
                continue
            exists = partial(self._exists, address)
            link = StompLink(self._broker, address, self._settings, self._delays, exists)
            thread = start_worker(partial(link.run, inbox, stop), link.name, inbox)
            self._links[address] = link, thread
        alive = {at: pair for at, pair in self._links.items() if pair[1].is_alive()}
        for address in self._links.keys() - alive.keys():
            del self._taken[address]
        self._links = alive
        self._trouble = ""

    def _exists(self, address: Address) -> bool:
        try:
            return address in self._resolve(self._broker.host, self._broker.port)
        except OSError:  # no answer does not mean that the address is gone
            return True


def _look_up(resolver: Resolver, host: str, port: int) -> Sequence[Address]:
    """All addresses behind a name.

    Raises:
        OSError: it is not resolved, or not in time.
    """
    ips = resolver.ips_of(host, port, Deadline.after(LOOK_UP_TIMEOUT_S))
    return [(ip, port) for ip in ips]
