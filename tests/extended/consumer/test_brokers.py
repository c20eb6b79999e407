"""Brokers that are killed or full, disconnect a slow consumer, or speak TLS: nothing is lost.

With longer rounds of kills than in tests/acceptance/consumer, which also hit the brokers.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from sam_pipeline.consumer.core.state import NOT_STORING
from sam_pipeline.schema.messages.message import Message
from tests.services import needed
from tests.services.activemq import ActiveMQRules, running_activemq
from tests.services.broker import Rules, StompServer
from tests.services.brokers import BROKERS
from tests.services.rabbitmq import RabbitMQRules, RabbitMQServer, running_rabbitmq
from tests.soak.events import FREEZE_BROKER, KILL_ALL, KILL_IN_OUTAGE, RELOAD, Event
from tests.soak.stage import standing
from tests.soak.window import Soak, missing_answers
from tests.support.brokers.tls_files import TlsFiles
from tests.support.conservation import consumed, key_of, numbered
from tests.support.consumer.daemon import (
    LOST,
    SUBSCRIBED,
    Subscription,
    locked,
    row_keys,
    running,
    settled_row_keys,
    site_of,
)
from tests.support.consumer.faults import SHORT_WAITS, WAITING, another_writer
from tests.support.consumer.load import offering
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import subscribe
from tests.support.waiting import eventually

BACK_WITHIN_S = 30.0
FAULTS = [Event(name, 1.0, 6) for name in (KILL_IN_OUTAGE, FREEZE_BROKER, RELOAD, KILL_ALL)]
ACK_TIMEOUT_S = 3.0


@pytest.fixture
def destination() -> str:
    return f"/topic/grid.probe.{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def rabbitmq() -> Iterator[RabbitMQServer]:
    """One that waits for acks for a short time only."""
    with needed(running_rabbitmq(RabbitMQRules(ack_timeout_s=ACK_TIMEOUT_S))) as server:
        yield server


def send(broker: StompServer, destination: str, messages: list[Message]) -> list[str]:
    publish(broker.host, broker.port, destination, messages, timeout_s=2.0)
    return [key_of(message.body) for message in messages]


def test_brokers_killed_in_turn_under_load_lose_nothing_and_are_soon_reconnected(
    tmp_path: Path, destination: str
) -> None:
    with ExitStack() as stack:
        brokers = [stack.enter_context(needed(start())) for start in BROKERS.values()]
        site = site_of(tmp_path, [broker.url for broker in brokers], Subscription(destination))
        with running(site) as daemon:
            daemon.wait_until_subscribed(*(broker.url for broker in brokers))
            with ExitStack() as offers:
                loads = [offers.enter_context(offering(one, destination)) for one in brokers]
                for load in loads:
                    load.wait_for_more()
                    times = len(daemon.lines(load.broker.url, SUBSCRIBED)) + 1
                    load.broker.restart()
                    daemon.wait_until_subscribed(
                        load.broker.url, times=times, within_s=BACK_WITHIN_S
                    )
            accepted = [key for load in loads for key in load.accepted]
            consumed(accepted, settled_row_keys(site, accepted))
            assert daemon.stop().code == 0

    consumed(accepted, row_keys(site))
    assert all(load.again for load in loads), "each broker was killed while messages were in flight"


@pytest.mark.parametrize("kind", BROKERS)
def test_a_broker_killed_twelve_times_while_the_database_is_away_loses_nothing(
    tmp_path: Path, destination: str, kind: str
) -> None:
    messages = numbered("outage", range(20))
    with needed(BROKERS[kind]()) as broker:
        site = site_of(tmp_path, [broker.url], Subscription(destination))
        site.edit("sam.db", f"sam.db?{SHORT_WAITS['sqlite']}")
        with running(site) as daemon:
            daemon.wait_until_subscribed(broker.url)
            with another_writer(site):
                accepted = send(broker, destination, messages)
                daemon.wait_for(WAITING)
                for _ in range(12):
                    broker.restart()
                    eventually(lambda: NOT_STORING in str(site.status()["brokers"]))
            site.wait_for_rows(20)
            assert daemon.stop().code == 0
        assert site.drain().code == 0

    consumed(accepted, row_keys(site))


def test_kills_of_consumer_servlet_brokers_and_database_lose_and_duplicate_nothing(
    tmp_path: Path,
) -> None:
    """A sample of `make soak`, under a load of `sam-publish` and HTTP clients."""
    with needed(standing(tmp_path)) as stage:
        soak = Soak(stage, rate=100.0, seed=6)
        window, reading = soak.window(0, ("artemis", "rabbitmq"), iter(FAULTS), 600.0)
        last = soak.last(window)
        exits = stage.stop_publishers()

    print(reading)
    assert [*reading.problems, *last.problems, *exits, *missing_answers(window.ledger)] == []
    assert window.faults.total() == len(FAULTS)
    assert len(window.ledger.accepted) > 10 * reading.letters > 0


def test_a_full_broker_is_drained_and_accepts_messages_again(
    tmp_path: Path, destination: str
) -> None:
    with needed(running_activemq(ActiveMQRules(when_full="fails"))) as broker:
        site = site_of(tmp_path, [broker.url], Subscription(destination))
        subscribe(broker, site.name, destination)
        accepted: list[str] = []
        with suppress(OSError):
            for at in itertools.count(step=20):
                chunk = numbered("fill", range(at, at + 20), detailsData="x" * 20_000)
                accepted += send(broker, destination, chunk)

        def accepts_again() -> bool:
            with suppress(OSError):
                accepted.extend(send(broker, destination, numbered("again", range(20))))
                return True
            return False

        with running(site) as daemon:
            site.wait_for_rows(len(accepted))
            eventually(accepts_again)
            eventually(lambda: set(accepted) <= set(row_keys(site)))
            assert daemon.stop().code == 0

    consumed(accepted, row_keys(site), uncertain=[key_of(message.body) for message in chunk])


def test_a_consumer_disconnected_by_rabbitmq_for_late_acks_reconnects_and_loses_nothing(
    tmp_path: Path, postgres_url: str, rabbitmq: RabbitMQServer, destination: str
) -> None:
    site = site_of(tmp_path, [rabbitmq.url], Subscription(destination), database=postgres_url)
    with running(site) as daemon:
        daemon.wait_until_subscribed(rabbitmq.url)
        with locked(postgres_url, "metric_result"):
            accepted = send(rabbitmq, destination, numbered("stalled", range(500)))
            began = time.monotonic()
            daemon.wait_for(LOST, "timed out")
            daemon.wait_until_subscribed(rabbitmq.url, times=2)
            took_s = time.monotonic() - began
        site.wait_for_rows(500)
        accepted += send(rabbitmq, destination, numbered("after", range(100)))
        site.wait_for_rows(600)

        assert len(daemon.lines(LOST)) <= 1 + took_s / ACK_TIMEOUT_S, "reconnects too often"
        assert daemon.stop().code == 0
    consumed(accepted, row_keys(site))


@pytest.mark.parametrize("kind", BROKERS)
def test_a_renewed_certificate_is_used_at_the_next_connection_and_messages_are_loaded(
    tmp_path: Path, destination: str, kind: str
) -> None:
    files = TlsFiles(tmp_path)
    foreign, ours = files.foreign_client(), files.client()
    keys = {
        "certificate_file": files.certificate_file(foreign),
        "key_file": files.key_file(foreign),
    }
    with needed(BROKERS[kind](Rules(files.host_certificate()))) as broker:
        url = broker.tls_url
        site = site_of(tmp_path, [url], Subscription(destination), ca_file=files.ca_file, **keys)
        with running(site) as daemon:
            (line, *_) = daemon.wait_for(LOST, url)
            files.certificate_file(ours)
            files.key_file(ours)
            daemon.wait_until_subscribed(url)
            publish(broker.host, broker.port, destination, numbered("tls", range(500)))
            site.wait_for_rows(500)
            assert daemon.stop().code == 0

    assert f"certificate {keys['certificate_file']}: " in line
    consumed([f"tls-{number}" for number in range(500)], row_keys(site))
