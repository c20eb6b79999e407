"""A site with a configured `sam-consume`: runs its commands and reads its database."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from sqlalchemy import Row, text

from sam_pipeline.consumer.core import loop
from sam_pipeline.consumer.core.inbox import Inbox
from sam_pipeline.consumer.sources.stomp import session as stomp_session
from sam_pipeline.consumer.sources.stomp.session import ConsumingSession, StompSettings
from sam_pipeline.schema.messages.foreign import Stamp
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.net.channel import connect
from sam_pipeline.schema.net.deadline import Deadline
from sam_pipeline.schema.spool.queue import DirectoryQueue
from sam_pipeline.sql.database.engine import make_engine
from sam_pipeline.sql.loading.letters.dead_letter import StoredBody, original_body
from tests.services.broker import StompServer
from tests.services.postgres import as_role
from tests.support.builders import metric_message, metric_result
from tests.support.database.with_schema import with_schema
from tests.support.invoke import invoke
from tests.support.waiting import eventually as eventually

WAIT_S = 60.0
SPOOL_SILENCE_S = 0.5
"""How long a spool must be empty until a drain in this process ends."""


class Subscription(NamedTuple):
    """A subscription in the configuration."""

    destination: str
    message_class: str = "metricOutput"
    shared: bool = False


@dataclass(frozen=True)
class Drained:
    """The exit code and output of `sam-consume run --drain --json`."""

    code: int
    log: str
    summary: dict[str, Any]


@dataclass(frozen=True)
class Site:
    """`config` is the sam.toml of the consumer `name`; `database` is the owner's URL."""

    config: Path
    database: str
    name: str
    state: str = "state"
    """The name of the state directory; another machine has another one."""

    def command(self, *arguments: str, program: str = "") -> list[str]:
        """`sam-consume` as a process, or a program that behaves like it most of the time."""
        # Consumers with the same name and state directory refuse each other.
        own = ["env", f"STATE_DIRECTORY={self.config.with_name(self.state)}", sys.executable]
        start = ["-c", program] if program else ["-m", "sam_pipeline.consumer"]
        return [*own, *start, "--config", str(self.config), *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of `sam-consume` in this process (see `invoke`)."""
        environment = {**os.environ, "STATE_DIRECTORY": str(self.config.with_name(self.state))}
        with ExitStack() as stack:
            if "stomp" not in self.config.read_text():
                stack.enter_context(patch.object(loop, "SILENCE_S", SPOOL_SILENCE_S))
            answer = invoke("sam-consume", "--config", self.config, *arguments, env=environment)
        return subprocess.CompletedProcess(answer.command, answer.code, answer.out, answer.err)

    def json(self, *arguments: str, code: int = 0) -> Any:
        """The document that a command prints with --json."""
        done = self.run(*arguments, "--json")
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    def status(self) -> Any:
        """The state of the daemon, healthy or not: on a busy machine it may be late."""
        return json.loads(self.run("status", "--json").stdout)

    def drain(self, timeout_s: float = 30, instance: int | None = None) -> Drained:
        number = [] if instance is None else ["--instance", str(instance)]
        done = self.run("run", "--drain", "--json", "--timeout", str(timeout_s), *number)
        return Drained(done.returncode, done.stderr, json.loads(done.stdout or "{}"))

    def fill(self, *messages: Message) -> None:
        """Add messages to the spool beside the configuration."""
        fill_spool(self.config.with_name("spool"), messages)

    def edit(self, old: str, new: str) -> None:
        """Replace a part of the configuration."""
        content = self.config.read_text()
        assert old in content
        self.config.write_text(content.replace(old, new, 1))

    def configure(self, keys: str) -> None:
        """Add keys to [consumer]."""
        self.edit("[consumer]\n", f"[consumer]\n{keys}\n")

    def scalar(self, query: str) -> Any:
        [value] = self.column(query)
        return value

    def column(self, query: str) -> list[Any]:
        return [row[0] for row in self._select(query)]

    def letter_bodies(self) -> list[bytes]:
        """The bodies of all dead letters, as they were received."""
        rows = self._select("SELECT body, body_bytes, compressed FROM dead_letter")
        return [original_body(StoredBody(bytes(body), *rest)) for body, *rest in rows]

    def letters(self) -> int:
        """The number of dead letters."""
        return int(self.scalar("SELECT count(*) FROM dead_letter"))

    def execute(self, statement: str) -> None:
        engine = make_engine(self.database)
        try:
            with engine.begin() as connection:
                connection.exec_driver_sql(statement)
        finally:
            engine.dispose()

    def _select(self, query: str) -> Sequence[Row[Any]]:
        engine = make_engine(self.database)
        try:
            with engine.connect() as connection:
                return connection.execute(text(query)).all()
        finally:
            engine.dispose()

    def rows(self) -> int:
        return int(self.scalar("SELECT count(*) FROM metricOutput"))

    def wait_for_rows(self, count: int) -> None:
        eventually(lambda: self.rows() >= count, WAIT_S)


def site_of(
    directory: Path,
    brokers: Sequence[str],
    *subscriptions: Subscription,
    database: str = "",
    **settings: str | int | float | Path,
) -> Site:
    """A site with the schema applied, on SQLite unless another one is given.

    `settings` are keys of [consumer]; the name is that of the first destination.
    """
    database = database or f"sqlite:///{directory / 'sam.db'}"
    with_schema(database).dispose()
    first = subscriptions[0].destination if subscriptions else ""
    name = "site-" + re.sub(r"[^A-Za-z0-9]+", "-", first).strip("-")
    # The results of tests are of one day, however late the tests run.
    keys = {"name": name, "brokers": list(brokers), "max_age": "3653d", **settings}
    lines = ["[database]", f"url = {json.dumps(as_role(database, 'loader'))}", "[consumer]"]
    lines += [f"{key} = {json.dumps(value, default=str)}" for key, value in keys.items()]
    for destination, message_class, shared in subscriptions:
        lines += ["[[consumer.subscription]]", f"destination = {json.dumps(destination)}"]
        lines += ["shared = true"] if shared else []
        lines += [f"class = {json.dumps(message_class)}"] if message_class else []
    config = directory / "sam.toml"
    config.write_text("\n".join([*lines, ""]))
    config.chmod(0o600)
    return Site(config, database, str(keys["name"]))


def make_site(
    directory: Path, database: str, brokers: Sequence[str], destination: str = "/topic/grid.none"
) -> Site:
    """A site on this database, subscribed to one destination of metric results."""
    return site_of(directory, brokers, Subscription(destination), database=database)


def sqlite_site(directory: Path) -> Site:
    """A site on SQLite that reads the spool beside its configuration."""
    return make_site(directory, f"sqlite:///{directory}/sam.db", [f"spool://{directory}/spool"])


def subscribe(server: StompServer, consumer: str, destination: str) -> None:
    """Subscribe like the first run of a consumer, so that the broker queues messages for it."""
    channel = connect(server.host, server.port, Deadline.after(WAIT_S))
    settings = StompSettings(consumer)
    session = ConsumingSession(channel, server.url, Inbox(1), settings.login(None), settings)
    session.subscribe([stomp_session.Subscription(destination, Stamp(), 1)])
    session.close()


def results(count: int, metric: str = "org.sam.M") -> list[Message]:
    """Messages of one result each, all different; the metric identifies the sender."""
    start = 1_795_000_000
    return [
        metric_message(metric_result(metricName=metric, timestamp=str(start + number)))
        for number in range(count)
    ]


def fill_spool(path: Path, messages: Sequence[Message]) -> None:
    queue = DirectoryQueue(path)
    for message in messages:
        queue.add(message)
