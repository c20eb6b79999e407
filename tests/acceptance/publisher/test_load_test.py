"""`sam-publish load-test` with real brokers, and with one that loses and repeats messages."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sam_pipeline.schema.net.stomp_frame import FrameReader, encode
from tests.services.artemis import ArtemisServer
from tests.services.broker import StompServer
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.fake_broker import FakeBroker, closed_port
from tests.support.brokers.subscriber import subscribed
from tests.support.commands import Answer, Workplace
from tests.support.page import Page, shell

SMALL = ("--producers", "2", "--consumers", "3", "--sizes", "100", "--messages", "200")
MARK = ("sam-publish", "send", "--raw", "--class", "mark", "--no-spool")
BOTH = ("--queue", "--topic", "--persistent", "--no-persistent")


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path, broker="", database="")


def load_test(place: Workplace, url: str, *options: str) -> Answer:
    return place.run("sam-publish", "load-test", "--broker", url, "--out", "out", *options)


def results(place: Workplace) -> list[dict[str, Any]]:
    text = (place.directory / "out" / "results.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def eventually(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    ends_at = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.1)


def leftovers(broker: StompServer, documents: Sequence[dict[str, Any]]) -> set[str]:
    """What the broker has of a test: queues, or on ActiveMQ durable subscriptions.

    Artemis deletes an empty queue only within a minute.
    """
    if isinstance(broker, ArtemisServer | RabbitMQServer):
        ours = {name for name in broker.queues() if "sam-load-test" in name}
        empty = () if isinstance(broker, RabbitMQServer) else (".queue",)
        return {name for name in ours if not name.endswith(empty)}
    durable = [one for one in documents if (one["kind"], one["persistent"]) == ("topic", True)]
    assert durable
    return {
        name
        for one in durable
        for consumer in range(one["consumers"])
        if exists(broker, name := f"sam-load-test.{one['run']}.{one['number']}.{consumer}")
    }


def exists(broker: StompServer, name: str) -> bool:
    """Whether ActiveMQ has a durable subscription of this name, which it then deletes."""
    with socket.create_connection((broker.host, broker.port), timeout=10) as connection:
        reader = FrameReader()
        login = {"accept-version": "1.2", "host": "/", "client-id": name}
        connection.sendall(encode("CONNECT", login))
        while not (frames := list(reader.feed(connection.recv(65536)))):
            pass
        assert frames[0].command == "CONNECTED"
        headers = {"id": "load", "activemq.subscriptionName": name, "receipt": "1"}
        connection.sendall(encode("UNSUBSCRIBE", headers))
        while not (frames := list(reader.feed(connection.recv(65536)))):
            pass
    if frames[0].command == "ERROR":
        assert "No durable subscription exists" in frames[0].headers["message"]
    return frames[0].command == "RECEIPT"


def test_every_message_arrives_and_nothing_is_left_at_the_broker(
    place: Workplace, broker: StompServer
) -> None:
    done = load_test(place, broker.url, *SMALL, *BOTH)

    assert done.code == 0, str(done)
    documents = results(place)
    modes = {(one["kind"], one["persistent"]) for one in documents}
    assert modes == {(kind, mode) for kind in ("topic", "queue") for mode in (True, False)}
    for one in documents:
        copies = one["consumers"] if one["kind"] == "topic" else 1
        assert one["ended_by"] == "complete"
        assert one["sent"] == one["confirmed"] == 200
        assert one["delivered"] == one["expected"] == 200 * copies
        assert one["lost"] == one["late"] == one["duplicates"] == one["foreign"] == 0
        assert one["problems"] == []
        assert 0 < one["lag_ms"]["median"] <= one["lag_ms"]["p99"] <= one["lag_ms"]["maximum"]
        assert one["received_per_s"] > 0
        assert sum(one["series"]["received_per_s"]) * one["series"]["interval_s"] == pytest.approx(
            one["delivered"], rel=0.01
        )
        has_broker_time = not isinstance(broker, RabbitMQServer)
        assert (one["to_broker_ms"] is not None) == has_broker_time
    assert "at most 1 000 messages sent" in done.out
    assert done.out.count("matrix ") == len(documents)
    assert leftovers(broker, documents) == set()
    if not isinstance(broker, RabbitMQServer):
        queue = f"/queue/sam-load-test.{documents[0]['run']}.queue"
        place.run(*MARK, "--broker", broker.url, "--destination", queue, stdin="mark")
        with subscribed(broker, queue) as frames:
            assert next(frames).body == b"mark", "there were messages before it"
    page = (place.directory / "out" / "report.html").read_text()
    assert documents[0]["server"] in page


def test_losses_and_duplicates_are_found_by_id(place: Workplace) -> None:
    with FakeBroker() as broker:
        times = {17: 0, 18: 0, 30: 2}  # after the warm-up
        broker.copies = lambda number: times.get(number, 1) if len(broker.taken) > 200 else 1
        done = load_test(place, broker.url, *SMALL, "--producers", "1", "--seconds", "1")

    assert done.code == 65, str(done)
    (one,) = results(place)
    assert (one["ended_by"], one["lost"], one["duplicates"]) == ("quiet", 3 * 2, 3)
    assert one["lost_ids"] == [f"producer 0 message 16 to 17 at consumer {n}" for n in range(3)]
    assert one["duplicate_ids"] == [f"producer 0 message 29 at consumer {n}" for n in range(3)]
    assert "the broker lost 6 messages" in done.out + done.err
    assert len(broker.all_of("UNSUBSCRIBE")) == 2 * (
        3 + 1
    )  # of each consumer, and its durable subscription


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_what_was_measured(
    place: Workplace, rabbitmq: RabbitMQServer, number: signal.Signals
) -> None:
    command = ("sam-publish", "load-test", "--broker", rabbitmq.url, "--out", "out", *SMALL)
    many = ("--messages", "10000000", "--seconds", "60", "--consumers", "1,2")
    with place.running(*command, *many) as process:
        # The warm-up has ended when the table begins.
        eventually(lambda: "per consumer" in (place.directory / "running.log").read_text())
        time.sleep(0.5)
        os.killpg(process.pid, number)  # as a terminal does
        process.wait(40)

    assert process.returncode == 128 + number, (place.directory / "running.log").read_text()
    (one,) = results(place)
    assert one["ended_by"] == "interrupted"
    assert one["delivered"] > 0
    assert one["lost"] == 0
    log = (place.directory / "running.log").read_text()
    assert f"stopped by {number.name}: 1 of 2 cells were measured" in log
    assert (place.directory / "out" / "report.html").exists()
    assert leftovers(rabbitmq, [one]) == set()


@pytest.mark.parametrize(
    ("broker", "with_all_processes"), [("artemis", False), ("rabbitmq", True)], indirect=["broker"]
)
def test_killed_it_leaves_no_subscription_either(
    place: Workplace, broker: StompServer, with_all_processes: bool
) -> None:
    command = ("sam-publish", "load-test", "--broker", broker.url, *SMALL)
    with place.running(*command, "--messages", "10000000", "--seconds", "60") as process:
        eventually(lambda: leftovers(broker, []) != set())
        if with_all_processes:
            os.killpg(process.pid, signal.SIGKILL)
        else:  # the others notice
            process.kill()
        process.wait(10)
        eventually(lambda: leftovers(broker, []) == set())


def test_flow_control_shows_while_one_consumer_is_slow(
    place: Workplace, rabbitmq: RabbitMQServer
) -> None:
    done = load_test(
        place,
        rabbitmq.url,
        *("--scenario", "flow-control", "--seconds", "2", "--no-persistent"),
        *("--messages", "20000"),
    )

    assert done.code == 0, str(done)
    (one,) = results(place)
    series = one["series"]
    from_s, until_s = series["slow_between_s"]
    assert (from_s, until_s) == pytest.approx((0.667, 1.333))
    slow = range(int(from_s / series["interval_s"]) + 2, int(until_s / series["interval_s"]) - 1)
    taken, others = (
        sum(series[name][at] for at in slow) for name in ("slow_per_s", "others_per_s")
    )
    assert taken / len(slow) <= 200
    assert taken <= others
    assert one["lost"] == one["duplicates"] == 0
    assert one["delivered"] + one["late"] == one["expected"]


def test_another_host_is_refused_before_anything_is_sent(place: Workplace) -> None:
    refused = load_test(place, "stomp://192.0.2.1:61613", *SMALL)
    wrong = load_test(
        place, "stomp://192.0.2.1:61613", *SMALL, "--yes-this-broker", "test.example.org"
    )

    assert (refused.code, wrong.code) == (64, 64)
    assert "--yes-this-broker 192.0.2.1" in refused.err
    assert "names test.example.org" in wrong.err
    assert not (place.directory / "out").exists()


def test_a_broker_that_is_away_is_reported(place: Workplace) -> None:
    done = load_test(place, f"stomp://127.0.0.1:{closed_port()}", *SMALL)

    assert done.code == 69
    assert "connection refused" in done.err


def test_the_commands_of_the_page_measure_twice_and_compare(place: Workplace) -> None:
    with FakeBroker(copies=lambda number: 1) as broker:
        smaller = {"stomp://localhost:61613": broker.url, "1,5": "1", "1,10": "3", "2000": "50"}
        blocks = Page("docs/load-test.md").texts("sh")
        for text, other in smaller.items():
            blocks = [block.replace(text, other) for block in blocks]
        done = shell(place, *blocks)
    one = place.run("sam-publish", "load-test", "--compare", "first", "--out", "both")
    missing = place.run("sam-publish", "load-test", "--compare", "first", "x", "--out", "both")

    assert done.code == 0, str(done)
    page = (place.directory / "comparison" / "report.html").read_text()
    assert "first: 1 kB" in page
    assert "second: 1 kB" in page
    assert (one.code, missing.code) == (64, 66)


def test_the_documents_can_be_printed_instead_of_the_table(place: Workplace) -> None:
    with FakeBroker(copies=lambda number: 1) as broker:
        done = place.run("sam-publish", "load-test", "--broker", broker.url, *SMALL, "--json")

    assert json.loads(done.out)["delivered"] == 600
    assert "at most" in done.err
