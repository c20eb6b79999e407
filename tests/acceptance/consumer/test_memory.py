"""Whatever a publisher sends, the consumer stays within the memory that its service may use."""

from __future__ import annotations

import base64
import configparser
import json
import subprocess
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from sam_pipeline.schema.messages.message import CLASS, CONTENT_TYPE, JSON, MESSAGE_ID, Message
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.schema.spool.element import serialise
from sam_pipeline.schema.spool.queue import DirectoryQueue
from tests.services.broker import StompServer
from tests.services.postgres import PostgresServer, fresh_database
from tests.services.process import wait_until
from tests.support.builders import metric_message, metric_result
from tests.support.commands import Workplace
from tests.support.consumer.daemon import locked
from tests.support.consumer.memory import MIB, limit_memory, need_memory_limit, peak_mb
from tests.support.consumer.publisher import publish
from tests.support.reports.stored import query

MB = 1_000_000
PEAK_MB = 150
UNIT = Path(__file__).parents[3] / "deploy/systemd/consumer/sam-consume.service"
LONGEST = Limits().max_message_bytes
WAIT_S = 120.0
FULL = 150
"""How many messages of 100 kB are in memory before the consumer waits, at least."""
JSON_HEADERS = {CLASS: "metricOutput", CONTENT_TYPE: JSON}


@pytest.fixture(params=["sqlite", "postgresql"])
def workplace(request: pytest.FixtureRequest, tmp_path: Path) -> Workplace:
    if request.param == "sqlite":
        return made(tmp_path, f"sqlite:///{tmp_path / 'sam.db'}")
    return made(tmp_path, fresh_database(request.getfixturevalue("postgres")))


def made(directory: Path, database: str) -> Workplace:
    workplace = Workplace(
        directory, broker=f"spool://{directory / 'spool'}", database=database
    ).write_configuration()
    workplace.succeed("sam-db", "upgrade")
    return workplace


def memory_max() -> int:
    """The limit of the service in bytes, from its unit."""
    # Keys like LoadCredential may be given several times.
    unit = configparser.ConfigParser(interpolation=None, comment_prefixes="#", strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    return int(unit["Service"]["MemoryMax"].removesuffix("M")) * MIB


@contextmanager
def limited_consumer(workplace: Workplace) -> Iterator[subprocess.Popen[bytes]]:
    """`sam-consume run` with no more memory than as a service; it must survive the block."""
    need_memory_limit()
    with workplace.running("sam-consume", "run") as daemon:
        limit_memory(daemon.pid, memory_max())
        yield daemon
        log = (workplace.directory / "running.log").read_text()
        assert daemon.poll() is None, log
        assert peak_mb(daemon.pid) <= PEAK_MB, log


def fill(workplace: Workplace, elements: Iterable[bytes]) -> None:
    queue, waiting = DirectoryQueue(workplace.directory / "spool"), iter(elements)
    while batch := list(islice(waiting, 50)):
        list(queue.store_all(batch))


def element(body: bytes, message_id: str, encoding: str = "") -> bytes:
    """An element whose body is written as it is."""
    head = {"header": {CLASS: "metricOutput", MESSAGE_ID: message_id}, "encoding": encoding}
    return json.dumps(head).encode()[:-1] + b', "body": "' + body + b'"}'


def of_result(number: int, details: str = "", headers: Mapping[str, str] | None = None) -> bytes:
    """An element with a result of its own."""
    record = metric_result(timestamp=str(1_795_000_000 + number), detailsData=details)
    message = metric_message(record)
    return serialise(Message({**message.headers, **(headers or {})}, message.body))


def array_of(item: str) -> bytes:
    """An element with a JSON array of the largest size."""
    items = ",".join([item] * ((LONGEST - 2) // (len(item) + 1)))
    return serialise(Message({**JSON_HEADERS, MESSAGE_ID: item}, f"[{items}]".encode()))


def rows(workplace: Workplace) -> int:
    [row] = query(workplace.database, "SELECT count(*) AS n FROM metricOutput")
    return int(row["n"])


def letters(workplace: Workplace) -> list[tuple[str, str, int]]:
    """Reason, message id and length of the body of each dead letter, by id."""
    found = query(
        workplace.database,
        "SELECT reason, message_id, body_bytes AS size FROM dead_letter ORDER BY message_id",
    )
    return [(row["reason"], row["message_id"], row["size"]) for row in found]


def test_bodies_of_100_mb_become_dead_letters_in_the_memory_of_the_service(
    workplace: Workplace,
) -> None:
    body = b"0" * 100 * MB
    fill(
        workplace,
        [
            element(body, "a-text"),
            element(base64.b64encode(zlib.compress(body)), "b-zlib", "base64+zlib"),
            of_result(1),
        ],
    )
    del body

    with limited_consumer(workplace):
        wait_until(lambda: rows(workplace) == 1, timeout_s=WAIT_S)

    kept = 64 * 1024
    assert letters(workplace) == [
        ("too-large", "a-text", kept),
        ("too-large", "b-zlib", kept),
    ]


def test_a_body_of_60_mb_of_a_broker_stays_within_the_memory_of_the_service(
    tmp_path: Path, broker: StompServer
) -> None:
    prefix = f"/topic/large.{uuid.uuid4().hex}"
    workplace = Workplace(
        tmp_path,
        broker=broker.url,
        database=f"sqlite:///{tmp_path / 'sam.db'}",
        name=f"large-{uuid.uuid4().hex}",
        destination_prefix=prefix,
    ).write_configuration()
    workplace.succeed("sam-db", "upgrade")
    log = tmp_path / "running.log"
    large = Message({CLASS: "metricOutput", MESSAGE_ID: "a-large"}, b"0" * 60 * MB)

    with limited_consumer(workplace):
        wait_until(lambda: ": subscribed" in log.read_text(), timeout_s=WAIT_S)
        for message in (large, metric_message()):
            where = f"{prefix}.metricOutput"
            publish(broker.host, broker.port, where, [message], timeout_s=WAIT_S)
        wait_until(lambda: rows(workplace) == 1, timeout_s=WAIT_S)

    assert letters(workplace) == [("too-large", "a-large", 64 * 1024)]


def test_the_largest_messages_and_heads_stay_within_the_memory_of_the_service(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    workplace = made(tmp_path, fresh_database(postgres))
    comment = {"comment": "x" * 64_000}
    tiny = {str(number): "" for number in range(10_000)}
    details = "x" * (LONGEST - 1000)
    fill(workplace, (of_result(number, headers=comment) for number in range(1_600)))
    fill(workplace, (of_result(number, headers=tiny) for number in range(1_600, 1_640)))
    fill(workplace, (of_result(number, details) for number in range(1_640, 1_652)))
    fill(workplace, [array_of(item) for item in ("{}", '{"a":"b"}')])
    fill(workplace, [of_result(1_652)])

    with limited_consumer(workplace):
        wait_until(lambda: rows(workplace) == 1_653, timeout_s=WAIT_S)

    assert [reason for reason, _, _ in letters(workplace)] == ["too-many-records"] * 2


def test_a_backlog_behind_a_locked_database_is_loaded_in_the_memory_of_the_service(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    workplace = made(tmp_path, fresh_database(postgres))
    details = "0123456789" * 10_000
    fill(workplace, [element(b"0" * 60 * MB, "a-large")])
    fill(workplace, (of_result(number, details) for number in range(1_200)))

    with limited_consumer(workplace) as daemon:
        with locked(workplace.database, "metric_result"):
            spool = workplace.directory / "spool"
            wait_until(lambda: len(list(spool.rglob("*.lck"))) > FULL, timeout_s=WAIT_S)
            time.sleep(3)  # without a limit, everything would be in memory by now
            full_mb = peak_mb(daemon.pid)
        wait_until(lambda: rows(workplace) == 1_200, timeout_s=WAIT_S)

    assert full_mb <= PEAK_MB
    assert letters(workplace) == [("too-large", "a-large", 64 * 1024)]
