"""`sam-publish load-test` with real brokers, and with one that loses and repeats messages."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.services.artemis import ArtemisServer
from tests.services.broker import StompServer
from tests.services.rabbitmq import RabbitMQServer
from tests.support.brokers.fake_broker import FakeBroker
from tests.support.commands import Answer, Workplace
from tests.support.waiting import eventually

SMALL = ("--producers", "2", "--consumers", "3", "--sizes", "100", "--messages", "200")
BOTH = ("--queue", "--topic", "--persistent", "--no-persistent")
ENDLESS = ("--messages", "10000000", "--seconds", "60")


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path, broker="", database="")


def load_test(place: Workplace, url: str, *options: str) -> Answer:
    return place.run("sam-publish", "load-test", "--broker", url, "--out", "out", *options)


def results(place: Workplace) -> list[dict[str, Any]]:
    text = (place.directory / "out" / "results.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def leftovers(broker: StompServer) -> set[str]:
    """Queues of load tests; Artemis deletes an empty queue only within a minute."""
    if not isinstance(broker, ArtemisServer | RabbitMQServer):
        return set()
    of_artemis = (".queue",) if isinstance(broker, ArtemisServer) else ()
    ours = {name for name in broker.queues() if "sam-load-test" in name}
    return {name for name in ours if not name.endswith(of_artemis)}


def test_every_message_arrives_and_nothing_is_left(place: Workplace, broker: StompServer) -> None:
    before = leftovers(broker)
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
        assert (
            0 < one["lag_ms"]["median"] <= one["lag_ms"]["p99"] <= one["lag_ms"]["maximum"] < 60_000
        )
        has_broker_time = not isinstance(broker, RabbitMQServer)
        assert (one["to_broker_ms"] is not None) == has_broker_time
    assert "at most 1 000 messages sent" in done.out
    assert done.out.count("matrix ") == len(documents)
    assert leftovers(broker) <= before


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
    unsubscribed = len(broker.all_of("UNSUBSCRIBE"))
    assert unsubscribed == 2 * (3 + 1)  # of each consumer, and its durable subscription


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_what_was_measured(
    place: Workplace, rabbitmq: RabbitMQServer, number: signal.Signals
) -> None:
    before, log = leftovers(rabbitmq), place.directory / "running.log"
    command = ("sam-publish", "load-test", "--broker", rabbitmq.url, "--out", "out", *SMALL)
    with place.running(*command, *ENDLESS, "--consumers", "1,2") as process:
        eventually(log.exists)
        eventually(lambda: "per consumer" in log.read_text())  # the warm-up has ended
        time.sleep(0.5)
        os.killpg(process.pid, number)  # as a terminal does
        process.wait(60)

    assert process.returncode == 128 + number, log.read_text()
    (one,) = results(place)
    assert (one["ended_by"], one["lost"]) == ("interrupted", 0)
    assert one["delivered"] > 0
    assert f"stopped by {number.name}: 1 of 2 cells were measured" in log.read_text()
    eventually(lambda: leftovers(rabbitmq) <= before)


@pytest.mark.parametrize("kill", [os.kill, os.killpg])  # the processes that are left notice
def test_killed_it_leaves_no_subscription_either(
    place: Workplace, rabbitmq: RabbitMQServer, kill: Callable[[int, int], None]
) -> None:
    before = leftovers(rabbitmq)
    command = ("sam-publish", "load-test", "--broker", rabbitmq.url, *SMALL)
    with place.running(*command, *ENDLESS) as process:
        left = eventually(lambda: leftovers(rabbitmq) - before)
        kill(process.pid, signal.SIGKILL)
        process.wait(30)
        eventually(lambda: not leftovers(rabbitmq) & left)


def test_flow_control_shows_a_slow_consumer(place: Workplace, rabbitmq: RabbitMQServer) -> None:
    options = ("--scenario", "flow-control", "--seconds", "2", "--no-persistent")
    done = load_test(place, rabbitmq.url, *options, "--messages", "20000")

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


def test_runs_are_printed_as_documents_and_compared(place: Workplace) -> None:
    with FakeBroker(copies=lambda number: 1) as broker:
        for name in ("first", "second"):
            options = ("--broker", broker.url, "--out", name, *SMALL, "--json")
            done = place.succeed("sam-publish", "load-test", *options)
    compare = ("sam-publish", "load-test", "--out", "both", "--compare", "first")

    assert done.json["delivered"] == 600
    assert "at most" in done.err
    if find_spec("matplotlib") is None:
        assert "report.html: matplotlib is not installed: run pip install" in done.err
        assert place.run(*compare, "second").code == 69
        return
    place.succeed(*compare, "second")
    page = (place.directory / "both" / "report.html").read_text()
    assert "first: 100 B" in page and "second: 100 B" in page
    assert (place.directory / "first" / "report.html").exists()
    assert place.run(*compare, "x").code == 66
