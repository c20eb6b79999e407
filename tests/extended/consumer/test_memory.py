"""Whatever a publisher sends, the consumer stays within the memory that its service may use."""

from __future__ import annotations

import base64
import configparser
import json
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
from tests.support.builders import metric_message, metric_result
from tests.support.consumer.daemon import Daemon, Subscription, locked, running, site_of
from tests.support.consumer.memory import MIB, limit_memory, need_memory_limit, peak_mb
from tests.support.consumer.publisher import publish
from tests.support.consumer.site import Site, eventually, make_site, sqlite_site

MB = 1_000_000
PEAK_MB = 150
UNIT = Path(__file__).parents[3] / "deploy/systemd/consumer/sam-consume.service"
LONGEST = Limits().max_message_bytes
WAIT_S = 120.0
FULL = 150
"""How many messages of 100 kB are in memory before the consumer waits, at least."""
KEPT = 64 * 1024
"""How much of a body that is too large a dead letter keeps."""
JSON_HEADERS = {CLASS: "metricOutput", CONTENT_TYPE: JSON}


def memory_max() -> int:
    """The limit of the service in bytes, from its unit."""
    # Keys like LoadCredential may be given several times.
    unit = configparser.ConfigParser(interpolation=None, comment_prefixes="#", strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    return int(unit["Service"]["MemoryMax"].removesuffix("M")) * MIB


@contextmanager
def limited_consumer(site: Site) -> Iterator[Daemon]:
    """A consumer with no more memory than as a service; it must survive the block."""
    need_memory_limit()
    with running(site) as daemon:
        limit_memory(daemon.process.pid, memory_max())
        yield daemon
        assert daemon.alive, daemon.log
        assert peak_mb(daemon.process.pid) <= PEAK_MB, daemon.log


def fill(site: Site, elements: Iterable[bytes]) -> None:
    queue, waiting = DirectoryQueue(site.config.with_name("spool")), iter(elements)
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


def letters(site: Site) -> list[str]:
    """Reason, message id and length of the body of each dead letter."""
    columns = "reason || ' ' || message_id || ' ' || body_bytes"
    return site.column(f"SELECT {columns} FROM dead_letter ORDER BY message_id")


@pytest.fixture
def site(tmp_path: Path, postgres_url: str) -> Site:
    return make_site(tmp_path, postgres_url, [f"spool://{tmp_path}/spool"])


def test_bodies_of_100_mb_become_dead_letters_in_the_memory_of_the_service(tmp_path: Path) -> None:
    site, body = sqlite_site(tmp_path), b"0" * 100 * MB
    packed = base64.b64encode(zlib.compress(body))
    fill(site, [element(body, "a-text"), element(packed, "b-zlib", "base64+zlib"), of_result(1)])
    del body

    with limited_consumer(site):
        eventually(lambda: site.rows() == 1, WAIT_S)

    assert letters(site) == [f"too-large a-text {KEPT}", f"too-large b-zlib {KEPT}"]


def test_a_body_of_60_mb_of_a_broker_stays_within_the_memory_of_the_service(
    tmp_path: Path, broker: StompServer
) -> None:
    topic = f"/topic/large.{uuid.uuid4().hex}"
    site = site_of(tmp_path, [broker.url], Subscription(topic))
    large = Message({CLASS: "metricOutput", MESSAGE_ID: "a-large"}, b"0" * 60 * MB)

    with limited_consumer(site) as daemon:
        daemon.wait_until_subscribed(broker.url)
        for message in (large, metric_message()):
            publish(broker.host, broker.port, topic, [message], timeout_s=WAIT_S)
        eventually(lambda: site.rows() == 1, WAIT_S)

    assert letters(site) == [f"too-large a-large {KEPT}"]


def test_the_largest_messages_and_heads_stay_within_the_memory_of_the_service(site: Site) -> None:
    comment = {"comment": "x" * 64_000}
    tiny = {str(number): "" for number in range(10_000)}
    details = "x" * (LONGEST - 1000)
    fill(site, (of_result(number, headers=comment) for number in range(1_600)))
    fill(site, (of_result(number, headers=tiny) for number in range(1_600, 1_640)))
    fill(site, (of_result(number, details) for number in range(1_640, 1_652)))
    fill(site, [array_of(item) for item in ("{}", '{"a":"b"}')])
    fill(site, [of_result(1_652)])

    with limited_consumer(site):
        eventually(lambda: site.rows() == 1_653, WAIT_S)

    assert [letter.split()[0] for letter in letters(site)] == ["too-many-records"] * 2


def test_a_backlog_behind_a_locked_database_is_loaded_in_the_memory_of_the_service(
    site: Site,
) -> None:
    details = "0123456789" * 10_000
    fill(site, [element(b"0" * 60 * MB, "a-large")])
    fill(site, (of_result(number, details) for number in range(1_200)))

    with limited_consumer(site) as daemon:
        with locked(site.database, "metric_result"):
            spool = site.config.with_name("spool")
            eventually(lambda: len(list(spool.rglob("*.lck"))) > FULL, WAIT_S)
            time.sleep(3)  # without a limit, everything would be in memory by now
            full_mb = peak_mb(daemon.process.pid)
        eventually(lambda: site.rows() == 1_200, WAIT_S)

    assert full_mb <= PEAK_MB
    assert letters(site) == [f"too-large a-large {KEPT}"]
