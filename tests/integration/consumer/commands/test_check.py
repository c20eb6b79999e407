"""`sam-consume check --connect` against real brokers: round trips to the consumer."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests.services.activemq import ActiveMQServer
from tests.services.broker import StompServer
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.fake_broker import FakeBroker, closed_port
from tests.support.brokers.queue_reader import ids, received
from tests.support.brokers.tls_files import TlsFiles
from tests.support.conservation import numbered
from tests.support.consumer.daemon import Subscription, checked, row_keys, running, site_of
from tests.support.consumer.publisher import publish


@pytest.fixture
def name() -> str:
    return f"grid.probe.{uuid.uuid4().hex}"


def test_every_topic_passes_a_round_trip_beside_a_running_consumer(
    tmp_path: Path, broker: StompServer, name: str
) -> None:
    """The consumer counts the messages of the check and loads none of them."""
    subscriptions = [Subscription(f"/topic/{name}"), Subscription(f"/topic/{name}.*", "downtime")]
    site = site_of(tmp_path, [broker.url], *subscriptions)
    with running(site) as daemon:
        daemon.wait_until_subscribed(broker.url)
        code, document = checked(site)
        publish(broker.host, broker.port, f"/topic/{name}", numbered("after", range(5)))
        site.wait_for_rows(5)
        stopped = daemon.stop()

    assert document["problems"] == []
    assert code == 0
    assert [trip["proven"] for trip in document["brokers"]] == ["round trip"] * 2
    assert [trip["destination"] for trip in document["brokers"]] == [
        subscription.destination for subscription in subscriptions
    ]
    assert all(0 < trip["seconds"] < 10 for trip in document["brokers"])
    assert [trip["anybody_may_publish"] for trip in document["brokers"]] == [True, True]
    assert ["anybody may publish" in note for note in document["notes"]] == [False, True, True]
    assert "2 checks" in daemon.log
    assert stopped.messages == 7
    assert len(row_keys(site)) == 5


def test_a_topic_where_anybody_may_publish_is_noted_by_a_consumer_with_a_login(
    tmp_path: Path, broker: StompServer, name: str
) -> None:
    password = tmp_path / "password"
    password.write_text(broker.password)
    password.chmod(0o600)
    subscriptions = Subscription(f"/topic/{name}"), Subscription(f"/queue/{name}")
    site = site_of(tmp_path, [broker.url_with_user], *subscriptions, password_file=password)

    code, document = checked(site)

    assert code == 0
    no_policy, note = document["notes"]
    assert "there is no policy" in no_policy
    assert note.startswith(f"{broker.url}: anybody may publish here: ")
    assert f"/topic/{name}" in note


def test_a_check_does_not_consume_messages_from_a_queue(
    tmp_path: Path, broker: StompServer, name: str
) -> None:
    waiting = numbered("standing", range(3))
    publish(broker.host, broker.port, f"/queue/{name}", waiting)
    site = site_of(tmp_path, [broker.url], Subscription(f"/queue/{name}"))

    codes = {checked(site)[0] for _ in range(2)}

    assert codes == {0}
    assert ids(received(broker, f"/queue/{name}", 3)) == [message.message_id for message in waiting]


@pytest.mark.parametrize(
    ("destination", "stem"),
    [
        ("/amq/queue/nosuch", "NOT_FOUND - no queue 'nosuch'"),
        ("/exchange/nosuch/key", "NOT_FOUND - no exchange 'nosuch'"),
    ],
)
def test_a_missing_rabbitmq_destination_is_a_problem(
    tmp_path: Path, rabbitmq: RabbitMQServer, destination: str, stem: str
) -> None:
    site = site_of(tmp_path, [rabbitmq.url], Subscription(destination))

    code, document = checked(site)

    assert code == 78
    (problem,) = document["problems"]
    assert problem.startswith(f"broker {rabbitmq.url}: {destination}: ")
    assert stem in problem


def test_every_problem_of_brokers_classes_and_files_is_reported_at_once(
    tmp_path: Path, activemq: ActiveMQServer, name: str
) -> None:
    dead, key = f"stomp://127.0.0.1:{closed_port()}", own_key(tmp_path)
    subscriptions = [
        Subscription(f"/topic/{name}", "fireDrill"),
        Subscription(f"/topic/{name}.other", "downtime"),
    ]
    site = site_of(tmp_path, [dead, activemq.url], *subscriptions, key_file=key)
    site.execute("DROP TRIGGER downtime_insert")

    code, document = checked(site)

    text = "\n".join(document["problems"])
    assert code == 78
    assert [bool(trip["proven"]) for trip in document["brokers"]] == [False, False, True, True]
    assert text.count("\n") == 4
    assert "without certificate_file" in text
    assert f"subscription /topic/{name}: class fireDrill: " in text
    assert "class downtime: view downtime has no" in text
    assert text.count(f"broker {dead}: ") == text.count("connection refused") == 2


def own_key(directory: Path) -> Path:
    files = TlsFiles(directory)
    return files.key_file(files.client())


def test_a_broker_that_confirms_but_does_not_deliver_is_a_problem(
    tmp_path: Path, name: str
) -> None:
    with FakeBroker(server="ActiveMQ/6", loses=True) as broker:
        site = site_of(tmp_path, [broker.url], Subscription(f"/topic/{name}"))

        code, document = checked(site)

    assert code == 78
    assert "did not arrive within" in document["problems"][0]
