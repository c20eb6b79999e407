"""A network broker as a source: a link to each address behind its name."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.core.source import Delays, growing_delays, start_worker
from sam_pipeline.consumer.errors import SubscriptionRefused, needs_action
from sam_pipeline.consumer.sources.stomp.session import Address, ConsumingSession, StompSettings
from sam_pipeline.schema.net.broker import Broker
from sam_pipeline.schema.net.channel import Resolver, by_family, error_text
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp.session import SessionLost

LOOK_UP_EVERY_S = 10.0
"""How often the name is looked up to find new addresses."""
TRY_OTHER_S = 2.0
"""How often to look whether the other family of addresses is to be used."""
LOOK_UP_TIMEOUT_S = 3.0
"""Short, because a reconnect waits for it; the result of a slower look-up is used the next time."""
LINK_END_S = 5.0

LIVED_S = 60.0
"""A session that lasted as long worked: the next one follows soon, not after a growing delay."""
RETRY_REFUSED_S = 300.0
"""How long a session omits refused destinations, which the broker may permit by then."""

LEFT_ALONE_S = 0.2
"""How often a link that leaves its broker alone looks whether messages can be stored."""

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
                    is_ours = self._owners.setdefault(address, self.name) == self.name
                    known = self._links.get(address)
                    if is_ours and not (known and known[1].is_alive()):
                        is_current = partial(self._is_current, address)
                        link = StompLink(
                            self._broker, address, self._settings, self._delays, is_current
                        )
                        thread = start_worker(partial(link.run, inbox, stop), link.name, inbox)
                        self._links[address] = link, thread
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

    def _is_current(self, address: Address) -> bool:
        """Whether the name of the broker still resolves to the address."""
        try:
            return address in self._resolve(self._broker.host, self._broker.port)
        except OSError:  # without an answer, the address may still be right
            return True

    def _resolve(self, host: str, port: int) -> Sequence[Address]:
        """The addresses of the family that is used at present; raises OSError."""
        addresses = self._look_up(host, port)
        families = by_family(ip for ip, _ in addresses)
        self._has_choice = len(families) > 1
        chosen = families[-1 if self._passes_over else 0] if families else []
        return [address for address in addresses if address[0] in chosen]


class StompLink:
    """The sessions with one address of a broker, one after another.

    While messages can't be stored, a lost session is not replaced: its successor would receive the
    same messages again, and brokers limit how often they deliver a message. But subscriptions that
    were never made at the address are made at once, since nobody else keeps messages for us.
    """

    def __init__(
        self,
        broker: Broker,
        address: Address,
        settings: StompSettings,
        delays: Delays,
        is_current: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_current`: whether the name of the broker still resolves to the address."""
        self.name = str(broker) if address[0] == broker.host else f"{broker} at {address[0]}"
        self._broker = broker
        self._fields = {"broker": str(broker)}
        self._address = address
        self._settings = settings
        self._delays = delays
        self._is_current = is_current
        self._clock = clock
        self._loss = "not connected yet"
        """The reason why no session is subscribed; empty while one is."""
        self.is_unreachable = False
        """Whether the last attempt to connect failed."""
        self._session: ConsumingSession | None = None
        self._records = settings.records and settings.records.at(address[0])
        self._has_delivered = self._was_lost = False
        self._refused: dict[str, SubscriptionRefused] = {}
        """Sessions omit these destinations, until RETRY_REFUSED_S after the last refusal."""
        self._ask_again_at = math.inf

    @property
    def problem(self) -> str:
        """Why some or all messages are not delivered; empty while all subscriptions work."""
        problems = [*map(str, self._refused.values())]
        if self._session and self._session.is_amid_a_message:
            problems.append("a message is incomplete")
        return self._loss or "; ".join(problems)

    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        """Run sessions until stopped, or until one is lost and the address is not current."""
        delays = self._delays()
        while not stop.is_set():
            pause = self._settings.pause()
            if pause and not self._has_delivered:  # a session would make what was never made
                wanted = [(item.destination, item.shared) for item in self._settings.subscriptions]
                pause = pause if self._records and self._records.have_all(wanted) else ""
            if pause:
                self._loss = pause
                stop.wait(LEFT_ALONE_S)
                continue
            began = self._clock()
            try:
                self._run_session(inbox, stop)
            except SessionLost as loss:
                self._was_lost = True
                if self._clock() - began >= LIVED_S:
                    delays = self._delays()
                # Each reason is logged once, not at every attempt.
                if isinstance(loss, SubscriptionRefused):
                    if str(self._refused.get(loss.destination)) != str(loss):
                        text = "broker %s: %s; continuing with the other destinations"
                        logger.error(text, self.name, loss, extra=self._fields)
                    self._refused[loss.destination] = loss
                    self._ask_again_at = time.monotonic() + RETRY_REFUSED_S
                elif str(loss) != self._loss:
                    level = logging.ERROR if needs_action(loss) else logging.WARNING
                    text = "broker %s: %s; trying again"
                    logger.log(level, text, self.name, loss, extra=self._fields)
                self._loss = str(loss)
                if stop.wait(next(delays)) or not self._is_current():
                    return

    def _run_session(self, inbox: Inbox, stop: threading.Event) -> None:
        """One session: connect, subscribe, deliver and ack. Raises SessionLost."""
        broker, settings = self._broker, self._settings
        login = settings.login(broker.user)
        self.is_unreachable = True
        channel = settings.open_channel(broker, self._address)
        self.is_unreachable = False
        session = settings.session(channel, str(broker), inbox, login, settings)
        try:
            everything = settings.subscriptions
            not_refused = [item for item in everything if item.destination not in self._refused]
            # If the broker refused every destination, ask for all of them again.
            chosen = not_refused or everything
            session.subscribe(chosen, self._records)
            level = logging.INFO if self._loss else logging.DEBUG
            if self._has_delivered and self._was_lost:  # others are renewed by ourselves
                inbox.count_reconnect(str(broker))
            self._loss, self._session, self._has_delivered = "", session, True
            self._was_lost = False
            text = "broker %s: subscribed as %s"
            logger.log(level, text, self.name, settings.consumer, extra=self._fields)
            session.serve(stop, self._ask_again_at - time.monotonic())
            if time.monotonic() >= self._ask_again_at:
                self._refused.clear()
                self._ask_again_at = math.inf
        finally:
            self._session = None
            session.close()
            inbox.discard(session)
