"""`sam-consume tap` and dry runs: they show messages, and neither take nor store any."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.schema.messages.message import Message
from tests.services.activemq import ActiveMQServer
from tests.services.artemis import ArtemisServer
from tests.services.broker import StompServer
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.choice import on_brokers
from tests.support.brokers.fake_broker import closed_port
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.daemon import running
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


def documents(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def ids(messages: Sequence[Message]) -> list[str]:
    return [message.message_id for message in messages]


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
    site.edit("class =", f"shared = {json.dumps(shared)}\nclass =")
    messages = results(COUNT)
    with running(site) as daemon:
        daemon.wait_until_subscribed(broker.url)
        ours = {name for name in queues(broker) if topic.rpartition(".")[2] in name}
        with tapping(site, "--json", "--count", str(COUNT)) as tap, tapping(site) as killed:
            publish(broker.host, broker.port, topic, messages)
            output, _ = tap.communicate(timeout=60)
            site.wait_for_rows(COUNT)
            killed.kill()
        eventually(
            lambda: {n for n in queues(broker) if topic.rpartition(".")[2] in n or TAP in n} == ours
        )
        stopped = daemon.stop()

    assert tap.returncode == 0
    assert [document["message_id"] for document in documents(output)] == ids(messages)
    assert (stopped.messages, site.rows(), site.drain().summary["messages"]) == (COUNT, COUNT, 0)


@on_brokers("activemq")
def test_a_message_is_shown_with_its_origin_and_records_until_the_reader_ends(
    site: Site, broker: StompServer, topic: str
) -> None:
    message = metric_message(samHost="wn17.example.org", samUser="nagios", samIdentity="key:forged")
    away = f"stomp://127.0.0.1:{closed_port()}"
    both = ("--broker", away, "--broker", broker.url, "--timeout", "1")
    with tapping(site, *both, "--json", "--count", "1") as tap, tapping(site) as abandoned:
        assert abandoned.stdout is not None
        abandoned.stdout.close()
        publish(broker.host, broker.port, topic, [message])
        output, _ = tap.communicate(timeout=60)
        assert abandoned.wait(30) == 0

    [shown] = documents(output)
    assert shown["records"][0]["hostName"] == "ce01.example.org"
    expected = {
        "broker": broker.url,
        "class": "metricOutput",
        "destination": topic,
        "record_count": 1,
        "identity": "anonymous",
        "origin": {"host": "wn17.example.org", "program": "", "user": "nagios"},
    }
    assert expected.items() <= shown.items()
    assert tap.returncode == 0, "a broker that is away does not end a look at the others"
    none = site.run("tap", "--broker", away, "--timeout", "0.5")
    assert (none.returncode, "connection refused" in none.stderr.lower()) == (69, True)


def test_activemq_shows_the_messages_of_a_queue_and_other_brokers_are_not_asked_for_them(
    site: Site, broker: StompServer, topic: str
) -> None:
    queue, messages = f"/queue/{uuid.uuid4().hex}", results(3)
    publish(broker.host, broker.port, queue, messages)

    taps = [site.run("tap", "--json", "--destination", queue, "--timeout", "1") for _ in range(2)]
    site.edit(topic, queue)

    if isinstance(broker, ActiveMQServer):
        shown = [[document["message_id"] for document in documents(tap.stdout)] for tap in taps]
        assert shown == [ids(messages)] * 2
    else:
        assert [tap.returncode for tap in taps] == [69] * 2
        assert "can't show the messages of a queue" in taps[0].stderr
    assert site.drain().summary["messages"] == 3


@on_brokers("artemis")
def test_a_queue_of_a_topic_that_is_named_itself_loses_no_message(
    site: Site, broker: StompServer, topic: str
) -> None:
    site.edit("class =", "shared = true\nclass =")
    site.drain()
    [queue] = [name for name in queues(broker) if topic.rpartition(".")[2] in name]

    with tapping(site, "--count", "5", "--destination", f"{topic}::{queue}") as tap:
        publish(broker.host, broker.port, topic, results(5))
        tap.communicate(timeout=60)

    assert (tap.returncode, site.drain().summary["messages"]) == (0, 5)


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

    shown = documents(small_site.run("tap", "--json", "--count", "5").stdout)
    output = small_site.run("tap", "--count", "5").stdout

    assert (missing.returncode, "no such directory" in missing.stderr) == (69, True)
    assert [document["message_id"] for document in shown] == ids(messages)
    assert r"\x1b[2J\u202ecleared" in output and r"\x1b]0;title\x07" in output
    assert not {"\x1b", "\x07", "\u202e"} & set(output)
    assert sorted(path.rglob("*")) == before
    assert not path.with_name("spool.bad").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("--broker listen+http://127.0.0.1:8080", 64, "expected stomp://HOST"),
        ("--destination topic/x", 64, "is not a destination"),
        ("--broker stomp://127.0.0.1:1", 78, "--destination"),
        ("--count 0", 64, "is not a whole number"),
        ("", 78, "over HTTP"),
    ],
)
def test_a_tap_that_can_show_nothing_is_refused(
    small_site: Site, arguments: str, code: int, words: str
) -> None:
    small_site.config.write_text('[consumer]\nbrokers = ["listen+http://127.0.0.1:8080"]\n')

    refused = small_site.run("tap", *arguments.split())

    assert (refused.returncode, words in refused.stderr) == (code, True), refused.stderr


GOOD = metric_result(serviceFlavour="CE, SE", colour="blue")
BAD = metric_result(metricStatus="SPLENDID")
UNKNOWN = Message({"messageClass": "cellar", "samMessageId": "cellar-1"}, b"a: b\nEOT\n")
POLICY = """\
mode = "{mode}"
[[publisher]]
name = "probes"
is = ["uid:*", "anonymous"]
classes = ["metricOutput"]
hosts = ["*.cern.ch"]
"""


def dry_run(site: Site, *messages: Message) -> list[dict[str, Any]]:
    site.fill(*messages)
    done = site.run("run", "--dry-run", "--json", "--count", str(len(messages)))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def tree(site: Site) -> dict[str, tuple[int, int]]:
    """All files of the site's directory, with size and time of the last change."""
    paths = site.config.parent.rglob("*")
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in paths}


def test_it_shows_the_rows_dead_letters_and_ignored_keys_that_a_drain_stores(
    small_site: Site,
) -> None:
    first, second = dry_run(small_site, metric_message(GOOD, BAD), UNKNOWN)
    before = tree(small_site)
    small_site.run("run", "--dry-run", "--count", "2")
    after = tree(small_site)
    drained = small_site.drain()

    rows = [(row["record"], row["class"], row["values"]["serviceFlavour"]) for row in first["rows"]]
    assert rows == [(1, "metricOutput", "CE"), (1, "metricOutput", "SE")]
    assert first["ignored_keys"] == {"colour": 1}
    letters = [*first["dead_letters"], *second["dead_letters"]]
    assert [(letter["record"], letter["reason"]) for letter in letters] == [
        (2, "bad-status"),
        (None, "unknown-class"),
    ]
    assert before == after
    assert drained.summary["rows"] == 2
    assert drained.summary["dead_letters"] == {"bad-status": 1, "unknown-class": 1}


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_the_verdict_of_the_policy_is_shown(small_site: Site, mode: str) -> None:
    small_site.config.with_name("policy.toml").write_text(POLICY.format(mode=mode))
    small_site.configure('publishers = "policy.toml"')

    [shown] = dry_run(small_site, metric_message())

    rows, letters, observed = shown["rows"], shown["dead_letters"], shown["observed"]
    [refused] = letters if mode == "enforce" else observed
    assert refused["reason"] == "not-authorised"
    assert "ce01.example.org" in refused["error"]
    assert (len(rows), len(letters)) == ((0, 1) if mode == "enforce" else (1, 0))


def test_without_a_database_the_built_in_classes_are_known(small_site: Site) -> None:
    small_site.config.write_text(
        "[consumer]" + small_site.config.read_text().split("[consumer]")[1]
    )
    small_site.edit('class = "metricOutput"', "")

    first, second = dry_run(small_site, metric_message(GOOD), UNKNOWN)

    assert len(first["rows"]) == 2
    assert first["ignored_keys"] == {"colour": 1}
    assert (second["is_undecided"], second["dead_letters"]) == (True, [])


@pytest.mark.parametrize(
    "arguments",
    ["--dry-run --drain", "--dry-run --to spool:///tmp/x", "--count 1", "--drain --for 1"],
)
def test_options_that_contradict_each_other_are_refused(small_site: Site, arguments: str) -> None:
    refused = small_site.run("run", *arguments.split())

    assert (refused.returncode, "--dry-run" in refused.stderr) == (64, True)
