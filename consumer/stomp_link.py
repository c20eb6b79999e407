"""One address of a broker: a session, and after it the next one, until told to stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from consumer.backoff import Delays
from consumer.errors import SessionLost
from consumer.inbox import Inbox
from consumer.stomp_session import Address, Login, StompSession, Subscription
from schema.errors import ConfigError
from schema.secret_file import read_secret

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StompSettings:
    """What all network brokers of one consumer share."""

    consumer: str
    subscriptions: tuple[Subscription, ...]
    user: str = ""
    password_file: Path | None = None

    def login(self, user: str | None) -> Login:
        """Read anew for each connection: passwords change while we run."""
        try:
            password = read_secret(self.password_file) if self.password_file else None
        except ConfigError as error:
            raise SessionLost(str(error)) from error
        return Login(self.consumer, user or self.user or None, password)


@dataclass(frozen=True)
class Place:
    """An address, under the name that people know it by, and who logs in there."""

    broker: str
    name: str
    address: Address
    user: str | None


class StompLink:
    """`trouble` says why nothing is delivered; it is empty while the subscriptions stand."""

    def __init__(
        self, place: Place, settings: StompSettings, delays: Delays, exists: Callable[[], bool]
    ) -> None:
        self.name = place.name
        self.trouble = "not connected yet"
        self._place = place
        self._settings = settings
        self._delays = delays
        self._exists = exists

    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        """Ends when told to, or when a lost broker's name no longer leads to this address."""
        waits = self._delays()
        while not stop.is_set():
            try:
                self._one_session(inbox, stop)
            except SessionLost as loss:
                if not self.trouble:  # it had been up: begin with short waits again
                    waits = self._delays()
                self._down(str(loss))
                if stop.wait(next(waits)) or not self._exists():
                    return

    def _one_session(self, inbox: Inbox, stop: threading.Event) -> None:
        session = StompSession(self._place.broker, inbox)
        try:
            session.open(self._place.address, self._settings.login(self._place.user))
            session.subscribe(self._settings.consumer, self._settings.subscriptions)
            self._up()
            session.serve(stop)
        finally:
            session.close()
            inbox.discard(session)

    def _up(self) -> None:
        self.trouble = ""
        logger.info("broker %s: subscribed as %s", self.name, self._settings.consumer)

    def _down(self, reason: str) -> None:
        """One line per change of state, not per attempt."""
        if reason != self.trouble:
            logger.warning("broker %s: %s; trying again", self.name, reason)
        self.trouble = reason
