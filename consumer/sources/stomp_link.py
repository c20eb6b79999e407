"""One address of a broker: session after session, until stopped."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from sam_pipeline.consumer.core.backoff import Delays
from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.errors import SubscriptionRefused
from sam_pipeline.consumer.sources.stomp_session import ConsumingSession, Login, Subscription
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker_url import Broker
from sam_pipeline.schema.net.channel import Channel, connect, error_text
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.stomp_session import SessionLost
from sam_pipeline.schema.net.tls import TlsFiles, secure

CONNECT_S = 5.0
ASK_AGAIN_S = 300.0
"""After a destination was refused: the broker's permissions may have changed."""

Address = tuple[str, int]

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
    """Read again for each connection: passwords change while we run."""
    tls_files: TlsFiles = field(default_factory=TlsFiles)
    heart_beat_s: float = 10.0

    def login(self, user: str | None) -> Login:
        """Raises SessionLost."""
        try:
            password = self.password()
        except ConfigError as error:
            raise SessionLost(str(error)) from error
        return Login(self.client_id or self.consumer, user or self.user or None, password)

    def open_channel(self, broker: Broker, address: Address) -> Channel:
        """A connection, under TLS where the broker's URL says so; raises SessionLost."""
        try:
            channel = connect(*address, Deadline.after(CONNECT_S))
            return secure(channel, broker, self.tls_files) if broker.tls else channel
        except (OSError, ConfigError) as error:
            raise SessionLost(error_text(error)) from error


class StompLink:
    """One address, for as long as its broker's name leads there."""

    def __init__(
        self,
        broker: Broker,
        address: Address,
        settings: StompSettings,
        delays: Delays,
        exists: Callable[[], bool],
    ) -> None:
        self.name = str(broker) if address[0] == broker.host else f"{broker} at {address[0]}"
        self._broker = broker
        self._address = address
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
        """Ends when stopped, or when a lost broker's name no longer leads to this address."""
        waits = self._delays()
        while not stop.is_set():
            try:
                self._one_session(inbox, stop)
            except SessionLost as loss:
                if not self._loss:  # it had been up: begin with short waits again
                    waits = self._delays()
                # One line per change of state, not per attempt.
                if isinstance(loss, SubscriptionRefused):
                    if str(self._refused.get(loss.destination)) != str(loss):
                        logger.error("broker %s: %s; the others go on", self.name, loss)
                    self._refused[loss.destination] = loss
                elif str(loss) != self._loss:
                    logger.warning("broker %s: %s; trying again", self.name, loss)
                self._loss = str(loss)
                if stop.wait(next(waits)) or not self._exists():
                    return

    def _one_session(self, inbox: Inbox, stop: threading.Event) -> None:
        broker, settings = self._broker, self._settings
        login = settings.login(broker.user)
        channel = settings.open_channel(broker, self._address)
        session = ConsumingSession(
            channel, str(broker), inbox, login, heart_beat_s=settings.heart_beat_s
        )
        try:
            wanted = [sub for sub in settings.subscriptions if sub.destination not in self._refused]
            session.subscribe(settings.consumer, wanted or settings.subscriptions)
            self._loss = ""
            logger.info("broker %s: subscribed as %s", self.name, settings.consumer)
            session.serve(stop, ASK_AGAIN_S if self._refused else math.inf)
            self._refused.clear()
        finally:
            session.close()
            inbox.discard(session)
