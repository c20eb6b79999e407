"""All servers and processes of a run, and how they are killed, started and awaited.

There are two consumers, each with a message servlet in front of the brokers. One pair is killed.
The other one, and a `sam-publish send` and a `spool drain --loop`, are frozen and partitioned, but
never killed: they live as long as the run, which watches them for growth. Two of the three brokers
run at a time.
"""

from __future__ import annotations

import random
import re
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from sqlalchemy import text

from sam_pipeline.schema.spool.queue import DirectoryQueue
from sam_pipeline.sql.database.engine import make_engine
from tests.services.broker import StompServer
from tests.services.brokers import BROKERS
from tests.services.postgres import PostgresServer, as_role, fresh_database, running_postgres
from tests.services.process import free_ports, guarded_group
from tests.soak.senders import Home, clean_environment
from tests.support.brokers.fault_proxy import FaultProxy
from tests.support.commands import PROGRAMS
from tests.support.consumer.daemon import Daemon, Subscription, running, site_of
from tests.support.consumer.door import Door, new_door, servlet_site
from tests.support.consumer.site import Site
from tests.support.http_client import NO_ANSWER, HttpClient
from tests.support.invoke import call
from tests.support.waiting import eventually

BACK_S = 120.0
"""The time in which something is committed again after any fault."""
STOP_S = 30.0
"""A consumer may stop that late on a machine that other programs keep busy."""
CONNECTED_S = 300.0
"""The time in which a consumer connects again: it tries less often the longer a broker is away."""
LONGEST_PARTITION_S = 60.0
MANY = 10**6
"""More dead letters and spooled messages than there can be."""
BATCH_SIZE = 10
"""Small enough that many faults hit a batch, or the time between two."""
HEART_BEAT_S = 5.0

_BATCH = "SELECT coalesce(max(batch_id), 0) FROM loaded_batch WHERE consumer = '{}'"


@dataclass
class Stage:
    """`pair` are the running brokers; `steady` the processes that live as long as the run."""

    directory: Path
    group: int
    postgres: PostgresServer
    brokers: Mapping[str, StompServer]
    proxies: Mapping[str, FaultProxy]
    """Between the steady consumer and each broker."""
    sites: tuple[Site, Site]
    """Of the killed consumer and the steady one, and so are the next two."""
    metrics_ports: Sequence[int]
    destinations: Sequence[str]
    doors: Mapping[str, Door]
    """Of the killed consumer and servlet, and of the steady ones."""
    pair: tuple[str, ...]
    steady: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    pausing: threading.Event = field(default_factory=threading.Event)
    """Nothing is sent while it is set."""

    daemon: Daemon = field(init=False)
    servlet: Daemon = field(init=False)
    consumer: Daemon = field(init=False)
    """The steady one; the first two are the killed consumer and servlet."""

    def __post_init__(self) -> None:
        self._lives = count(1)
        self._consumer, self._servlet = ExitStack(), ExitStack()

    @property
    def running(self) -> list[StompServer]:
        return [self.brokers[name] for name in self.pair]

    @property
    def pair_urls(self) -> list[str]:
        return [broker.url for broker in self.running]

    @property
    def homes(self) -> list[Home]:
        """Those of the commands, and of the publishers that read pipes."""
        return [Home(self.directory / name, self.group) for name in ("commands", "crowd")]

    @property
    def spools(self) -> list[DirectoryQueue]:
        return [DirectoryQueue(home.directory / "spool") for home in self.homes]

    def query(self, statement: str, **values: object) -> list[Any]:
        """The rows of a query."""
        engine = make_engine(self.sites[0].database)
        try:
            with engine.connect() as connection:
                return list(connection.execute(text(statement), values).all())
        finally:
            engine.dispose()

    def start_consumer(self) -> None:
        log = f"life-{next(self._lives)}.log"
        life = running(self.sites[0], log=log, group=self.group)
        self.daemon = self._consumer.enter_context(life)

    def kill_consumer(self) -> None:
        self._consumer.close()  # a SIGKILL

    def start_servlet(self) -> None:
        life = self.relay("servlet", self.pair_urls, f"life-{next(self._lives)}.log")
        self.servlet = self._servlet.enter_context(life)

    def kill_servlet(self) -> None:
        self._servlet.close()  # a SIGKILL

    def relay(self, name: str, urls: Sequence[str], log: str) -> AbstractContextManager[Daemon]:
        """A consumer that sends to the brokers what the door of this name receives."""
        targets = [part for url in urls for part in ("--to", url)]
        site = servlet_site(self.directory / name, self.doors[name])
        return running(site, *targets, log=log, group=self.group)

    def stop(self, daemon: Daemon) -> None:
        """Fail unless it stops in time, and no life of it has logged a traceback."""
        began = time.monotonic()
        assert daemon.stop().code == 0, daemon.log
        assert time.monotonic() - began < STOP_S
        for log in daemon.log_file.parent.glob("*.log"):
            assert "Traceback" not in log.read_text(errors="replace"), log

    def last_batch(self) -> int:
        """The number of the last batch that the killed consumer committed."""
        return int(self.sites[0].scalar(_BATCH.format(self.sites[0].name)))

    def wait_for_commit(self) -> float:
        """Wait for the next commit of the killed consumer; the seconds it took."""
        began, before = time.monotonic(), self.last_batch()

        def has_committed() -> bool:
            for daemon in (self.daemon, self.servlet):
                assert daemon.alive, f"{daemon.log_file} ended by itself:\n{daemon.log}"
            return self.last_batch() != before

        eventually(has_committed, BACK_S, "nothing was loaded")
        return time.monotonic() - began

    def change_pair(self, pair: Sequence[str]) -> None:
        """Start and stop brokers so that these run, and wait until the consumers read them."""
        if tuple(pair) != self.pair:
            for name in pair:
                if not self.brokers[name].process.running:
                    self.brokers[name].restart()
            for name in set(self.brokers) - set(pair):
                self.brokers[name].process.stop()
            self.pair = tuple(pair)
            self.kill_servlet()
            self.start_servlet()

        def is_connected() -> bool:
            self.check_processes()
            return all(metric(*broker, "broker_connected") for broker in self._read())

        eventually(is_connected, CONNECTED_S, "not connected to all brokers")

    def held(self) -> float:
        """The messages that the two consumers have received and not yet acknowledged."""
        return sum(metric(*broker, "held_messages") or 0.0 for broker in self._read())

    def check_processes(self) -> None:
        """Fail if one of the steady processes has ended."""
        for name, process in self.steady.items():
            assert process.poll() is None, f"the {name} ended by itself with {process.returncode}"

    def partition(self, chance: random.Random) -> None:
        """Separate the steady consumer from a broker; it must notice, and come back."""
        proxy, port = self.proxies[chance.choice(self.pair)], self.metrics_ports[1]
        began, lasts_s = time.monotonic(), chance.uniform(15, LONGEST_PARTITION_S)

        def is_connected() -> bool:
            return bool(metric(port, proxy.url, "broker_connected"))

        proxy.black_hole()
        try:
            eventually(lambda: not is_connected(), CONNECTED_S, "the partition was not noticed")
            time.sleep(max(0.0, lasts_s - (time.monotonic() - began)))
        finally:
            proxy.heal()
        eventually(is_connected, CONNECTED_S, "not connected again")

    def prune(self, keep_days: int) -> None:
        """Remove older results, as an operator does."""
        owner = as_role(self.sites[0].database, "owner")
        command = [str(PROGRAMS / "sam-db"), "prune", "--keep-results", f"{keep_days}d", "--json"]
        environment = {**clean_environment(), "SAM_DATABASE_URL": owner}
        done = call(command, self.directory, environment, timeout_s=300)
        assert done.code == 0, str(done)

    def stop_publishers(self) -> list[str]:
        """End the long-lived publishers; a problem for each that did not exit as it should."""
        send, drain = self.steady["send"], self.steady["spool drain --loop"]
        assert send.stdin
        send.stdin.close()
        drain.terminate()
        codes = {"send": send.wait(60), "spool drain --loop": drain.wait(60)}
        return [f"{name} exited with {code}" for name, code in codes.items() if code]

    def _read(self) -> list[tuple[int, str]]:
        """The metrics port and the URL of each broker that a consumer reads."""
        killed, steady = self.metrics_ports
        proxies = [(steady, self.proxies[name].url) for name in self.pair]
        return [*((killed, url) for url in self.pair_urls), *proxies]


@contextmanager
def standing(directory: Path) -> Iterator[Stage]:
    """Everything runs inside the block: all brokers, both consumers and servlets, publishers."""
    with ExitStack() as stack:
        group = stack.enter_context(guarded_group())
        postgres = stack.enter_context(running_postgres({"shared_buffers": "256MB"}))
        brokers = {name: stack.enter_context(start()) for name, start in BROKERS.items()}
        proxies = {name: FaultProxy(broker.port) for name, broker in brokers.items()}
        for proxy in proxies.values():
            stack.enter_context(proxy)
        database = fresh_database(postgres)
        doors = {name: new_door(name) for name in ("door", "servlet", "steadydoor", "relay")}
        destinations = [f"/topic/grid.soak.{uuid.uuid4().hex[:12]}" for _ in range(2)]
        ports = free_ports(2)

        def site(name: str, number: int, urls: Sequence[str], **settings: int) -> Site:
            (directory / name).mkdir()
            return site_of(
                directory / name,
                urls,
                Subscription(destinations[number]),
                database=database,
                heart_beat=f"{HEART_BEAT_S}s",
                metrics_listen=f"127.0.0.1:{ports[number]}",
                dead_letters_per_hour=MANY,
                **settings,
            )

        urls = [broker.url for broker in brokers.values()]
        read = [*urls, doors["door"].listen_url]
        killed_site = site("killed", 0, read, batch_size=BATCH_SIZE)
        read = [*(proxy.url for proxy in proxies.values()), doors["steadydoor"].listen_url]
        sites = (killed_site, site("steady", 1, read))
        add_class(database)
        stage = Stage(
            *(directory, group, postgres, brokers, proxies, sites, ports, destinations, doors),
            tuple(brokers),
        )
        for home, destination in zip(stage.homes, destinations, strict=True):
            home.directory.mkdir()
            (home.directory / "sam.toml").write_text(
                f'[publisher]\ndestination = "{destination}"\n'
                f'spool = "{home.directory}/spool"\nspool_max_messages = {MANY}\n'
            )
        stack.callback(stage.kill_servlet)
        stack.callback(stage.kill_consumer)
        stage.start_servlet()
        stage.start_consumer()
        stage.consumer = stack.enter_context(running(sites[1], group=group))
        relay = stack.enter_context(stage.relay("relay", urls, "consume.log"))
        stage.steady |= {"consumer": stage.consumer.process, "servlet": relay.process}
        for name in ("spool drain --loop", "send"):
            log = stack.enter_context((stage.homes[1].directory / f"{name}.log").open("wb"))
            process = stage.homes[1].publisher(name, name.split(), urls, log)
            stack.enter_context(process)
            stack.callback(process.kill)
            stage.steady[name] = process
        stage.change_pair(stage.pair)  # all three know the subscriptions from now on
        yield stage


def metric(port: int, broker: str, name: str) -> float | None:
    """A metric of the consumer with this port, or None if there is none, or no answer."""
    try:
        with HttpClient(port) as client:
            page = client.get("/metrics").body.decode()
    except NO_ANSWER:
        return None
    label = re.escape(f'{{broker="{broker}"}}')
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
