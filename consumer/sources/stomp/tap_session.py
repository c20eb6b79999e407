"""A STOMP session that only looks: its subscriptions end with it, and nothing is acknowledged.

The broker sends a copy of each message to a topic. From a queue it would send the messages
themselves, so a queue is only browsed, where the broker can do that.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sam_pipeline.consumer.core.tap import TapInbox
from sam_pipeline.consumer.errors import SubscriptionRefused
from sam_pipeline.consumer.sources.stomp.dialects import BrokerDialect, subscribe_headers
from sam_pipeline.consumer.sources.stomp.records import BrokerRecords
from sam_pipeline.consumer.sources.stomp.session import ConsumingSession, Subscription
from sam_pipeline.schema.messages.destination import QUEUES, forwarding_destination
from sam_pipeline.schema.net.stomp.frame import Fault, Frame
from sam_pipeline.schema.net.stomp.session import SessionLost

SELECTOR = "selector"
"""The configured header of SUBSCRIBE that also applies to a tap; others describe queues."""
BROWSER_END = ("browser", "end")
"""The header of the MESSAGE with which ActiveMQ ends a browsed queue."""

logger = logging.getLogger(__name__)


def tap_headers(
    dialect: BrokerDialect, subscription: Subscription, prefetch: int
) -> dict[str, str]:
    """The headers of SUBSCRIBE, without `id`, with which no message is taken from anybody.

    Instead of a queue that the broker fills for a subscription, they name its topic.

    Raises:
        SubscriptionRefused: that is not possible at this destination.
    """
    destination = subscription.destination
    topic = forwarding_destination(destination)
    if dialect.queue_separator:
        topic = topic.partition(dialect.queue_separator)[0]
    if dialect.is_composite(topic):
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
    """Delivers to a TapInbox."""

    _inbox: TapInbox

    def subscribe(
        self,
        consumer: str,
        subscriptions: Sequence[Subscription],
        records: BrokerRecords | None = None,
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
        super().subscribe(consumer, possible)
        self._inbox.reached.add(self)

    def _subscribe_headers(
        self, consumer: str, subscription: Subscription, prefetch: int
    ) -> dict[str, str]:
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
