"""The services for the consumer's benchmarks: a broker, a PostgreSQL and a configuration."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Engine, text

from sam_pipeline.schema.messages.message import Message, new_message, new_message_id
from sam_pipeline.schema.net.stomp_frame import FrameReader
from sam_pipeline.schema.records.text import Record, write_wlcg
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.engine import make_engine, reading
from sam_pipeline.sql.database.version import upgrade
from tests.benchmarks import records
from tests.benchmarks.load import SETTINGS
from tests.services import activemq, artemis, rabbitmq
from tests.services.postgres import PostgresServer, as_role, fresh_database, running_postgres
from tests.support.consumer.publisher import publish

TOPIC = "grid.probe.metricOutput"
DESTINATION = f"/topic/{TOPIC}"
NAME = "bench"
TIMEOUT_S = 600
SOURCES = 2000
"""The number of metric instances: after one result of each the next time begins."""
FIRST_MOMENT = datetime.now(UTC) - timedelta(days=1)
CHUNK = 1000
"""The number of messages that are made and sent at a time."""

# Each row has the time of its commit (more precisely, of the flush before the end of the commit).
POSTGRES = {**SETTINGS, "track_commit_timestamp": "on"}
COMMITS = text("""
    SELECT extract(epoch FROM pg_xact_commit_timestamp(xmin)) AS moment, count(*) AS rows
    FROM metric_result WHERE message_id > :after GROUP BY 1 ORDER BY 1
""")


@dataclass(frozen=True)
class Kind:
    """How to start a broker, and how a bare client reads from it fastest."""

    start: Callable[[], AbstractContextManager[Any]]
    bare_way: str
    bare_headers: Sequence[str]


BROKERS: Mapping[str, Kind] = {
    "activemq": Kind(
        activemq.running_activemq,
        "transaction",
        ["activemq.subscriptionName:bare", "activemq.prefetchSize:5000"],
    ),
    "artemis": Kind(
        artemis.running_artemis,
        "cumulative",
        ["durable-subscription-name:bare", "consumer-window-size:1000000"],
    ),
    "rabbitmq": Kind(
        rabbitmq.running_rabbitmq,
        "transaction",
        ["x-queue-name:bare", "durable:true", "auto-delete:false", "prefetch-count:5000"],
    ),
}


@dataclass(frozen=True)
class Commits:
    """The rows of some messages: their number, their transactions, and the rows in the first one.

    `first` and `last` are the times of the first and the last commit (s since 1970).
    """

    rows: int
    transactions: int
    first_rows: int
    first: float
    last: float


@dataclass
class Road:
    """A running broker and PostgreSQL, with a database that contains only the schema."""

    kind: str
    broker: Any
    postgres: PostgresServer
    database: str
    engine: Engine
    directory: Path
    results: Iterator[Record] = field(default_factory=lambda: new_results())

    def publish(self, count: int, make: Callable[[Iterator[Record]], Message]) -> str:
        """Send messages; return an id that is smaller than theirs."""
        before = new_message_id()
        for at in range(0, count, CHUNK):
            messages = [make(self.results) for _ in range(min(CHUNK, count - at))]
            publish(self.broker.host, self.broker.port, DESTINATION, messages)
        return before

    def commits(self, after: str) -> Commits:
        """The commits of messages with larger ids."""
        with reading(self.engine) as connection:
            commits = [tuple(row) for row in connection.execute(COMMITS, {"after": after})]
        if not commits:
            return Commits(0, 0, 0, 0, 0)
        (first, first_rows), (last, _) = commits[0], commits[-1]
        rows = sum(count for _, count in commits)
        return Commits(rows, len(commits), first_rows, float(first), float(last))

    @contextmanager
    def consumer(self, *options: str) -> Iterator[Consumer]:
        """A running `sam-consume run`, killed at the end of the block if it still runs."""
        consumer = Consumer(self.directory, options)
        try:
            yield consumer
        finally:
            consumer.end()

    def drain(self) -> None:
        """Subscribe, load all messages, and stop."""
        with self.consumer("--drain") as consumer:
            consumer.wait()


class Consumer:
    """A process of `sam-consume run`, observed through its log and its output."""

    def __init__(self, directory: Path, options: Sequence[str]) -> None:
        command = [
            sys.executable,
            "-m",
            "sam_pipeline.consumer",
            "--config",
            str(directory / "sam.toml"),
        ]
        self._process = subprocess.Popen(
            [*command, "run", "--json", *options],
            env={**os.environ, "STATE_DIRECTORY": str(directory)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self.subscribed_at = 0.0
        """The time from which messages could arrive, in s since 1970."""
        self._subscribed = threading.Event()
        self._log: deque[str] = deque(maxlen=20)
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    def wait_until_subscribed(self) -> None:
        if not self._subscribed.wait(60) or not self.subscribed_at:
            raise SystemExit(f"sam-consume did not subscribe:\n{''.join(self._log)}")

    def wait(self) -> dict[str, Any]:
        """The summary that a drain prints at its end."""
        assert self._process.stdout is not None
        summary = self._process.stdout.read()
        if self._process.wait(TIMEOUT_S):
            raise SystemExit(f"sam-consume failed:\n{''.join(self._log)}")
        self._reader.join()
        return json.loads(summary)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        if self._process.wait(60):
            raise SystemExit(f"sam-consume failed:\n{''.join(self._log)}")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if not self.subscribed_at and "subscribed" in line:
                self.subscribed_at = time.time()
                self._subscribed.set()
            self._log.append(line)
        self._subscribed.set()  # the process has ended


@contextmanager
def road(kind: str) -> Iterator[Road]:
    """A road whose consumer has subscribed, stopped at the end of the block."""
    with (
        TemporaryDirectory() as name,
        running_postgres(POSTGRES) as postgres,
        BROKERS[kind].start() as broker,
    ):
        database = fresh_database(postgres)
        engine = make_engine(database)
        upgrade(engine)
        directory = Path(name)
        config = directory / "sam.toml"
        config.write_text(
            f"""\
[database]
url = {json.dumps(as_role(database, "loader"))}
[consumer]
name = "{NAME}"
brokers = ["{broker.url}"]
[[consumer.subscription]]
destination = "{DESTINATION}"
"""
        )
        config.chmod(0o600)
        new_road = Road(kind, broker, postgres, database, engine, directory)
        new_road.drain()
        print(f"\n{software(broker)}", flush=True)
        yield new_road
        engine.dispose()


def software(broker: Any) -> str:
    """Name and version, from the `server` header of the broker."""
    with socket.create_connection((broker.host, broker.port), timeout=10) as connection:
        connection.sendall(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        (connected,) = FrameReader().feed(connection.recv(65536))
    return connected.headers["server"]


# Messages -------------------------------------------------------------------------------------


def new_results() -> Iterator[Record]:
    """New results without end, of the same metric instances in turn."""
    number = 0
    while True:
        moment, source = divmod(number, SOURCES)
        yield {
            **records.record(100_000 + number),
            "metricName": f"org.sam.CE-Job{source // 200}",
            "timestamp": format_time(FIRST_MOMENT + timedelta(seconds=10 * moment)),
        }
        number += 1


def single(results: Iterator[Record]) -> Message:
    """A message of one record."""
    return _message(write_wlcg(next(results)), 1)


def fifty(results: Iterator[Record]) -> Message:
    return _message("".join(map(write_wlcg, islice(results, 50))), 50)


def of_size(size_bytes: int) -> Callable[[Iterator[Record]], Message]:
    """A function that makes messages of one record, with details that fill `size_bytes`."""
    line = "INFO the job is still waiting in the queue\n"

    def make(results: Iterator[Record]) -> Message:
        record = next(results)
        lines = (size_bytes - len(write_wlcg(record))) // len(line)
        details = "".join(f"{number:03} {line[4:]}" for number in range(max(lines, 0)))
        return _message(write_wlcg({**record, "detailsData": details}), 1)

    return make


def _message(body: str, record_count: int) -> Message:
    return new_message("metricOutput", body, record_count=record_count)
