"""A consumer killed at any instant may repeat work, but nothing is lost or duplicated.

`make soak` does the same for longer and also kills the broker and the database.
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
def workplace(tmp_path: Path, activemq: ActiveMQServer, postgres: PostgresServer) -> Workplace:
    """A workplace with a subscription and batches so small that most kills hit one."""
    workplace = Workplace(
        tmp_path,
        broker=activemq.url,
        database=fresh_database(postgres),
        name="kill",
        destination_prefix="/topic/kill",
        consumer_settings="batch_size = 50",
    ).write_configuration()
    workplace.succeed("sam-db", "upgrade")
    workplace.succeed("sam-consume", "run", "--drain")
    return workplace


def test_five_kills_lose_nothing_and_store_nothing_twice(workplace: Workplace) -> None:
    with ThreadPoolExecutor() as executor:
        publishing = executor.submit(_publish, workplace)
        stored = [_kill_while_it_loads(workplace, number) for number in range(KILLS)]
        published = publishing.result()
    drained = workplace.run("sam-consume", "run", "--drain")

    assert drained.code in (0, 65), str(drained)
    rows, dead = _rows(workplace), _dead_letters(workplace)
    assert len(published) == GOOD + BAD
    assert set(rows) | set(dead) == published
    assert set(rows) & set(dead) == set()
    assert (len(rows), len(dead)) == (GOOD, BAD)
    assert _most_common(rows) == _most_common(dead) == 1
    assert len(set(stored)) > KILLS // 2  # most kills hit a consumer that was loading


def _publish(workplace: Workplace) -> set[str]:
    """Publish one record per message, every fiftieth of them bad; the ids of all messages."""
    good = workplace.write("good.txt", "".join(_record(number) for number in range(GOOD)))
    bad = [workplace.write(f"bad/{n}", _record(n).replace("OK", "SPLENDID")) for n in range(BAD)]
    to_topic = ["--destination", DESTINATION, "--timeout", "60", "--no-spool", "--json"]
    first = workplace.succeed("sam-publish", "send", "--raw", *to_topic, *bad[: BAD // 2]).json
    middle = workplace.succeed("sam-publish", "send", "--one-per-message", *to_topic, good).json
    last = workplace.succeed("sam-publish", "send", "--raw", *to_topic, *bad[BAD // 2 :]).json
    return {
        message["message_id"] for answer in (first, middle, last) for message in answer["messages"]
    }


def _kill_while_it_loads(workplace: Workplace, number: int) -> int:
    """Kill the consumer shortly after its first commit; the number of stored messages."""
    chance = random.Random(number)
    before = _stored(workplace)
    with workplace.running("sam-consume", "run") as consumer:
        deadline = time.monotonic() + 10
        while _stored(workplace) == before and before < GOOD + BAD and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(chance.random() * 0.05)
        os.kill(consumer.pid, signal.SIGKILL)
    return _stored(workplace)


def _record(number: int) -> str:
    return (
        f"hostName: ce{number:05}.example.org\nserviceFlavour: CE\nmetricName: org.example.Ping\n"
        "metricStatus: OK\ntimestamp: 2024-02-28T12:00:00Z\nEOT\n"
    )


def _stored(workplace: Workplace) -> int:
    statement = (
        "SELECT (SELECT count(*) FROM metricOutput) + (SELECT count(*) FROM dead_letter) AS n"
    )
    return int(query(workplace.database, statement)[0]["n"])


def _rows(workplace: Workplace) -> list[str]:
    return list(_column(workplace, "SELECT messageId AS id FROM metricOutput"))


def _dead_letters(workplace: Workplace) -> list[str]:
    return list(_column(workplace, "SELECT message_id AS id FROM dead_letter"))


def _column(workplace: Workplace, statement: str) -> Iterator[str]:
    return (row["id"] for row in query(workplace.database, statement))


def _most_common(ids: list[str]) -> int:
    return Counter(ids).most_common(1)[0][1]
