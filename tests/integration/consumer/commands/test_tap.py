"""`sam-consume tap` and `subscription` with real brokers."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.consumer.core import loop
from sam_pipeline.schema.messages.message import Message
from tests.services.activemq import ActiveMQServer
from tests.services.artemis import ArtemisServer
from tests.services.broker import StompServer
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.choice import on_brokers
from tests.support.brokers.fake_broker import FakeBroker, closed_port
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.daemon import Subscription, running, site_of
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, eventually, make_site, results

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
def tapping(site: Site, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A tap that has subscribed; killed on leaving the block."""
    log = site.config.with_name(f"tap-{uuid.uuid4().hex}.log")
    command = site.command("tap", *arguments)
    with (
        log.open("w") as stderr,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        try:
            eventually(lambda: "subscribed as" in log.read_text())
            yield process
        finally:
            process.kill()


def ids(messages: Sequence[Message]) -> list[str]:
    return [message.message_id for message in messages]


def shown_ids(output: str) -> list[str]:
    return [json.loads(line)["message_id"] for line in output.splitlines()]


def queues(server: StompServer, topic: str = "") -> set[str]:
    """The queues of this topic and of taps, or what we know about those of ActiveMQ: TAP."""
    if isinstance(server, ActiveMQServer):
        return {TAP} if server.stores(TAP) else set()
    assert isinstance(server, ArtemisServer | RabbitMQServer)
    return {name for name in server.queues() if topic.rpartition(".")[2] in name or TAP in name}


@pytest.mark.parametrize(
    ("broker", "shared"),
    [("activemq", False), ("activemq", True), ("artemis", False), ("rabbitmq", True)],
    indirect=["broker"],
)
def test_a_tap_shows_what_the_daemon_beside_loads_and_leaves_nothing_behind(
    site: Site, broker: StompServer, topic: str, shared: bool
) -> None:
    site.edit("class =", f"shared = {json.dumps(shared)}\nclass =")
    messages = results(COUNT)
    with running(site) as daemon:
        daemon.wait_until_subscribed(broker.url)
        ours = {name for name in queues(broker, topic) if TAP not in name}
        with tapping(site, "--json", "--limit", str(COUNT)) as tap, tapping(site) as killed:
            publish(broker.host, broker.port, topic, messages)
            output, _ = tap.communicate(timeout=60)
            site.wait_for_rows(COUNT)
            killed.kill()
        eventually(lambda: queues(broker, topic) == ours)
        stopped = daemon.stop()

    assert (tap.returncode, shown_ids(output)) == (0, ids(messages))
    assert (stopped.messages, site.rows(), site.drain().summary["messages"]) == (COUNT, COUNT, 0)


@on_brokers("activemq")
def test_a_message_is_shown_with_its_origin_and_records_until_the_reader_ends(
    site: Site, broker: StompServer, topic: str
) -> None:
    message = metric_message(samHost="wn17.example.org", samUser="nagios", samIdentity="key:forged")
    away = f"stomp://127.0.0.1:{closed_port()}"
    both = ("--broker", away, "--broker", broker.url, "--timeout", "1")
    with tapping(site, *both, "--json", "--limit", "1") as tap, tapping(site) as abandoned:
        assert abandoned.stdout is not None
        abandoned.stdout.close()
        publish(broker.host, broker.port, topic, [message])
        output, _ = tap.communicate(timeout=60)
        assert abandoned.wait(30) == 0

    shown = json.loads(output)
    assert shown["records"][0]["hostName"] == "ce01.example.org"
    assert (shown["class"], shown["destination"]) == ("metricOutput", topic)
    assert (shown["broker"], shown["identity"]) == (broker.url, "anonymous")
    assert shown["origin"] == {"host": "wn17.example.org", "program": "", "user": "nagios"}
    assert tap.returncode == 0, "a broker that is away does not end a look at the others"
    assert site.run("tap", "--broker", away, "--timeout", "0.5").returncode == 69


def test_activemq_shows_the_messages_of_a_queue_and_other_brokers_are_not_asked_for_them(
    site: Site, broker: StompServer, topic: str
) -> None:
    queue, messages = f"/queue/{uuid.uuid4().hex}", results(3)
    publish(broker.host, broker.port, queue, messages)

    tap = site.run("tap", "--json", "--destination", queue, "--timeout", "1")
    site.edit(topic, queue)

    is_activemq = isinstance(broker, ActiveMQServer)
    assert tap.returncode == (0 if is_activemq else 69)
    assert shown_ids(tap.stdout) == (ids(messages) if is_activemq else [])
    assert site.drain().summary["messages"] == 3


def test_a_spool_is_shown_and_left_as_it_is_without_controlling_the_terminal(
    small_site: Site,
) -> None:
    path = small_site.config.with_name("spool")
    missing = small_site.run("tap", "--timeout", "0.5")
    record = metric_result(summaryData="\x1b[2J\u202ecleared")
    messages = [*results(4), metric_message(record, samUser="\x1b]0;title\x07")]
    small_site.fill(*messages)
    [directory] = path.iterdir()
    (directory / ("a" * 14)).write_bytes(b"not a message")
    before = sorted(path.rglob("*"))

    output = small_site.run("tap", "--limit", "5").stdout

    assert missing.returncode == 69
    assert shown_ids(small_site.run("tap", "--json", "--limit", "5").stdout) == ids(messages)
    assert r"\x1b[2J\u202ecleared" in output and r"\x1b]0;title\x07" in output
    assert not {"\x1b", "\x07", "\u202e"} & set(output)
    assert sorted(path.rglob("*")) == before
    assert not path.with_name("spool.bad").exists()


GOOD = metric_result(serviceFlavour="CE, SE", colour="blue")
BAD = metric_result(metricStatus="SPLENDID")
UNKNOWN = Message({"messageClass": "cellar", "samMessageId": "cellar-1"}, b"a: b\nEOT\n")


def rows_shown(site: Site, *messages: Message) -> list[dict[str, Any]]:
    site.fill(*messages)
    done = site.run("tap", "--rows", "--json", "--limit", str(len(messages)))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_tap_shows_the_rows_dead_letters_and_ignored_keys_that_a_drain_stores(
    small_site: Site,
) -> None:
    def files() -> dict[Path, tuple[int, int]]:
        paths = small_site.config.parent.rglob("*")
        return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}

    first, second = rows_shown(small_site, metric_message(GOOD, BAD), UNKNOWN)
    before = files()
    small_site.run("tap", "--rows", "--limit", "2")
    after = files()
    drained = small_site.drain()

    rows = [(row["record"], row["class"], row["values"]["serviceFlavour"]) for row in first["rows"]]
    assert rows == [(1, "metricOutput", "CE"), (1, "metricOutput", "SE")]
    assert first["ignored_keys"] == {"colour": 1}
    letters = [*first["dead_letters"], *second["dead_letters"]]
    assert [(it["record"], it["reason"]) for it in letters] == [
        *((2, "bad-status"), (None, "unknown-class"))
    ]
    assert before == after
    assert drained.summary["rows"] == 2
    assert drained.summary["dead_letters"] == {"bad-status": 1, "unknown-class": 1}


@pytest.fixture
def destination() -> str:
    return f"/topic/VirtualTopic.grid.{uuid.uuid4().hex}"


@pytest.fixture
def spool(tmp_path: Path) -> str:
    (tmp_path / "in").mkdir(mode=0o700)
    return f"spool://{tmp_path}/in"


def states(site: Site) -> list[str]:
    return [row["state"] for row in site.json("subscription", "list")]


def unsubscribed(site: Site, *arguments: str) -> tuple[int, str]:
    done = site.run("subscription", "delete", *arguments)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def read_only(site: Site, broker: str) -> None:
    """Change the configuration: the consumer reads this broker and no other."""
    urls = site.config.read_text().partition("brokers = ")[2].partition("\n")[0]
    site.edit(urls, json.dumps([broker]))


def test_a_shared_subscription_that_is_left_behind_is_deleted_with_its_messages(
    tmp_path: Path, broker: StompServer, destination: str, spool: str
) -> None:
    site = site_of(tmp_path, [broker.url], Subscription(destination, shared=True))
    assert states(site) == ["new"]
    assert site.drain().code == 0
    assert states(site) == ["offline"]
    publish(broker.host, broker.port, destination, results(3))
    read_only(site, spool)
    [row] = site.json("subscription", "list")
    assert (row["state"], row["destination"]) == ("left behind", destination)

    code, text = unsubscribed(site, broker.url, destination)

    if isinstance(broker, ActiveMQServer):
        assert (code, "--forget" in text) == (77, True), text
        assert unsubscribed(site, broker.url, "--forget")[0] == 0
        assert states(site) == []
        return
    assert code == 0, text
    assert f"deleted {row['stored_in']}" in text and "3 messages" in text
    assert states(site) == []
    read_only(site, broker.url)
    assert site.drain().summary["messages"] == 0  # it is made again, and empty


@on_brokers("artemis")  # which lets two clients have one name
def test_nothing_is_deleted_that_a_daemon_reads_or_the_configuration_names(
    tmp_path: Path, broker: StompServer, destination: str
) -> None:
    site = site_of(tmp_path, [broker.url], Subscription(destination))
    with running(site) as daemon:
        daemon.wait_until_subscribed(broker.url)
        while states(site) != ["active"]:
            assert daemon.alive
        read = unsubscribed(site, broker.url, destination, "--yes")
    publish(broker.host, broker.port, destination, results(2))
    configured = unsubscribed(site, broker.url, destination)
    unnamed, _ = unsubscribed(site, broker.url)

    code, text = unsubscribed(site, broker.url, destination, "--yes")

    assert (read[0], f"(process {daemon.process.pid})" in read[1]) == (77, True)
    assert (configured[0], "is configured" in configured[1], unnamed) == (77, True, 64)
    assert (code, "2 messages" in text) == (0, True), text
    assert states(site) == ["new"]


def test_a_subscription_that_was_deleted_by_others_is_reported_as_such(
    tmp_path: Path, rabbitmq: RabbitMQServer, destination: str, spool: str
) -> None:
    site = site_of(tmp_path, [rabbitmq.url], Subscription(destination))
    site.drain()
    read_only(site, spool)
    rabbitmq.delete_queue(site.json("subscription", "list")[0]["stored_in"])

    code, text = unsubscribed(site, rabbitmq.url)

    assert (code, states(site), "does not exist any more" in text) == (0, [], True)


def test_a_broker_that_is_away_is_no_success_and_a_mistyped_one_a_usage_error(
    tmp_path: Path, destination: str, spool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "SILENCE_S", 0.2)
    with FakeBroker(server="RabbitMQ/3.10") as broker:
        site = site_of(tmp_path, [broker.url], Subscription(destination))
        site.drain()
        read_only(site, spool)
    other = f"stomp://127.0.0.1:{closed_port()}"

    for arguments, expected, hint in (
        ([broker.url], 69, "is not deleted"),
        ([other], 64, broker.url),
        ([broker.url, f"{destination}x"], 64, destination),
        (["http://x"], 64, "broker URL"),
    ):
        code, text = unsubscribed(site, *arguments)
        assert (code, hint in text) == (expected, True), text
    assert states(site) == ["left behind"]


def test_without_its_table_a_broker_is_not_sent_the_login_of_the_section(
    tmp_path: Path, destination: str, spool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "SILENCE_S", 0.2)
    with FakeBroker(server="ActiveMQ/6.0") as broker:
        site = site_of(tmp_path, [spool], Subscription(destination), user="ours")
        text = site.config.read_text()
        table = f'[[consumer.broker]]\nurl = "{broker.url}"\nuser = "theirs"\n'
        site.config.write_text(text + table)
        site.drain()
        site.config.write_text(text)

        assert unsubscribed(site, broker.url)[0] == 77
        site.config.write_text(text + table + "destinations = []\n")
        code, said = unsubscribed(site, broker.url)

    assert code == 0, said
    assert {frame.headers["login"] for frame in broker.logins} == {"theirs"}
