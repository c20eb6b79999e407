"""A network broker as a source: a link to each address behind its name."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial

from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.core.source import Delays, growing_delays, start_worker
from sam_pipeline.consumer.sources.stomp.link import Address, StompLink, StompSettings
from sam_pipeline.schema.net.broker_url import Broker
from sam_pipeline.schema.net.channel import Resolver, by_family, error_text
from sam_pipeline.schema.net.deadline import Deadline

LOOK_UP_EVERY_S = 10.0
"""How often the name is looked up to find new addresses."""
TRY_OTHER_S = 2.0
"""How often to look whether the other family of addresses is to be used."""
LOOK_UP_TIMEOUT_S = 3.0
"""Short, because a reconnect waits for it; the result of a slower look-up is used the next time."""
LINK_END_S = 5.0
"""The time limit for a link to end."""

Resolve = Callable[[str, int], Sequence[Address]]

logger = logging.getLogger(__name__)


class StompSource:
    """The broker of one URL, or several brokers if its name has several addresses.

    If these are of both families, IPv4 and IPv6, they usually lead to the same hosts: those of one
    family are used, and of the other one if none of them can be reached.
    """

    def __init__(
        self,
        broker: Broker,
        settings: StompSettings,
        *,
        resolve: Resolve | None = None,
        delays: Delays = growing_delays,
        owners: dict[Address, str] | None = None,
    ) -> None:
        """`owners`: the source of each address, shared by all, as two URLs may have an address."""
        resolver = Resolver()

        def look_up(host: str, port: int) -> Sequence[Address]:
            if settings.proxy:  # which resolves the name
                return [(host, port)]
            ips = resolver.ips_of(host, port, Deadline.after(LOOK_UP_TIMEOUT_S))
            return [(ip, port) for ip in ips]

        self.name = str(broker)
        self._broker = broker
        self._settings = settings
        self._look_up = resolve or look_up
        self._passes_over = False
        """Whether the first family can't be reached."""
        self._has_choice = False
        self._delays = delays
        self._owners = {} if owners is None else owners
        self._problem = "not looked up yet"
        self._links: dict[Address, tuple[StompLink, threading.Thread]] = {}

    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        """Keep a link to each address; the link to a removed address ends when it is lost."""
        delays = self._delays()
        while True:
            links = [link for link, _ in self._links.values()]
            if self._has_choice and links and all(link.is_unreachable for link in links):
                self._passes_over = not self._passes_over
            try:
                addresses = self._resolve(self._broker.host, self._broker.port)
            except OSError as error:
                problem = error_text(error)
                if problem != self._problem and not self._links:
                    text = "broker %s: %s; trying again"
                    logger.warning(text, self.name, problem, extra={"broker": self.name})
                self._problem = problem
            else:
                for address in addresses:
                    if self._owners.setdefault(address, self.name) == self.name:
                        self._ensure_link(address, inbox, stop)
                alive = {at: link for at, link in self._links.items() if link[1].is_alive()}
                for address in self._links.keys() - alive.keys():
                    del self._owners[address]
                self._links = alive
                self._problem = ""
            every_s = TRY_OTHER_S if self._has_choice and self._problems() else LOOK_UP_EVERY_S
            if stop.wait(every_s if self._links else next(delays)):
                break
        for _, thread in self._links.values():
            thread.join(LINK_END_S)

    def missing(self) -> Sequence[str]:
        if not self._links:
            return [f"{self.name} ({self._problem})"] if self._problem else []
        return self._problems()

    def _problems(self) -> list[str]:
        links = [link for link, _ in tuple(self._links.values())]
        return [f"{link.name} ({link.problem})" for link in links if link.problem]

    def _resolve(self, host: str, port: int) -> Sequence[Address]:
        """The addresses of the family that is used at present; raises OSError."""
        addresses = self._look_up(host, port)
        families = by_family(ip for ip, _ in addresses)
        self._has_choice = len(families) > 1
        chosen = families[-1 if self._passes_over else 0] if families else []
        return [address for address in addresses if address[0] in chosen]

    def _ensure_link(self, address: Address, inbox: Inbox, stop: threading.Event) -> None:
        """Start a link to the address unless there is one."""
        if address in self._links and self._links[address][1].is_alive():
            return

        def is_current() -> bool:
            try:
                return address in self._resolve(self._broker.host, self._broker.port)
            except OSError:  # without an answer, the address may still be right
                return True

        link = StompLink(self._broker, address, self._settings, self._delays, is_current)
        thread = start_worker(partial(link.run, inbox, stop), link.name, inbox)
        self._links[address] = link, thread
