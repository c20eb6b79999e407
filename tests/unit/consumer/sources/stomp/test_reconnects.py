"""Each session that replaces a lost one is counted."""

from __future__ import annotations

import threading
from itertools import repeat

from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.sources.stomp.link import StompLink, StompSettings
from sam_pipeline.consumer.sources.stomp.session import Subscription
from sam_pipeline.schema.messages.foreign import Stamp
from sam_pipeline.schema.net.broker_url import parse_broker
from tests.support.brokers.fake_broker import FakeBroker, wait_for
from tests.support.brokers.fault_proxy import FaultProxy


def test_a_session_after_a_lost_one_is_a_reconnect() -> None:
    settings = StompSettings("site-a", (Subscription("/topic/a", Stamp()),))
    inbox, stop = Inbox(10), threading.Event()
    with (
        FakeBroker(server="ActiveMQ/6.0") as broker,
        FaultProxy(parse_broker(broker.url).port) as proxy,
    ):
        url = parse_broker(proxy.url)
        link = StompLink(url, (url.host, url.port), settings, lambda: repeat(0.01), lambda: True)
        thread = threading.Thread(target=link.run, args=(inbox, stop))
        thread.start()
        try:
            wait_for(lambda: not link.problem)
            assert inbox.reconnects == {}

            proxy.cut()
            wait_for(lambda: inbox.reconnects == {str(url): 1})
            wait_for(lambda: not link.problem)
        finally:
            stop.set()
            thread.join(10)
    assert broker.connections == 2
