"""Brokers that are killed or full, disconnect a slow consumer, or speak TLS: nothing is lost."""

from __future__ import annotations

import itertools
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from sam_pipeline.schema.messages.message import Message
from tests.services import needed
from tests.services.activemq import ActiveMQRules, running_activemq
from tests.services.broker import Rules, StompServer
from tests.services.brokers import BROKERS
from tests.services.postgres import fresh_database, running_postgres
from tests.services.rabbitmq import RabbitMQRules, RabbitMQServer, running_rabbitmq
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
from tests.support.consumer.faults import WAITING
from tests.support.consumer.load import offering
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import subscribe
from tests.support.waiting import eventually

BACK_WITHIN_S = 30.0
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


def test_a_consumer_whose_name_was_taken_during_an_outage_of_the_database_stops(
    tmp_path: Path, rabbitmq: RabbitMQServer, destination: str
) -> None:
    with needed(running_postgres()) as postgres:
        url = fresh_database(postgres)
        site = site_of(tmp_path, [rabbitmq.url], Subscription(destination), database=url)
        with running(site) as first:
            first.wait_until_subscribed(rabbitmq.url)
            postgres.kill()
            publish(rabbitmq.host, rabbitmq.port, destination, numbered("one", range(1)))
            first.wait_for(WAITING)
            first.process.send_signal(signal.SIGSTOP)
            postgres.restart()
            # As on another machine, where the lock of the first one does not exist.
            other = replace(site, state="state-elsewhere")
            with running(other, log="elsewhere.log") as second:
                second.wait_until_subscribed(rabbitmq.url)
                first.process.send_signal(signal.SIGCONT)

                assert first.process.wait(60) == 69
                assert first.lines("another sam-consume", f" {second.process.pid}")


@pytest.mark.parametrize("kind", BROKERS)
def test_a_renewed_certificate_is_used_at_the_next_connection_and_messages_are_loaded(
    tmp_path: Path, destination: str, kind: str
) -> None:
    files = TlsFiles(tmp_path)

    def certificate(ours: object) -> dict[str, Path]:
        return {
            "certificate_file": files.certificate_file(ours),  # type: ignore[arg-type]
            "key_file": files.key_file(ours),  # type: ignore[arg-type]
        }

    keys = certificate(files.foreign_client())
    with needed(BROKERS[kind](Rules(files.host_certificate()))) as broker:
        url = broker.tls_url
        site = site_of(tmp_path, [url], Subscription(destination), ca_file=files.ca_file, **keys)
        with running(site) as daemon:
            (line, *_) = daemon.wait_for(LOST, url)
            certificate(files.client())  # into the same files
            daemon.wait_until_subscribed(url)
            publish(broker.host, broker.port, destination, numbered("tls", range(500)))
            site.wait_for_rows(500)
            assert daemon.stop().code == 0

    assert f"certificate {keys['certificate_file']}: " in line
    consumed([f"tls-{number}" for number in range(500)], row_keys(site))
