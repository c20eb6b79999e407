"""The link to one address of a broker: one session after another, until stopped."""

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
RETRY_REFUSED_S = 300.0
"""When to retry a refused destination: the permissions in the broker may have changed."""

Address = tuple[str, int]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StompSettings:
    """The settings that all network brokers of one consumer share."""

    consumer: str
    subscriptions: tuple[Subscription, ...]
    client_id: str = ""
    """The id of this process if several share the name; by default the name."""
    user: str = ""
    password: Callable[[], str | None] = lambda: None
    """Called for each connection, since passwords change while the daemon runs."""
    tls_files: TlsFiles = field(default_factory=TlsFiles)
    heart_beat_s: float = 10.0

    def login(self, user: str | None) -> Login:
        """The login for a broker whose URL has this user; raises SessionLost."""
        try:
            password = self.password()
        except ConfigError as error:
            raise SessionLost(str(error)) from error
        return Login(self.client_id or self.consumer, user or self.user or None, password)

    def open_channel(self, broker: Broker, address: Address) -> Channel:
        """A connection, with TLS if the URL of the broker requires it; raises SessionLost."""
        try:
            channel = connect(*address, Deadline.after(CONNECT_S))
            return secure(channel, broker, self.tls_files) if broker.tls else channel
        except (OSError, ConfigError) as error:
            raise SessionLost(error_text(error)) from error


class StompLink:
    """The link to one address, as long as the name of its broker resolves to it."""

    def __init__(
        self,
        broker: Broker,
        address: Address,
        settings: StompSettings,
        delays: Delays,
        still_exists: Callable[[], bool],
    ) -> None:
        """`still_exists`: whether the name of the broker still resolves to the address."""
        self.name = str(broker) if address[0] == broker.host else f"{broker} at {address[0]}"
        self._broker = broker
        self._address = address
        self._settings = settings
        self._delays = delays
        self._still_exists = still_exists
        self._loss = "not connected yet"
        self._refused: dict[str, SubscriptionRefused] = {}
        """Refused destinations, which are left out of the next session and retried later."""

    @property
    def problem(self) -> str:
        """The reason why not everything is delivered; empty while all subscriptions work."""
        return self._loss or "; ".join(map(str, self._refused.values()))

    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        """Run sessions until stopped, or until the connection is lost and the address is gone."""
        waits = self._delays()
        while not stop.is_set():
            try:
                self._run_session(inbox, stop)
            except SessionLost as loss:
                if not self._loss:  # it was connected: begin with short waits again
                    waits = self._delays()
                # Log changes of state, not attempts.
                if isinstance(loss, SubscriptionRefused):
                    if str(self._refused.get(loss.destination)) != str(loss):
                        logger.error(
                            "broker %s: %s; continuing with the other destinations", self.name, loss
                        )
                    self._refused[loss.destination] = loss
                elif str(loss) != self._loss:
                    logger.warning("broker %s: %s; trying again", self.name, loss)
                self._loss = str(loss)
                if stop.wait(next(waits)) or not self._still_exists():
                    return

    def _run_session(self, inbox: Inbox, stop: threading.Event) -> None:
        """One session: connect, subscribe, deliver and ack. Raises SessionLost."""
        broker, settings = self._broker, self._settings
        login = settings.login(broker.user)
        channel = settings.open_channel(broker, self._address)
        session = ConsumingSession(
            channel, str(broker), inbox, login, heart_beat_s=settings.heart_beat_s
        )
        try:
            subscriptions = settings.subscriptions
            accepted = [item for item in subscriptions if item.destination not in self._refused]
            session.subscribe(settings.consumer, accepted or subscriptions)
            self._loss = ""
            logger.info("broker %s: subscribed as %s", self.name, settings.consumer)
            session.serve(stop, RETRY_REFUSED_S if self._refused else math.inf)
            self._refused.clear()
        finally:
            session.close()
            inbox.discard(session)
