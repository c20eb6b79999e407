"""Every source in front of every sink, and bridges that carry messages on unchanged."""

from __future__ import annotations

import subprocess
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from dirq.QueueSimple import QueueSimple

from sam_pipeline.schema.identity.identity import IDENTITY
from sam_pipeline.schema.messages.headers import REJECTED
from sam_pipeline.schema.messages.message import DESTINATION, MESSAGE_ID, Message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services.activemq import ActiveMQServer
from tests.services.broker import StompServer
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.brokers.queue_reader import ids, received
from tests.support.consumer.daemon import Subscription, site_of
from tests.support.consumer.door import PATH, Door, listening, new_door
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, eventually, results
from tests.support.http_client import HttpAnswer
from tests.support.invoke import invoke

COUNT = 60
SPOOL = "spool"
STORED = {"database": 200, "broker": 202, "spool": 202}
"""The status of an answer over HTTP."""
ODD = {"x-note": "a:b\\c\nd", "samKey": "nobody", "samSignature": "AAAA"}
"""Headers of a publisher: escapes, and a signature whose key nobody knows."""
ODD_BODIES = (b"hostName: a\0b\nEOT\n", b"\xff\xfe", "Zürich\n".encode(), b"")


def to(destination: str, message: Message) -> Message:
    return Message({**message.headers, DESTINATION: destination}, message.body)


def posted(door: Door, message: Message) -> HttpAnswer:
    with door.client() as client:
        own = {
            "Sam_Message_Id": message.message_id,
            "Sam_Destination": message.headers[DESTINATION],
        }
        return client.post(f"{PATH}/metricOutput", message.body, **own)


def elements(path: Path) -> Sequence[Message]:
    queue = DirectoryQueue(path)
    return [queue.read(name) for name in queue.names()]


def bare_relay(directory: Path) -> Site:
    """A relay without a database, which reads its spool."""
    config, url = directory / "sam.toml", f"spool://{directory}/spool"
    config.write_text(f'[consumer]\nname = "bare"\nbrokers = ["{url}"]\n')
    return Site(config, "", "bare")


@pytest.mark.parametrize("sink", STORED)
def test_every_source_fits_every_sink(
    tmp_path: Path, activemq: ActiveMQServer, rabbitmq: RabbitMQServer, sink: str
) -> None:
    queue, out, door = f"/queue/{uuid.uuid4().hex}", tmp_path / "out", new_door()
    sources = [activemq.url, f"spool://{tmp_path}/spool", door.listen_url]
    site = site_of(tmp_path, sources, Subscription(queue))
    over_stomp, in_spool, over_http = (results(COUNT, f"org.sam.{n}") for n in range(3))
    target = {"database": [], "broker": ["--to", rabbitmq.url], "spool": ["--to", f"spool://{out}"]}
    everything = [*over_stomp, *in_spool, *over_http]

    def stored() -> list[str]:
        if sink == "database":
            return site.column("SELECT messageId FROM metricOutput")
        if sink == "broker":
            return ids(received(rabbitmq, queue, len(everything)))
        return [message.message_id for message in elements(out)]

    publish(activemq.host, activemq.port, queue, over_stomp)
    site.fill(*(to(queue, message) for message in in_spool))
    with listening(site, door, *target[sink]) as daemon:
        answers = [posted(door, to(queue, message)) for message in over_http]
        eventually(lambda: sink == "broker" or len(stored()) >= len(everything))
        found = stored()
        eventually(lambda: not DirectoryQueue(tmp_path / "spool").has_elements())
        stopped = daemon.stop()

    assert {answer.status for answer in answers} == {STORED[sink]}
    over_http_ids = [answer.document["messageId"] for answer in answers]
    assert over_http_ids == [message.message_id for message in over_http]
    assert Counter(found) == Counter(message.message_id for message in everything)
    assert (stopped.code, stopped.messages) == (0, len(everything))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("activemq", "rabbitmq"),
        ("rabbitmq", "artemis"),
        ("artemis", "activemq"),
        ("rabbitmq", SPOOL),
    ],
)
def test_a_bridge_carries_every_message_as_it_was(
    request: pytest.FixtureRequest, tmp_path: Path, first: str, second: str
) -> None:
    source: StompServer = request.getfixturevalue(first)
    queue, out = f"/queue/{uuid.uuid4().hex}", f"spool://{tmp_path}/out"
    target: StompServer | None = None if second == SPOOL else request.getfixturevalue(second)
    bridge = site_of(tmp_path, [source.url], Subscription(queue))
    odd = [Message({MESSAGE_ID: f"odd-{n}", **ODD}, body) for n, body in enumerate(ODD_BODIES)]
    sent = [*results(COUNT), *odd]
    publish(source.host, source.port, queue, [*sent, sent[0]])

    moved = bridge.json("run", "--drain", "--to", target.url if target else out)
    arrived = received(target, queue, len(sent) + 1) if target else elements(tmp_path / "out")

    assert moved["messages"] == len(sent) + 1
    copies = Counter(ids([*arrived]))
    assert copies.pop(sent[0].message_id) == 2  # it forwards each copy
    assert copies == dict.fromkeys([message.message_id for message in sent[1:]], 1)
    by_id = {message.headers[MESSAGE_ID]: message for message in arrived}
    for message in sent:
        copy = by_id[message.message_id]
        assert copy.body == message.body
        assert message.headers.items() - {("messageClass", "")} <= copy.headers.items()
    assert bridge.drain().summary["messages"] == 0, "acked at the source"


def test_rejected_messages_are_sent_once_the_cause_is_removed(tmp_path: Path) -> None:
    def rejects(frame: object) -> str:
        return "not authorized" if b"org.sam.B" in frame.body else ""

    good, bad = results(5, "org.sam.G"), results(5, "org.sam.B")
    relay = bare_relay(tmp_path)
    relay.fill(*(to("/queue/x", message) for message in [*good, *bad]))
    with FakeBroker(rejects=rejects) as strict:
        moved = relay.json("run", "--drain", "--to", strict.url, code=65)
    (directory,) = (tmp_path / relay.state).glob("*.rejected")
    kept = elements(directory)
    with FakeBroker() as broker:
        environment = {"SAM_PUBLISHER_SPOOL": str(directory), "HOME": str(tmp_path)}
        drained = invoke("sam-publish", "spool", "drain", "--broker", broker.url, env=environment)

    bad_ids = {message.message_id for message in bad}
    assert moved["rejected_messages"] == len(bad)
    assert {message.message_id for message in kept} == bad_ids
    assert all(IDENTITY in message.headers for message in kept)
    assert {*strict.ids} == {message.message_id for message in good}
    assert (drained.code, {*broker.ids}) == (0, bad_ids), drained.err
    assert not any(REJECTED in frame.headers for frame in broker.taken)
    assert not DirectoryQueue(directory).has_elements()


WITHOUT_DATABASE = """
import sys
sys.modules["sqlalchemy"] = None
from sam_pipeline.consumer.cli import main
sys.exit(main(sys.argv[1:]) or any(name.startswith("sam_pipeline.sql") for name in sys.modules))
"""


def test_a_relay_needs_neither_a_database_nor_sqlalchemy_and_writes_for_dirq(
    tmp_path: Path,
) -> None:
    relay = bare_relay(tmp_path)
    relay.fill(*results(5))
    command = relay.command("run", "--to", f"spool://{tmp_path}/out", program=WITHOUT_DATABASE)

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as daemon:
        out = DirectoryQueue(tmp_path / "out")
        eventually(lambda: out.count() == 5 or daemon.poll() is not None)
        daemon.terminate()
        _, log = daemon.communicate(timeout=60)

    assert daemon.returncode == 0, log
    assert "stopped: 5 messages" in log
    assert QueueSimple(str(tmp_path / "out")).count() == 5


def test_a_broken_target_in_the_file_keeps_the_messages_and_the_option_wins(
    tmp_path: Path,
) -> None:
    relay = bare_relay(tmp_path)
    (tmp_path / "file").write_text("no directory")
    relay.configure(f'relay_to = ["spool://{tmp_path}/file"]')
    relay.fill(*results(5))

    waited = relay.run("run", "--drain", "--timeout", "0.5")
    waiting = len(elements(tmp_path / "spool"))
    moved = relay.run("run", "--drain", "--to", f"spool://{tmp_path}/named")

    assert (waited.returncode in (73, 74), waiting) == (True, 5), waited.stderr
    assert (moved.returncode, len(elements(tmp_path / "named"))) == (0, 5), moved.stderr
