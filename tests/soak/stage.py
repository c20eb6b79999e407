"""All servers and long-lived processes of a run, and the faults that only these have.

The killed consumer and servlet are those of `tests.kills`. Beside them is what a run watches for
growth: a second consumer and a second servlet, a `sam-publish send` and a `spool drain --loop`.
These are frozen and partitioned, but never killed, so they live as long as the run. Two of the
three brokers run at a time.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import text

from sam_pipeline.schema.spool.queue import DirectoryQueue
from sam_pipeline.sql.database.engine import make_engine
from tests.kills.scene import Scene
from tests.kills.senders import PROGRAM
from tests.kills.soak import BATCH_SIZE, HEART_BEAT_S, SPOOL
from tests.services.broker import StompServer
from tests.services.brokers import BROKERS
from tests.services.postgres import PostgresServer, as_role, fresh_database, running_postgres
from tests.services.process import free_ports, guarded_group
from tests.support.brokers.fault_proxy import FaultProxy
from tests.support.commands import PROGRAMS
from tests.support.consumer.daemon import Daemon, Subscription, running, site_of
from tests.support.consumer.door import Door, new_door, servlet_site
from tests.support.consumer.site import Site

CONNECTED_S = 300.0
"""The time in which a consumer connects again: it tries less often the longer a broker is away."""
METRICS_TIMEOUT_S = 2.0
LONGEST_PARTITION_S = 60.0
MANY = 10**6
"""More dead letters and spooled messages than there can be."""


@dataclass
class Stage:
    """`pair` are the running brokers; `steady` the processes that live as long as the run."""

    directory: Path
    group: int
    postgres: PostgresServer
    brokers: Mapping[str, StompServer]
    proxies: Mapping[str, FaultProxy]
    """Between the steady consumer and each broker."""
    scene: Scene
    site: Site
    """Of the steady consumer."""
    metrics_ports: tuple[int, int]
    """Of the killed consumer and the steady one."""
    doors: Mapping[str, Door]
    """Of the killed consumer and servlet, and of the steady ones."""
    destinations: tuple[str, str]
    steady: Mapping[str, subprocess.Popen[bytes]]
    consumer: Daemon
    pair: tuple[str, ...]

    @property
    def pair_urls(self) -> list[str]:
        return [self.brokers[name].url for name in self.pair]

    @property
    def spools(self) -> list[DirectoryQueue]:
        """That of the commands, and that of the long-lived publishers."""
        return [DirectoryQueue(self.directory / name / SPOOL) for name in ("commands", "crowd")]

    def query(self, statement: str, **values: object) -> list[Any]:
        """The rows of a query."""
        engine = make_engine(self.site.database)
        try:
            with engine.connect() as connection:
                return list(connection.execute(text(statement), values).all())
        finally:
            engine.dispose()

    def change_pair(self, pair: Sequence[str]) -> None:
        """Start and stop brokers so that these run, and wait until the consumers read them."""
        if tuple(pair) != self.pair:
            for name in pair:
                if not self.brokers[name].process.running:
                    self.brokers[name].restart()
            for name in set(self.brokers) - set(pair):
                self.brokers[name].process.stop()
            self.pair = tuple(pair)
            self.scene.brokers = [self.brokers[name] for name in pair]
            self.scene.kill_servlet()
            self.scene.start_servlet()
        for port, urls in zip(self.metrics_ports, self._read_urls(), strict=True):
            deadline = time.monotonic() + CONNECTED_S
            while not all(metric(port, "broker_connected", url) for url in urls):
                assert time.monotonic() < deadline, f"not connected to all of {urls}"
                self.check_processes()
                time.sleep(0.5)

    def held(self) -> float:
        """The messages that the two consumers have received and not yet acknowledged."""
        return sum(
            metric(port, "held_messages", url) or 0.0
            for port, urls in zip(self.metrics_ports, self._read_urls(), strict=True)
            for url in urls
        )

    def check_processes(self) -> None:
        """Fail if one of the steady processes has ended."""
        for name, process in self.steady.items():
            assert process.poll() is None, f"the {name} ended by itself with {process.returncode}"

    def partition(self, chance: random.Random) -> None:
        """Separate the steady consumer from a broker; it must notice, and come back."""
        name = chance.choice(self.pair)
        proxy, [_, port] = self.proxies[name], self.metrics_ports
        began, lasts_s = time.monotonic(), chance.uniform(15, LONGEST_PARTITION_S)
        proxy.black_hole()
        try:
            while metric(port, "broker_connected", proxy.url):
                assert time.monotonic() - began < CONNECTED_S, "the partition was not noticed"
                time.sleep(0.2)
            time.sleep(max(0.0, lasts_s - (time.monotonic() - began)))
        finally:
            proxy.heal()
        while not metric(port, "broker_connected", proxy.url):
            assert time.monotonic() - began < CONNECTED_S + lasts_s, "not connected again"
            time.sleep(0.2)

    def freeze(self, name: str, duration_s: float) -> None:
        """SIGSTOP for a steady process, then SIGCONT."""
        self.steady[name].send_signal(signal.SIGSTOP)
        time.sleep(duration_s)
        self.steady[name].send_signal(signal.SIGCONT)

    def prune(self, keep_days: int) -> None:
        """Remove older results, as an operator does."""
        owner = as_role(self.site.database, "owner")
        done = subprocess.run(
            [str(PROGRAMS / "sam-db"), "prune", "--keep-results", f"{keep_days}d", "--json"],
            env={**clean_environment(), "SAM_DATABASE_URL": owner},
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr

    def stop_publishers(self) -> list[str]:
        """End the long-lived publishers; a problem for each that did not exit as it should."""
        send, drain = self.steady["send"], self.steady["spool drain --loop"]
        assert send.stdin
        send.stdin.close()
        drain.terminate()
        codes = {"send": send.wait(60), "spool drain --loop": drain.wait(60)}
        return [f"{name} exited with {code}" for name, code in codes.items() if code]

    def _read_urls(self) -> tuple[list[str], list[str]]:
        return self.pair_urls, [self.proxies[name].url for name in self.pair]


@contextmanager
def standing(directory: Path) -> Iterator[Stage]:
    """Everything runs inside the block: the first two brokers, both consumers and servlets."""
    with ExitStack() as stack:
        group = stack.enter_context(guarded_group())
        postgres = stack.enter_context(running_postgres({"shared_buffers": "256MB"}))
        brokers = {name: stack.enter_context(start()) for name, start in BROKERS.items()}
        proxies = {
            name: stack.enter_context(FaultProxy(broker.port)) for name, broker in brokers.items()
        }
        database = fresh_database(postgres)
        doors = {name: new_door(name) for name in ("door", "servlet", "steadydoor", "relay")}
        destinations = [f"/topic/grid.soak.{uuid.uuid4().hex[:12]}" for _ in range(2)]
        ports = free_ports(2)
        read = ([b.url for b in brokers.values()], [p.url for p in proxies.values()])
        killed_site, site = (
            site_of(
                _made(directory / name),
                [*urls, doors[door].listen_url],
                Subscription(destination),
                database=database,
                heart_beat_s=HEART_BEAT_S,
                metrics_listen=f"127.0.0.1:{port}",
                dead_letters_per_hour=MANY,
                **settings,
            )
            for name, urls, door, destination, port, settings in (
                ("killed", read[0], "door", destinations[0], ports[0], {"batch_size": BATCH_SIZE}),
                ("steady", read[1], "steadydoor", destinations[1], ports[1], {}),
            )
        )
        add_class(database)
        all_urls = [broker.url for broker in brokers.values()]
        for name, destination in zip(("commands", "crowd"), destinations, strict=True):
            _write_publisher(_made(directory / name), destination)
        scene = Scene(
            killed_site,
            servlet_site(directory / "servlet", doors["servlet"]),
            list(brokers.values()),
            postgres,
            group,
        )
        stack.enter_context(scene)
        consumer = stack.enter_context(running(site, group=group))
        targets = [part for url in all_urls for part in ("--to", url)]
        relay_site = servlet_site(directory / "relay", doors["relay"])
        relay = stack.enter_context(running(relay_site, *targets, group=group))
        options = [part for url in all_urls for part in ("--broker", url)]
        crowd = directory / "crowd"
        steady = {
            "consumer": consumer.process,
            "servlet": relay.process,
            "spool drain --loop": stack.enter_context(
                _publisher(crowd, "drain", ["spool", "drain", "--loop", *options], group)
            ),
            "send": stack.enter_context(_publisher(crowd, "send", ["send", *options], group)),
        }
        stage = Stage(
            *(directory, group, postgres, brokers, proxies, scene, site, (ports[0], ports[1])),
            *(doors, (destinations[0], destinations[1]), steady, consumer, tuple(brokers)),
        )
        stage.change_pair(stage.pair)  # all three know the subscriptions from now on
        yield stage


def metric(port: int, name: str, broker: str = "") -> float | None:
    """A metric of the consumer with this port, or None if there is none, or no answer."""
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/metrics", timeout=METRICS_TIMEOUT_S
        ) as answer:
            page = answer.read().decode()
    except OSError:
        return None
    label = re.escape(f'{{broker="{broker}"}}') if broker else ""
    found = re.search(rf"^sam_consume_{name}{label} (\S+)", page, re.MULTILINE)
    return float(found[1]) if found else None


def add_class(database: str) -> None:
    """The class of docs/new-class.md, as its page shows."""
    page = Path(__file__).parents[2] / "docs" / "new-class.md"
    after = page.read_text(encoding="utf-8").partition("On PostgreSQL")[2]
    statements = after.partition("```sql\n")[2].partition("```")[0]
    engine = make_engine(database)
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql("SET LOCAL ROLE sam_owner")
            connection.exec_driver_sql(statements, execution_options={"no_parameters": True})
    finally:
        engine.dispose()


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("SAM_")}


@contextmanager
def _publisher(
    directory: Path, name: str, command: Sequence[str], group: int
) -> Iterator[subprocess.Popen[bytes]]:
    """A long-lived `sam-publish` with a state directory and a log of its own."""
    with (directory / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [PROGRAM, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd=directory,
            env={**clean_environment(), "STATE_DIRECTORY": str(directory / "state" / name)},
            process_group=group,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _write_publisher(directory: Path, destination: str) -> None:
    (directory / "sam.toml").write_text(
        f'[publisher]\ndestination = "{destination}"\nspool = "{directory / SPOOL}"\n'
        f"spool_max_messages = {MANY}\n"
    )


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory
