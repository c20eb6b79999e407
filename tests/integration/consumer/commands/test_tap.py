"""`sam-consume tap` beside a daemon: it sees the messages, and takes and leaves nothing."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services.activemq import ActiveMQServer
from tests.services.artemis import ArtemisServer
from tests.services.broker import StompServer
from tests.services.process import free_ports
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.choice import on_brokers
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, eventually, fill_spool, make_site, results

COUNT = 300
TAP = "-tap-"
"""A part of the client-id of every tap."""


@pytest.fixture
def topic() -> str:
    """A topic of this test alone, which ActiveMQ can share."""
    return f"/topic/VirtualTopic.{uuid.uuid4().hex}"


@pytest.fixture
def site(tmp_path: Path, broker: StompServer, topic: str) -> Site:
    return make_site(tmp_path, f"sqlite:///{tmp_path}/sam.db", [broker.url], topic)


@contextmanager
def tapping(site: Site, *arguments: str, brokers: int = 1) -> Iterator[subprocess.Popen[str]]:
    """A tap that has subscribed at so many brokers; killed on leaving the block."""
    log = site.config.with_name(f"tap-{uuid.uuid4().hex}.log")
    with log.open("w") as stderr:
        process = subprocess.Popen(
            site.command("tap", *arguments), stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    try:
        eventually(lambda: log.read_text().count("subscribed as") >= brokers)
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def documents(output: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines()]


def ids(messages: Sequence[Message]) -> list[str]:
    return [message.message_id for message in messages]


def loaded_messages(site: Site) -> int:
    return int(site.scalar("SELECT coalesce(sum(messages), 0) FROM load_audit"))


def queues(server: StompServer) -> set[str]:
    """The queues of the broker, or what we know about those of ActiveMQ: whose name is stored."""
    if isinstance(server, ActiveMQServer):
        return {TAP} if server.stores(TAP) else set()
    assert isinstance(server, ArtemisServer | RabbitMQServer)
    return server.queues()


@pytest.mark.parametrize(
    ("broker", "shared"),
    [("activemq", False), ("activemq", True), ("artemis", False), ("rabbitmq", True)],
    indirect=["broker"],
)
def test_a_tap_shows_what_the_daemon_beside_loads_and_leaves_nothing_behind(
    site: Site, broker: StompServer, topic: str, shared: bool
) -> None:
    site.config.write_text(f"{site.config.read_text()}shared = {json.dumps(shared)}\n")
    log = site.config.with_name("log")
    messages = results(COUNT)
    with site.daemon(log=log) as daemon:
        eventually(lambda: "subscribed as" in log.read_text())
        before = queues(broker)
        with tapping(site, "--json", "--count", str(COUNT)) as tap, tapping(site) as killed:
            publish(broker.host, broker.port, topic, messages)
            output, _ = tap.communicate(timeout=60)
            site.wait_for_rows(COUNT)
            killed.kill()
        eventually(lambda: loaded_messages(site) == COUNT)
        eventually(lambda: queues(broker) == before)
        daemon.terminate()
        daemon.wait(30)

    assert tap.returncode == 0
    assert [document["message_id"] for document in documents(output)] == ids(messages)
    assert site.rows() == COUNT
    assert site.drain().summary["messages"] == 0


@on_brokers("activemq")
def test_a_message_is_shown_with_its_origin_and_records(
    site: Site, broker: StompServer, topic: str
) -> None:
    message = metric_message(samHost="wn17.example.org", samUser="nagios", samIdentity="key:forged")
    with tapping(site, "--json", "--count", "1") as tap:
        publish(broker.host, broker.port, topic, [message])
        output, _ = tap.communicate(timeout=60)

    [shown] = documents(output)
    assert shown["broker"] == broker.url
    assert shown["class"] == "metricOutput"
    assert shown["destination"] == topic
    assert shown["identity"] == "anonymous"
    assert shown["origin"] == {"host": "wn17.example.org", "program": "", "user": "nagios"}
    assert shown["record_count"] == 1
    assert shown["records"][0]["hostName"] == "ce01.example.org"  # type: ignore[index]


@on_brokers("activemq")
def test_activemq_shows_the_messages_of_a_queue_which_stay_there(
    site: Site, broker: StompServer
) -> None:
    queue, messages = f"/queue/{uuid.uuid4().hex}", results(3)
    publish(broker.host, broker.port, queue, messages)

    shown = site.run("tap", "--json", "--destination", queue)
    again = site.run("tap", "--json", "--destination", queue)

    assert shown.returncode == 0
    assert [document["message_id"] for document in documents(shown.stdout)] == ids(messages)
    assert len(documents(again.stdout)) == 3


@on_brokers("artemis", "rabbitmq")
def test_other_brokers_are_not_asked_for_the_messages_of_a_queue(
    site: Site, broker: StompServer, topic: str
) -> None:
    queue, messages = f"/queue/{uuid.uuid4().hex}", results(3)
    publish(broker.host, broker.port, queue, messages)

    refused = site.run("tap", "--json", "--destination", queue, "--timeout", "1")
    with tapping(site, "--count", "1", "--destination", queue, "--destination", topic) as tap:
        publish(broker.host, broker.port, topic, results(1))
        tap.communicate(timeout=60)
    site.config.write_text(site.config.read_text().replace(topic, queue))

    assert refused.returncode == 69
    assert "can't show the messages of a queue" in refused.stderr
    assert tap.returncode == 0
    assert site.drain().summary["messages"] == 3


@on_brokers("artemis")
def test_a_queue_of_a_topic_that_is_named_itself_loses_no_message(
    site: Site, broker: StompServer, topic: str
) -> None:
    site.config.write_text(f"{site.config.read_text()}shared = true\n")
    site.drain()
    [queue] = [name for name in queues(broker) if topic.rpartition(".")[2] in name]

    with tapping(site, "--count", "5", "--destination", f"{topic}::{queue}") as tap:
        publish(broker.host, broker.port, topic, results(5))
        tap.communicate(timeout=60)

    assert tap.returncode == 0
    assert site.drain().summary["messages"] == 5


@on_brokers("activemq")
def test_a_broker_that_is_away_does_not_end_a_look_at_the_others(
    site: Site, broker: StompServer, topic: str
) -> None:
    [port] = free_ports(1)
    away = f"stomp://127.0.0.1:{port}"
    arguments = ["--broker", away, "--timeout", "1"]

    none = site.run("tap", *arguments)
    with tapping(site, *arguments, "--broker", broker.url, "--for", "4") as tap:
        tap.communicate(timeout=60)
    [log] = site.config.parent.glob("tap-*.log")

    assert none.returncode == 69
    assert "Connection refused".lower() in none.stderr.lower()
    assert tap.returncode == 0
    assert away in log.read_text()


@on_brokers("activemq")
def test_a_tap_ends_with_its_reader(site: Site, broker: StompServer, topic: str) -> None:
    with tapping(site) as tap:
        assert tap.stdout is not None
        tap.stdout.close()

        assert tap.wait(30) == 0


@pytest.fixture
def spool_site(tmp_path: Path) -> Site:
    return make_site(tmp_path, f"sqlite:///{tmp_path}/sam.db", [f"spool://{tmp_path}/in"])


def test_a_spool_is_shown_and_left_as_it_is(spool_site: Site) -> None:
    path = spool_site.config.with_name("in")
    messages = results(5)
    fill_spool(path, messages)
    before = sorted(path.rglob("*"))
    damaged = before[0] / ("a" * 14)
    damaged.write_bytes(b"not a message")

    shown = spool_site.run("tap", "--json", "--count", "5")

    assert [document["message_id"] for document in documents(shown.stdout)] == ids(messages)
    assert sorted(path.rglob("*")) == sorted([*before, damaged])
    assert not path.with_name("in.bad").exists()
    assert spool_site.drain().summary["messages"] == 5


def test_a_tap_follows_a_spool_and_shows_only_the_wanted_classes(spool_site: Site) -> None:
    path = spool_site.config.with_name("in")
    fill_spool(path, results(2))
    process = subprocess.Popen(
        spool_site.command("tap", "--json", "--count", "1", "--class", "SERVICE*"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wanted = Message({"messageClass": "serviceEndpoint"}, b"siteName: A\nEOT\n")
    name = DirectoryQueue(path).add(wanted)

    output, _ = process.communicate(timeout=60)

    [shown] = documents(output)
    assert shown["class"] == "serviceEndpoint"
    assert name in DirectoryQueue(path).names()


def test_text_from_outside_can_not_control_the_terminal(spool_site: Site) -> None:
    message = metric_message(
        metric_result(summaryData="\x1b[2J\u202ecleared"), samUser="\x1b]0;title\x07"
    )
    fill_spool(spool_site.config.with_name("in"), [message])

    output = spool_site.run("tap", "--count", "1").stdout

    assert r"\x1b[2J\u202ecleared" in output
    assert r"\x1b]0;title\x07" in output
    assert not {"\x1b", "\x07", "\u202e"} & set(output)


def test_a_spool_that_does_not_exist_is_reported(spool_site: Site) -> None:
    refused = spool_site.run("tap", "--timeout", "0.5")

    assert refused.returncode == 69
    assert "no such directory" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--broker", "listen+http://127.0.0.1:8080"], 64, "expected stomp://HOST"),
        (["--destination", "topic/x"], 64, "is not a destination"),
        (["--broker", "stomp://127.0.0.1:1"], 78, "--destination"),
        (["--count", "0"], 64, "is not a whole number"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    spool_site: Site, arguments: list[str], code: int, message: str
) -> None:
    text = spool_site.config.read_text()
    spool_site.config.write_text(text.partition("[[")[0])

    refused = spool_site.run("tap", *arguments)

    assert refused.returncode == code
    assert message in refused.stderr


def test_messages_that_only_the_daemon_sees_are_left_out(spool_site: Site) -> None:
    text = spool_site.config.read_text()
    urls = json.dumps(["listen+http://127.0.0.1:8080"])
    spool = json.dumps([f"spool://{spool_site.config.with_name('in')}"])
    spool_site.config.write_text(text.replace(spool, urls))

    refused = spool_site.run("tap")

    assert refused.returncode == 78
    assert "over HTTP" in refused.stderr
