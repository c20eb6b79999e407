"""Every source in front of every sink: STOMP, spool and HTTP; database, broker and spool."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.schema.identity.identity import IDENTITY
from sam_pipeline.schema.messages.message import DESTINATION, MESSAGE_ID, Message
from sam_pipeline.schema.net.stomp.headers import REJECTED
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services.activemq import ActiveMQServer
from tests.services.artemis import ArtemisServer
from tests.services.broker import StompServer
from tests.services.process import free_ports, port_is_open
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.queue_reader import ids, received
from tests.support.brokers.subscriber import subscribed
from tests.support.consumer.daemon import Subscription, running, site_of
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, eventually, fill_spool, make_site, results, subscribe

COUNT = 60
DATABASE, BROKER, SPOOL = "database", "broker", "spool"
STORED = {DATABASE: 200, BROKER: 202, SPOOL: 202}
"""The status of an answer over HTTP."""
ODD = {"x-note": "a:b\\c\nd", "samKey": "nobody", "samSignature": "AAAA"}
"""Headers of a publisher: escapes, and a signature whose key nobody knows."""
ODD_BODIES = (b"hostName: a\0b\nEOT\n", b"\xff\xfe", "Zürich\n".encode(), b"")


@pytest.mark.parametrize("sink", [DATABASE, BROKER, SPOOL])
def test_every_source_fits_every_sink(
    tmp_path: Path, activemq: ActiveMQServer, rabbitmq: RabbitMQServer, sink: str
) -> None:
    queue, out = f"/queue/{uuid.uuid4().hex}", tmp_path / "out"
    (port,) = free_ports(1)
    sources = [activemq.url, f"spool://{tmp_path}/in", f"listen+http://127.0.0.1:{port}"]
    site = site_of(tmp_path, sources, Subscription(queue))
    over_stomp, in_spool, over_http = (results(COUNT, f"org.sam.{n}") for n in range(3))
    target = {DATABASE: [], BROKER: ["--to", rabbitmq.url], SPOOL: ["--to", f"spool://{out}"]}
    everything = [*over_stomp, *in_spool, *over_http]

    publish(activemq.host, activemq.port, queue, over_stomp)
    fill_spool(tmp_path / "in", [to(queue, message) for message in in_spool])
    with running(site, *target[sink]) as daemon:
        eventually(lambda: port_is_open(port))
        answers = [posted(port, to(queue, message)) for message in over_http]
        eventually(lambda: arrived(sink, site, out) >= len(everything) or sink == BROKER)
        stored = {
            DATABASE: lambda: site.column("SELECT messageId FROM metricOutput"),
            BROKER: lambda: ids(received(rabbitmq, queue, len(everything))),
            SPOOL: lambda: [message.message_id for message in elements(out)],
        }[sink]()
        eventually(lambda: not DirectoryQueue(tmp_path / "in").has_elements())
        stopped = daemon.stop()

    assert {status for status, _ in answers} == {STORED[sink]}
    assert [document["messageId"] for _, document in answers] == [
        message.message_id for message in over_http
    ]
    assert Counter(stored) == Counter(message.message_id for message in everything)
    assert (stopped.code, stopped.messages) == (0, len(everything))


@pytest.mark.parametrize(
    ("first", "second"),
    [("activemq", "rabbitmq"), ("rabbitmq", "artemis"), ("artemis", "activemq")],
)
def test_a_bridge_carries_every_message_as_it_was(
    request: pytest.FixtureRequest, tmp_path: Path, first: str, second: str
) -> None:
    source: StompServer = request.getfixturevalue(first)
    target: StompServer = request.getfixturevalue(second)
    queue = f"/queue/{uuid.uuid4().hex}"
    bridge = site_of(tmp_path, [source.url], Subscription(queue))
    odd = [Message({MESSAGE_ID: f"odd-{n}", **ODD}, body) for n, body in enumerate(ODD_BODIES)]
    sent = [*results(COUNT), *odd]
    publish(source.host, source.port, queue, [*sent, sent[0]])

    moved = bridge.run("run", "--drain", "--json", "--to", target.url)
    frames = received(target, queue, len(sent) + 1)

    assert (moved.returncode, json.loads(moved.stdout)["messages"]) == (0, len(sent) + 1)
    copies = Counter(ids(frames))
    assert copies.pop(sent[0].message_id) == 2  # it forwards each copy
    assert copies == dict.fromkeys([message.message_id for message in sent[1:]], 1)
    by_id = {frame.headers[MESSAGE_ID]: frame for frame in frames}
    for message in sent:
        frame = by_id[message.message_id]
        assert frame.body == message.body
        assert message.headers.items() - {("messageClass", "")} <= frame.headers.items()


def test_what_a_bridge_carries_twice_is_stored_once(
    tmp_path: Path, activemq: ActiveMQServer, artemis: ArtemisServer
) -> None:
    topic = f"/topic/grid.probe.{uuid.uuid4().hex}"
    bridge = site_of(tmp_path, [activemq.url], Subscription(topic))
    (tmp_path / "loader").mkdir()
    database = f"sqlite:///{tmp_path}/loader/sam.db"
    loader = make_site(tmp_path / "loader", database, [artemis.url], topic)
    subscribe(activemq, bridge.name, topic)
    subscribe(artemis, loader.name, topic)
    sent = results(COUNT)
    publish(activemq.host, activemq.port, topic, [*sent, *sent])

    moved = bridge.run("run", "--drain", "--to", artemis.url)
    loaded = loader.drain()

    assert (moved.returncode, loaded.code) == (0, 0)
    assert (loaded.summary["rows"], loaded.summary["duplicates"]) == (COUNT, COUNT)
    assert loader.rows() == COUNT


def test_a_relay_does_not_move_messages_to_where_it_reads_them(tmp_path: Path) -> None:
    bridge = site_of(tmp_path, ["stomp://msg1.example.org"], Subscription("/topic/x"))

    refused = bridge.run("run", "--to", "stomp://user@msg1.example.org:61613")

    assert refused.returncode == 78
    assert "brokers to read from" in refused.stderr


def test_rejected_messages_are_sent_once_the_cause_is_removed(
    tmp_path: Path, strict_activemq: ActiveMQServer, activemq: ActiveMQServer
) -> None:
    allowed, forbidden = f"/queue/{uuid.uuid4().hex}", "/topic/forbidden.x"
    good, bad = results(5, "org.sam.G"), results(5, "org.sam.B")
    fill_spool(tmp_path / "in", [to(allowed, m) for m in good] + [to(forbidden, m) for m in bad])
    config = tmp_path / "sam.toml"
    config.write_text(f'[consumer]\nbrokers = ["spool://{tmp_path}/in"]\n')
    relay = Site(config, "", "")

    moved = relay.run("run", "--drain", "--json", "--to", strict_activemq.url)
    (directory,) = (tmp_path / relay.state).glob("*.rejected")
    kept = elements(directory)

    assert moved.returncode == 65, moved.stderr
    assert json.loads(moved.stdout)["rejected_messages"] == len(bad)
    assert str(directory) in moved.stderr
    assert {message.message_id for message in kept} == {message.message_id for message in bad}
    assert all(IDENTITY in message.headers for message in kept)
    assert {*ids(received(strict_activemq, allowed, len(good)))} == {m.message_id for m in good}

    with subscribed(activemq, forbidden) as frames:
        drain = ["spool", "drain", "--broker", activemq.url]
        subprocess.run(
            [sys.executable, "-m", "sam_pipeline.publisher", *drain],
            env={**os.environ, "SAM_PUBLISHER_SPOOL": str(directory), "HOME": str(tmp_path)},
            check=True,
        )
        sent_later = [next(frames) for _ in bad]

    assert {frame.headers[MESSAGE_ID] for frame in sent_later} == {m.message_id for m in bad}
    assert not any(REJECTED in frame.headers for frame in sent_later)
    assert not DirectoryQueue(directory).has_elements()


def test_a_sender_over_http_keeps_what_the_broker_refuses(
    tmp_path: Path, strict_activemq: ActiveMQServer
) -> None:
    (port,) = free_ports(1)
    config = tmp_path / "sam.toml"
    config.write_text(f'[consumer]\nbrokers = ["listen+http://127.0.0.1:{port}"]\n')
    relay = Site(config, "", "")
    (bad,), (good,) = results(1), results(1)

    with running(relay, "--to", strict_activemq.url) as daemon:
        eventually(lambda: port_is_open(port))
        refused = posted(port, to("/topic/forbidden.x", bad))
        stored = posted(port, to("/topic/grid.x", good))
        daemon.stop()

    assert [refused[0], stored[0]] == [403, 202]
    assert "not authorized" in refused[1]["detail"]
    assert stored[1] == {"messageId": good.message_id, "stored": BROKER}
    assert list((tmp_path / relay.state).glob("*.rejected")) == []


def to(destination: str, message: Message) -> Message:
    return Message({**message.headers, DESTINATION: destination}, message.body)


def posted(port: int, message: Message) -> tuple[int, dict[str, Any]]:
    """Status and document of the answer of the door."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {
        "Content-Type": "text/plain",
        "Sam-Message-Id": message.message_id,
        "Sam-Destination": message.headers[DESTINATION],
    }
    connection.request("POST", "/v1/messages/metricOutput", message.body, headers)
    answer = connection.getresponse()
    document = json.loads(answer.read())
    connection.close()
    return answer.status, document


def elements(path: Path) -> Sequence[Message]:
    queue = DirectoryQueue(path)
    return [queue.read(name) for name in queue.names()]


def arrived(sink: str, site: Site, out: Path) -> int:
    """How many messages a database or a spool has."""
    return site.rows() if sink == DATABASE else DirectoryQueue(out).count()
