"""Artemis 2.56 silently stops a subscription after a message with an impossible priority."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from sam_pipeline.consumer.core.inbox import BatchRule, Inbox, acknowledge
from sam_pipeline.consumer.sources.stomp import session as stomp_session
from sam_pipeline.consumer.sources.stomp.link import StompSettings
from sam_pipeline.consumer.sources.stomp.session import Subscription
from sam_pipeline.consumer.sources.stomp.source import StompSource
from sam_pipeline.schema.messages.foreign import Stamp
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.broker_url import parse_broker
from tests.services.artemis import ArtemisServer
from tests.support.builders import metric_message
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import eventually

QUIET_S = 1.0
WAIT_S = 20.0


@pytest.mark.parametrize("shared", [False, True])
def test_messages_behind_one_that_stops_the_subscription_arrive(
    artemis: ArtemisServer, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    monkeypatch.setattr(stomp_session, "QUIET_S", QUIET_S)
    stopped, busy = (f"/topic/{name}.{uuid.uuid4().hex}" for name in ("stopped", "busy"))
    good = [metric_message() for _ in range(4)]

    with arriving(artemis, (stopped, busy), shared) as ids:
        send(artemis, stopped, good[0])
        eventually(lambda: good[0].message_id in ids, WAIT_S)
        send(artemis, stopped, metric_message(priority="99"))
        send(artemis, stopped, *good[1:])

        def all_arrived() -> bool:
            send(artemis, busy, metric_message())
            time.sleep(QUIET_S / 5)
            return {message.message_id for message in good} <= set(ids)

        eventually(all_arrived, WAIT_S)


@contextmanager
def arriving(
    artemis: ArtemisServer, destinations: Sequence[str], shared: bool
) -> Iterator[list[str]]:
    """The ids of the messages that a consumer has received and acknowledged so far."""
    subscriptions = tuple(Subscription(name, Stamp(), 100, shared) for name in destinations)
    settings = StompSettings(f"consumer-{uuid.uuid4().hex}", subscriptions)
    source = StompSource(parse_broker(artemis.url), settings)
    inbox, stop, ids = Inbox(1000), threading.Event(), list[str]()

    def load() -> None:
        while not stop.is_set():
            batch = inbox.take(BatchRule(100, 0.1), 0.1)
            ids.extend(delivery.message.message_id for delivery in batch)
            acknowledge(batch)

    threads = [threading.Thread(target=source.run, args=(inbox, stop))]
    threads.append(threading.Thread(target=load))
    for thread in threads:
        thread.start()
    try:
        eventually(lambda: not source.missing(), WAIT_S)
        yield ids
    finally:
        stop.set()
        for thread in threads:
            thread.join(WAIT_S)


def send(artemis: ArtemisServer, destination: str, *messages: Message) -> None:
    publish(artemis.host, artemis.port, destination, messages)
