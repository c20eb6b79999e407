"""Keeps a connection open to one of the brokers to which a relay sends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import islice

from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.settings.last_good import LastGood
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker_url import Broker
from sam_pipeline.schema.net.channel import error_text
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.net.resolver import Resolver
from sam_pipeline.schema.net.round_trip import RoundTrip, timed
from sam_pipeline.schema.net.stomp.sender import (
    EndedByMessage,
    SendingSession,
    SendRefused,
    StompSender,
)
from sam_pipeline.schema.net.stomp.session import SessionLost
from sam_pipeline.schema.net.tls import secure, tls_context
from sam_pipeline.schema.net.tunnel import open_connection

CONNECT_S = 5.0
ANSWER_S = 15.0
"""The time limit for a broker to confirm the messages of one call."""
BATCH = 500
BATCH_BYTES = 4 * 1024 * 1024
"""The limits on the messages of one call."""
REST_S = 30.0
"""How long a broker that failed is not tried again, as long as another one confirms."""
FORGET_REFUSALS_S = 60.0
"""A new connection after this time asks again for what the broker has refused."""

MAX_SUSPECTS = 10
"""After as many messages in a row that perhaps ended a session, the broker is to blame."""
MAX_ATTEMPTS = 5
"""After as many sessions in a row that perhaps ended by it, a message is to blame."""
PROVEN = "login"

logger = logging.getLogger(__name__)


class BrokerLink:
    """One broker, with all addresses behind its name; it connects when it first sends."""

    def __init__(
        self,
        broker: Broker,
        config: ConsumerConfig,
        show: Callable[[str, str], object] = lambda *_: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`show` as of LastGood."""
        self.name = str(broker)
        self._broker = broker
        target = self._target = config.target_of(broker)
        files = self._files = target.tls_files
        self._proxy = LastGood(f"proxy to {broker}", target.find_proxy, show)
        self._password = LastGood(f"password at {broker}", target.password.read, show)
        self._context = LastGood(f"TLS files for {broker}", partial(tls_context, files), show)
        self._clock = clock
        self._resolver = Resolver()
        self._sender: StompSender | None = None
        self._refused_at: float | None = None
        """When the broker first refused a message on this connection."""
        self._failed_at = -REST_S
        self._suspect, self._suspected = "", 0
        """The message that perhaps ended the last session, and how often in a row it did."""

    @property
    def rests(self) -> bool:
        """Whether it failed a short time ago."""
        return self._clock() - self._failed_at < REST_S

    def connect(self) -> StompSender:
        """The open connection, or a new one; raises SessionLost."""
        if self._refused_at and self._clock() - self._refused_at > FORGET_REFUSALS_S:
            self.close()
        try:
            if self._sender is None:
                self._sender = StompSender(self._open_session, Deadline.after(CONNECT_S))
                logger.info("broker %s: connected", self.name, extra={"broker": self.name})
        except SessionLost:
            self._failed_at = self._clock()
            raise
        return self._sender

    def send(
        self, pending: MutableMapping[int, Message], refused: MutableMapping[int, str]
    ) -> None:
        """Send the pending messages, by position, and remove those that the broker confirms.

        The reasons of those that it refuses are added to `refused`; they stay pending.

        Raises:
            SessionLost: the other messages are not confirmed.
        """
        waiting = list(pending)
        suspects: dict[int, SessionLost] = {}
        """Messages that perhaps ended a session, with no other one confirmed since."""
        try:
            while waiting and len(suspects) < MAX_SUSPECTS:
                batch = _beginning(waiting, pending)
                settled = set()
                try:
                    sender = self.connect()
                    messages = [pending[position] for position in batch]
                    for index in sender.send(messages, Deadline.after(ANSWER_S)):
                        settled.add(batch[index])
                        del pending[batch[index]]
                        # The broker works, so they are to blame.
                        refused.update(
                            (at, f"{self.name}: {loss}") for at, loss in suspects.items()
                        )
                        suspects.clear()
                except SendRefused as refusal:
                    settled.add(batch[refusal.position])
                    refused[batch[refusal.position]] = f"{self.name}: {refusal.reason}"
                    self._refused_at = self._refused_at or self._clock()
                except EndedByMessage as loss:
                    settled.add(batch[loss.position])
                    suspects[batch[loss.position]] = loss
                    self.close()
                waiting = [position for position in waiting if position not in settled]
            self._judge(suspects, pending, refused)
        except SessionLost:
            self._failed_at = self._clock()
            self.close()
            raise

    def _judge(
        self,
        suspects: Mapping[int, SessionLost],
        pending: Mapping[int, Message],
        refused: MutableMapping[int, str],
    ) -> None:
        """Raise the loss by the first suspect, unless it has been the first for too often."""
        if not suspects:
            return
        first, loss = next(iter(suspects.items()))
        message_id = pending[first].message_id
        self._suspected = self._suspected + 1 if message_id == self._suspect else 1
        self._suspect = message_id
        if self._suspected < MAX_ATTEMPTS:
            raise loss
        refused[first] = f"{self.name}: {loss}"
        if len(suspects) > 1:
            raise loss

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._sender:
            self._sender.close()
        self._sender, self._refused_at = None, None

    def _open_session(self, deadline: Deadline) -> SendingSession:
        """A session with the first address that accepts us; raises SessionLost."""
        broker, target = self._broker, self._target
        try:
            proxy = self._proxy()
            ips = [broker.host]  # a proxy resolves it
            if proxy is None:
                ips = self._resolver.ips_of(broker.host, broker.port, deadline)
            password = self._password()
        except (OSError, ConfigError) as error:
            raise SessionLost(error_text(error)) from error
        certificate = self._files.certificate_file if broker.tls else None
        loss = SessionLost("its name has no address")
        for number, ip in enumerate(ips):
            share = deadline.share(len(ips) - number)
            try:
                channel = open_connection(broker, (ip, broker.port), proxy, share)
                if broker.tls:
                    channel = secure(channel, broker, self._files, self._context)
                return SendingSession(
                    channel, target.user, password, certificate, share, target.vhost
                )
            except (OSError, ConfigError) as error:
                loss = SessionLost(error_text(error))
                loss.__cause__ = error
            except SessionLost as error:
                loss = error
        raise loss


def _beginning(waiting: Sequence[int], pending: Mapping[int, Message]) -> list[int]:
    """The first positions, for one call."""
    batch: list[int] = []
    size = 0
    for position in islice(waiting, BATCH):
        batch.append(position)
        size += len(pending[position].body)
        if size >= BATCH_BYTES:
            break
    return batch


def login_trip(broker: Broker, config: ConsumerConfig) -> RoundTrip:
    """Whether a relay can log in at the broker; nothing is sent."""

    def prove() -> str:
        with closing(BrokerLink(broker, config)) as link:
            try:
                link.connect()
            except SessionLost as loss:
                raise SessionLost(f"--to {broker}: {loss}") from loss
        return PROVEN

    proxy = None
    with suppress(ConfigError):  # reported by `prove`
        proxy = config.target_of(broker).find_proxy()
    return timed(broker, str(proxy or ""), "", prove, SessionLost)
