"""Killed at any instant, the consumer may repeat work; nothing is lost, nothing there twice.

`make soak` does it for longer, and kills the broker and the database, too.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.services.activemq import ActiveMQServer
from tests.services.postgres import PostgresServer, fresh_database
from tests.support.commands import Workplace
from tests.support.reports.stored import query

GOOD = 2_450
BAD = 50
KILLS = 5
DESTINATION = "/topic/kill.metricOutput"


@pytest.fixture
def place(tmp_path: Path, activemq: ActiveMQServer, postgres: PostgresServer) -> Workplace:
    """Subscribed; batches so small that most kills fall into one."""
    place = Workplace(
        tmp_path,
        broker=activemq.url,
        database=fresh_database(postgres),
        name="kill",
        destination_prefix="/topic/kill",
        consumer_settings="batch_size = 50",
    ).write_configuration()
    place.succeed("sam-db", "upgrade")
    place.succeed("sam-consume", "run", "--drain")
    return place


def test_five_kills_lose_nothing_and_store_nothing_twice(place: Workplace) -> None:
    with ThreadPoolExecutor() as beside:
        publishing = beside.submit(_publish, place)
        survived = [_kill_while_it_loads(place, number) for number in range(KILLS)]
        published = publishing.result()
    drained = place.run("sam-consume", "run", "--drain")

    assert drained.code in (0, 65), str(drained)
    rows, dead = _rows(place), _dead_letters(place)
    assert len(published) == GOOD + BAD
    assert set(rows) | set(dead) == published
    assert set(rows) & set(dead) == set()
    assert (len(rows), len(dead)) == (GOOD, BAD)
    assert _most_common(rows) == _most_common(dead) == 1
    assert len(set(survived)) > KILLS // 2  # most kills fell while messages were flowing


def _publish(place: Workplace) -> set[str]:
    """One record a message, every fiftieth of them broken; the ids of all."""
    good = place.write("good.txt", "".join(_record(number) for number in range(GOOD)))
    bad = [place.write(f"bad/{n}", _record(n).replace("OK", "SPLENDID")) for n in range(BAD)]
    to_topic = ["--destination", DESTINATION, "--timeout", "60", "--no-spool", "--json"]
    half = place.succeed("sam-publish", "send", "--raw", *to_topic, *bad[: BAD // 2]).json
    most = place.succeed("sam-publish", "send", "--one-per-message", *to_topic, good).json
    rest = place.succeed("sam-publish", "send", "--raw", *to_topic, *bad[BAD // 2 :]).json
    return {
        message["message_id"] for answer in (half, most, rest) for message in answer["messages"]
    }


def _kill_while_it_loads(place: Workplace, number: int) -> int:
    """Start the consumer, SIGKILL it some moments after its first commit; what is stored then."""
    chance = random.Random(number)
    before = _stored(place)
    with place.running("sam-consume", "run") as consumer:
        deadline = time.monotonic() + 10
        while _stored(place) == before and before < GOOD + BAD and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(chance.random() * 0.05)
        os.kill(consumer.pid, signal.SIGKILL)
    return _stored(place)


def _record(number: int) -> str:
    return (
        f"hostName: ce{number:05}.example.org\nserviceFlavour: CE\nmetricName: org.example.Ping\n"
        "metricStatus: OK\ntimestamp: 2024-02-28T12:00:00Z\nEOT\n"
    )


def _stored(place: Workplace) -> int:
    statement = (
        "SELECT (SELECT count(*) FROM metricOutput) + (SELECT count(*) FROM dead_letter) AS n"
    )
    return int(query(place.database, statement)[0]["n"])


def _rows(place: Workplace) -> list[str]:
    return list(_column(place, "SELECT messageId AS id FROM metricOutput"))


def _dead_letters(place: Workplace) -> list[str]:
    return list(_column(place, "SELECT message_id AS id FROM dead_letter"))


def _column(place: Workplace, statement: str) -> Iterator[str]:
    return (row["id"] for row in query(place.database, statement))


def _most_common(ids: list[str]) -> int:
    return Counter(ids).most_common(1)[0][1]
