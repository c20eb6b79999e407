"""Round trips from a broker to the consumer."""

from __future__ import annotations

import pytest

from sam_pipeline.consumer.sources.stomp.link import StompSettings
from sam_pipeline.consumer.sources.stomp.round_trip import round_trips, sent_to
from sam_pipeline.consumer.sources.stomp.session import Subscription
from sam_pipeline.schema.messages.foreign import make_stamp
from sam_pipeline.schema.net.broker_url import parse_broker
from tests.support.brokers.fake_broker import FakeBroker, closed_port

ACTIVEMQ = "ActiveMQ/6.3.1"
METRICS = Subscription("/topic/grid.probe.metricOutput", make_stamp("metricOutput"), 100)


@pytest.mark.parametrize(
    ("destination", "covered"),
    [
        ("/topic/grid.probe.metricOutput", "/topic/grid.probe.metricOutput"),
        ("/topic/grid.probe.*", "/topic/grid.probe.sam-check"),
        ("/topic/grid.*.metricOutput", "/topic/grid.sam-check.metricOutput"),
        ("/topic/*.*", "/topic/sam-check.sam-check"),
        ("/topic/grid.>", "/topic/grid.sam-check"),
        ("/topic/grid.#", "/topic/grid.sam-check"),
        ("/topic/a*b.c#", "/topic/a*b.c#"),
    ],
)
def test_a_check_uses_a_destination_that_the_wildcard_matches(
    destination: str, covered: str
) -> None:
    assert sent_to(destination) == covered


def test_each_destination_is_checked_on_a_subscription_that_ends_with_the_connection() -> None:
    with FakeBroker(server=ACTIVEMQ) as broker:
        settings = StompSettings("site-a", (METRICS, METRICS), client_id="site-a-check-1")

        trips = list(round_trips(parse_broker(broker.url), settings))

    assert [trip.proven for trip in trips] == ["round trip"] * 2
    # A broker may not have forgotten the last session when the next one begins.
    client_ids = [login.headers["client-id"] for login in broker.logins]
    assert len(set(client_ids)) == 2
    assert all(client_id.startswith("site-a-check-1-") for client_id in client_ids)
    assert {frame.headers["messageClass"] for frame in broker.taken} == {"sam-check"}
    assert not any("activemq.subscriptionName" in frame.headers for frame in broker.subscriptions)


@pytest.mark.parametrize(
    ("vouches", "stem"), [(True, "publishers can set JMSXUserID"), (False, "")]
)
def test_a_broker_that_lets_publishers_name_other_users_must_not_vouch(
    vouches: bool, stem: str
) -> None:
    with FakeBroker(server=ACTIVEMQ) as broker:
        names = (str(parse_broker(broker.url)),) * vouches
        settings = StompSettings("site-a", (METRICS,), vouches=names)

        (trip,) = round_trips(parse_broker(broker.url), settings)

    assert stem in (trip.problem or "")
    assert (trip.proven is None) == vouches


def test_an_unreachable_broker_is_a_problem_of_each_destination() -> None:
    broker = parse_broker(f"stomp://127.0.0.1:{closed_port()}")

    (trip,) = round_trips(broker, StompSettings("site-a", (METRICS,)))

    assert (trip.proven, "connection refused" in str(trip.problem)) == (None, True)
