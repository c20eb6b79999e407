"""The services for the consumer's benchmarks: a broker, a PostgreSQL and a configuration."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from sqlalchemy import Engine, text

from sam_pipeline.schema.messages.message import Message, new_message, new_message_id
from sam_pipeline.schema.records.text import Record, write_wlcg
from sam_pipeline.schema.times import format_time
from sam_pipeline.sql.database.engine import make_engine, reading
from sam_pipeline.sql.database.version import upgrade
from tests.benchmarks.common import Watch, software
from tests.benchmarks.load import SETTINGS
from tests.services.brokers import BROKERS
from tests.services.postgres import PostgresServer, as_role, fresh_database, running_postgres
from tests.support.builders import metric_result
from tests.support.consumer.publisher import publish

DESTINATION = "/topic/grid.probe.metricOutput"
NAME = "bench"
TIMEOUT_S = 600
SOURCES = 2000
"""The number of metric instances: after one result of each the next time begins."""
FIRST_MOMENT = datetime.now(UTC) - timedelta(days=1)
CHUNK = 1000
"""The number of messages that are made and sent at a time."""
BARE = str(Path(__file__).with_name("bare.py"))
BARE_READS: Mapping[str, Sequence[str]] = {
    "activemq": (
        "transaction",
        "activemq.subscriptionName:bare",
        "activemq.prefetchSize:5000",
    ),
    "artemis": (
        "cumulative",
        "durable-subscription-name:bare",
        "consumer-window-size:1000000",
    ),
    "rabbitmq": (
        "transaction",
        *("x-queue-name:bare", "durable:true", "auto-delete:false", "prefetch-count:5000"),
    ),
}
"""How a bare client acknowledges and subscribes to read fastest from each broker."""

# Each row has the time of its commit (more precisely, of the flush before the end of the commit).
POSTGRES = {**SETTINGS, "track_commit_timestamp": "on"}
COMMITS = text("""
    SELECT extract(epoch FROM pg_xact_commit_timestamp(xmin)) AS moment, count(*) AS rows
    FROM metric_result WHERE message_id > :after GROUP BY 1 ORDER BY 1
""")

Maker = Callable[[Iterator[Record]], Message]


class Commits(NamedTuple):
    """The commits of some messages: the time (s since 1970) and the rows of each."""

    commits: Sequence[tuple[float, int]]

    @property
    def rows(self) -> int:
        return sum(count for _, count in self.commits)

    @property
    def first(self) -> float:
        return self.commits[0][0]

    @property
    def last(self) -> float:
        return self.commits[-1][0]


@dataclass(frozen=True)
class Road:
    """A running broker and PostgreSQL, with a database that contains only the schema."""

    kind: str
    broker: Any
    postgres: PostgresServer
    database: str
    engine: Engine
    directory: Path
    results: Iterator[Record] = field(default_factory=lambda: new_results())

    def configure(self, brokers: Sequence[str], subscription: str = "", options: str = "") -> None:
        """What the consumer reads; `options` are keys of its section."""
        config = self.directory / "sam.toml"
        config.write_text(
            f"[database]\nurl = {json.dumps(as_role(self.database, 'loader'))}\n[consumer]\n"
            f'name = "{NAME}"\nbrokers = {json.dumps(brokers)}\n{options}\n{subscription}'
        )
        config.chmod(0o600)

    def publish(self, count: int, make: Maker) -> str:
        """Send messages; return an id that is smaller than theirs."""
        before = new_message_id()
        for at in range(0, count, CHUNK):
            messages = [make(self.results) for _ in range(min(CHUNK, count - at))]
            publish(self.broker.host, self.broker.port, DESTINATION, messages)
        return before

    def commits(self, after: str) -> Commits:
        """The commits of messages with larger ids."""
        with reading(self.engine) as connection:
            rows = connection.execute(COMMITS, {"after": after})
            return Commits([(float(moment), int(count)) for moment, count in rows])

    @contextmanager
    def consumer(self, *options: str) -> Iterator[Consumer]:
        """A running `sam-consume run`, killed at the end of the block if it still runs."""
        consumer = Consumer(self.directory, options)
        try:
            yield consumer
        finally:
            consumer.end()

    def drain(self) -> dict[str, Any]:
        """Subscribe, load all messages, and stop."""
        with self.consumer("--drain") as consumer:
            return consumer.wait()

    def watch(self, pid: int) -> Watch:
        pids = {"broker": self.broker.process.pid, "PostgreSQL": self.postgres.process.pid}
        return Watch(consumer=pid, **pids)


class Consumer:
    """A process of `sam-consume run`, observed through its log and its output."""

    def __init__(self, directory: Path, options: Sequence[str]) -> None:
        program = [sys.executable, "-m", "sam_pipeline.consumer"]
        self._process = subprocess.Popen(
            [*program, "--config", str(directory / "sam.toml"), "run", "--json", *options],
            env={**os.environ, "STATE_DIRECTORY": str(directory)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid
        self._subscribed = threading.Event()
        self._log: deque[str] = deque(maxlen=20)
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    def wait_until_subscribed(self) -> None:
        if not self._subscribed.wait(60):
            raise SystemExit(f"sam-consume did not subscribe:\n{''.join(self._log)}")

    def wait(self) -> dict[str, Any]:
        """The summary that a drain prints at its end."""
        assert self._process.stdout is not None
        summary = self._process.stdout.read()
        self._check()
        document: dict[str, Any] = json.loads(summary)
        return document

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._check()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def _check(self) -> None:
        if self._process.wait(TIMEOUT_S):
            raise SystemExit(f"sam-consume failed:\n{''.join(self._log)}")

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._log.append(line)
            if "subscribed" in line:
                self._subscribed.set()


@contextmanager
def roads(kind: str, count: int = 1) -> Iterator[Sequence[Road]]:
    """A road for each of some brokers of this kind, all to one database, stopped at the end."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory()))
        postgres = stack.enter_context(running_postgres(POSTGRES))
        brokers = [stack.enter_context(BROKERS[kind]()) for _ in range(count)]
        database = fresh_database(postgres)
        engine = make_engine(database)
        upgrade(engine)
        road = Road(kind, brokers[0], postgres, database, engine, directory)
        print(f"\n{software(brokers[0])}", flush=True)
        yield [replace(road, broker=broker) for broker in brokers]
        engine.dispose()


@contextmanager
def road(kind: str) -> Iterator[Road]:
    """A road whose consumer has subscribed."""
    with roads(kind) as [new_road]:
        subscription = f'[[consumer.subscription]]\ndestination = "{DESTINATION}"\n'
        new_road.configure([new_road.broker.url], subscription)
        new_road.drain()
        yield new_road


# Messages -------------------------------------------------------------------------------------


def new_results() -> Iterator[Record]:
    """New results without end, of the same metric instances in turn."""
    for number in itertools.count(100_000):
        moment, source = divmod(number - 100_000, SOURCES)
        yield metric_result(
            hostName=f"ce{source % 200:02}.example.org",
            metricName=f"org.sam.CE-Job{source // 200}",
            siteName=f"EXAMPLE-LCG{source % 50}",
            summaryData=f"job finished in {number} s",
            timestamp=format_time(FIRST_MOMENT + timedelta(seconds=10 * moment)),
            voFqan="/ops/Role=lcgadmin",
            performanceData=f"time={number}s;400;600;0",
            detailsData=f"job {number} was sent\nand came back",
        )


def of(count: int) -> Maker:
    """Messages of that many records."""

    def make(results: Iterator[Record]) -> Message:
        body = "".join(map(write_wlcg, islice(results, count)))
        return new_message("metricOutput", body, record_count=count)

    return make


single = of(1)


def of_size(size_bytes: int) -> Maker:
    """Messages of one record, with details that fill `size_bytes`."""
    line = "INFO the job is still waiting in the queue\n"

    def make(results: Iterator[Record]) -> Message:
        record = next(results)
        lines = (size_bytes - len(write_wlcg(record))) // len(line)
        details = "".join(f"{number:03} {line[4:]}" for number in range(max(lines, 0)))
        body = write_wlcg({**record, "detailsData": details})
        return new_message("metricOutput", body, record_count=1)

    return make
