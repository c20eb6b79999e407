"""One address of a broker: a session, and after it the next one, until told to stop."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from sam_pipeline.consumer.core.backoff import Delays
from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.errors import SessionLost, SubscriptionRefused
from sam_pipeline.consumer.sources.stomp_session import Address, Login, StompSession, Subscription
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker_url import Broker
from sam_pipeline.schema.net.tls import TlsFiles, secure

ASK_AGAIN_S = 300.0
"""For a destination that was refused: somebody may have changed the broker's mind."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StompSettings:
    """What all network brokers of one consumer share."""

    consumer: str
    subscriptions: tuple[Subscription, ...]
    client_id: str = ""
    """Of this process, where several share the name; without it, the name."""
    user: str = ""
    password: Callable[[], str | None] = lambda: None
    """Asked anew for each connection: passwords change while we run."""
    tls_files: TlsFiles = field(default_factory=TlsFiles)
    heart_beat_s: float = 10.0

    def login(self, user: str | None) -> Login:
        try:
            password = self.password()
        except ConfigError as error:
            raise SessionLost(str(error)) from error
        return Login(self.client_id or self.consumer, user or self.user or None, password)


@dataclass(frozen=True)
class Place:
    """An address, under the name that people know it by."""

    broker: Broker
    name: str
    address: Address


class StompLink:
    """One address, for as long as its broker's name leads there."""

    def __init__(
        self, place: Place, settings: StompSettings, delays: Delays, exists: Callable[[], bool]
    ) -> None:
        self.name = place.name
        self._place = place
        self._settings = settings
        self._delays = delays
        self._exists = exists
        self._loss = "not connected yet"
        self._refused: dict[str, SubscriptionRefused] = {}
        """By destination: we go on without, and ask again after a while."""

    @property
    def trouble(self) -> str:
        """Why not everything is delivered; empty while all subscriptions stand."""
        return self._loss or "; ".join(map(str, self._refused.values()))

    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        """Ends when told to, or when a lost broker's name no longer leads to this address."""
        waits = self._delays()
        while not stop.is_set():
            try:
                self._one_session(inbox, stop)
            except SessionLost as loss:
                if not self._loss:  # it had been up: begin with short waits again
                    waits = self._delays()
                self._down(loss)
                if stop.wait(next(waits)) or not self._exists():
                    return

    def _one_session(self, inbox: Inbox, stop: threading.Event) -> None:
        broker, settings = self._place.broker, self._settings
        session = StompSession(str(broker), inbox, heart_beat_s=settings.heart_beat_s)
        secure_it = partial(secure, broker=broker, files=settings.tls_files)
        try:
            login = settings.login(broker.user)
            session.open(self._place.address, login, secure_it if broker.tls else None)
            session.subscribe(settings.consumer, self._wanted())
            self._up()
            session.serve(stop, ASK_AGAIN_S if self._refused else math.inf)
            self._refused.clear()
        finally:
            session.close()
            inbox.discard(session)

    def _wanted(self) -> list[Subscription]:
        """Those that were not refused; all of them if there would be none."""
        wanted = self._settings.subscriptions
        return [each for each in wanted if each.destination not in self._refused] or list(wanted)

    def _up(self) -> None:
        self._loss = ""
        logger.info("broker %s: subscribed as %s", self.name, self._settings.consumer)

    def _down(self, loss: SessionLost) -> None:
        """One line per change of state, not per attempt."""
        if isinstance(loss, SubscriptionRefused):
            if str(self._refused.get(loss.destination)) != str(loss):
                logger.error("broker %s: %s; the others go on", self.name, loss)
            self._refused[loss.destination] = loss
        elif str(loss) != self._loss:
            logger.warning("broker %s: %s; trying again", self.name, loss)
        self._loss = str(loss)
