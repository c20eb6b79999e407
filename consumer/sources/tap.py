"""A look at the messages of all sources: none is stored or acknowledged, and no broker waits."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from datetime import timedelta

from sam_pipeline.consumer.core.inbox import BatchRule, Delivery, Inbox, Session
from sam_pipeline.consumer.core.source import Source, delivering
from sam_pipeline.consumer.errors import SourceUnreachable, SubscriptionRefused
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.consumer.sources.make import stomp_settings
from sam_pipeline.consumer.sources.signatures import SignatureCheck
from sam_pipeline.consumer.sources.spool import POLL_S, SpoolSource
from sam_pipeline.consumer.sources.stomp.dialects import BrokerDialect, subscribe_headers
from sam_pipeline.consumer.sources.stomp.records import BrokerRecords
from sam_pipeline.consumer.sources.stomp.session import Address, ConsumingSession, Subscription
from sam_pipeline.consumer.sources.stomp.source import StompSource
from sam_pipeline.schema.errors import SpoolError
from sam_pipeline.schema.identity.policy import Policy
from sam_pipeline.schema.messages.destination import QUEUES, forwarding_destination
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker import LISTEN, SPOOL
from sam_pipeline.schema.net.stomp.frame import Fault, Frame
from sam_pipeline.schema.net.stomp.session import SessionLost
from sam_pipeline.schema.spool.disk import inaccessible
from sam_pipeline.schema.spool.large_element import read_limited

MAX_MESSAGES = 1000
"""Messages that wait until they are printed; further ones are left out."""
MAX_BYTES = 16 * 1024 * 1024
IDLE_S = 0.2
"""How often a tap without messages checks whether to go on."""
QUIET_S = 1.0
"""The tap ends when everything was read and nothing has arrived for this time."""
_RULE = BatchRule(size=100, age_s=0.0)

SELECTOR = "selector"
"""The configured header of SUBSCRIBE that also applies to a tap; others describe queues."""
BROWSER_END = ("browser", "end")
"""The header of the MESSAGE with which ActiveMQ ends a browsed queue."""

logger = logging.getLogger(__name__)


class TapInbox(Inbox):
    """An inbox that holds up no broker: without room it leaves messages out, and counts them."""

    def __init__(
        self,
        wanted: Callable[[Message], bool] = lambda message: True,
        max_messages: int = MAX_MESSAGES,
    ) -> None:
        """Messages that are not `wanted` are neither delivered nor counted."""
        super().__init__(max_messages, MAX_BYTES)
        self._wanted = wanted
        self.left_out = 0
        """The number of messages for which there was no room."""
        self.reached: set[Session] = set()
        """The sessions that deliver at present."""
        self.exhausted: set[Session] = set()
        """The sessions that have delivered everything and will deliver no more."""

    def has_room_for(self, broker: str) -> bool:
        return True

    def put(self, deliveries: Sequence[Delivery], head_bytes: int = 0) -> None:
        wanted = [delivery for delivery in deliveries if self._wanted(delivery.message)]
        if self.has_room:
            super().put(wanted, head_bytes)
        else:
            self.left_out += len(wanted)

    def discard(self, session: Session) -> None:
        """The session is lost; its broker does not deliver its messages again."""
        self.reached.discard(session)
        self.exhausted.discard(session)


def passing(
    sources: Sequence[Source],
    inbox: TapInbox,
    goes_on: Callable[[], bool],
    patience_s: float,
) -> Generator[Delivery]:
    """The messages that pass, while `goes_on()`; it is asked at least every IDLE_S.

    It also ends when all sources have delivered everything there is.

    Raises:
        SourceUnreachable: no source could be read for as long as the patience lasts.
    """
    with delivering(sources, inbox):
        reached_at = arrived_at = time.monotonic()
        while goes_on():
            batch = inbox.take(_RULE, IDLE_S)
            yield from batch
            now = time.monotonic()
            if inbox.reached:
                reached_at = now
            if batch or inbox.reached - inbox.exhausted:
                arrived_at = now
            missing = [problem for source in sources for problem in source.missing()]
            if missing and now - reached_at >= patience_s:
                raise SourceUnreachable(missing, patience_s)
            if inbox.exhausted and now - arrived_at >= (patience_s if missing else QUIET_S):
                return


def make_taps(config: ConsumerConfig, policy: Policy | None) -> list[Source]:
    """One source per configured broker.

    An HTTP door has none: nobody but the daemon itself sees the messages that it receives.
    """
    signatures = SignatureCheck(policy, timedelta(days=config.signature_age_days))
    # A broker refuses a second client with the id of the daemon, or gives it half of the messages.
    client_id = f"{config.name or 'sam'}-tap-{secrets.token_hex(4)}"
    owners: dict[Address, str] = {}
    taps: list[Source] = []
    for broker in config.brokers:
        if broker.kind == LISTEN:
            text = "%s is left out: only the daemon sees the messages that it receives over HTTP"
            logger.warning(text, broker)
        elif broker.kind == SPOOL:
            taps.append(SpoolTap(broker, config, signatures))
        else:
            settings = replace(
                stomp_settings(config, client_id, broker),
                consumer=client_id,
                session=TapSession,
                signatures=signatures,
                is_last_attempt=lambda broker, message_id: True,
            )
            taps.append(StompSource(broker, settings, owners=owners))
    return taps


class SpoolTap(SpoolSource):
    """Delivers all elements, oldest first, and then those that are added.

    They are read, but neither locked nor removed.
    """

    def run(self, inbox: Inbox, stop: threading.Event) -> None:
        assert isinstance(inbox, TapInbox)
        seen: set[str] = set()
        while not stop.is_set():
            try:
                if not self._queue.path.is_dir():
                    raise SpoolError(f"{self._queue.path}: no such directory")
                self._blocked.clear()
                names = list(self._queue.names())
            except SpoolError as error:
                inbox.discard(self)
                self._report(str(error), error)
            else:
                inbox.reached.add(self)
                if self._blocked:
                    problem = inaccessible(self._queue.path, self._blocked)
                    self._report(problem, *self._blocked.values())
                else:
                    self._report("")
                seen.intersection_update(names)
                for name in names:
                    if name not in seen and not self._show(name, inbox, stop):
                        return
                    seen.add(name)
            stop.wait(POLL_S)

    def _show(self, name: str, inbox: TapInbox, stop: threading.Event) -> bool:
        """Deliver an element when there is room, if it can be read; False after a stop."""
        while not inbox.has_room:
            if stop.wait(POLL_S):
                return False
        try:
            message, author = read_limited(self._queue, name, self._config.max_message_bytes)
        except SpoolError as error:
            if not isinstance(error.__cause__, FileNotFoundError):  # else a consumer was faster
                logger.warning("spool %s: %s", self.name, error, extra={"broker": self.name})
            return True
        inbox.put([Delivery(self._received(message, author, inbox), self, name)])
        return not stop.is_set()


def tap_headers(
    dialect: BrokerDialect, subscription: Subscription, prefetch: int
) -> dict[str, str]:
    """The headers of SUBSCRIBE, without `id`, that take no message from any consumer.

    Instead of a queue that the broker fills for a subscription, they name its topic.

    Raises:
        SubscriptionRefused: that is not possible at this destination.
    """
    destination = subscription.destination
    topic = forwarding_destination(destination)
    if dialect.queue_separator:
        topic = topic.partition(dialect.queue_separator)[0]
    if dialect.composite and dialect.composite in topic:
        raise SubscriptionRefused(destination, "several destinations at once are not tapped")
    headers = {
        **{key: value for key, value in subscription.headers.items() if key.lower() == SELECTOR},
        **subscribe_headers(dialect, "", topic, prefetch, durable=False),
    }
    if not topic.startswith(QUEUES):
        return {**headers, **dialect.copies, "ack": "auto"}
    if dialect.browses:
        return {**headers, **dialect.browses, "ack": "auto"}
    broker = dialect.server.rstrip("/")
    reason = f"{broker} can't show the messages of a queue without taking them from its consumers"
    raise SubscriptionRefused(destination, reason)


class TapSession(ConsumingSession):
    """A session whose subscriptions end with it, and which acknowledges nothing.

    The broker sends a copy of each message to a topic. From a queue it would send the messages
    themselves, so a queue is only browsed, where the broker can do that.
    """

    _inbox: TapInbox

    def subscribe(
        self, subscriptions: Sequence[Subscription], records: BrokerRecords | None = None
    ) -> None:
        """Subscribe to the destinations that can be tapped; raises SessionLost if none can be.

        They are not recorded: the broker stores nothing for them.
        """
        self._ack_id = "subscription"  # without acks, messages have no `ack`
        possible: list[Subscription] = []
        refusals: list[SubscriptionRefused] = []
        for subscription in subscriptions:
            try:
                tap_headers(self._dialect, subscription, 1)
                possible.append(subscription)
            except SubscriptionRefused as refused:
                refusals.append(refused)
        if not possible:
            raise SessionLost("; ".join(map(str, refusals)))
        for refusal in refusals:
            logger.warning("broker %s: %s", self.broker, refusal, extra={"broker": self.broker})
        self._browsed = {
            str(number)
            for number, item in enumerate(possible)
            if forwarding_destination(item.destination).startswith(QUEUES)
        }
        self._is_finite = len(self._browsed) == len(possible)
        super().subscribe(possible)
        self._inbox.reached.add(self)

    def _subscribe_headers(self, subscription: Subscription, prefetch: int) -> dict[str, str]:
        return tap_headers(self._dialect, subscription, prefetch)

    def _deliver(self, messages: Sequence[Frame | Fault]) -> None:
        key, end = BROWSER_END
        ended = [frame for frame in messages if frame.headers.get(key) == end and not frame.body]
        if ended and self._browsed:
            messages = [frame for frame in messages if frame not in ended]
            self._browsed -= {frame.headers.get("subscription", "") for frame in ended}
            if self._is_finite and not self._browsed:
                self._inbox.exhausted.add(self)
        super()._deliver(messages)
        self._acked = self._delivered  # so that the session does not wait for acks
