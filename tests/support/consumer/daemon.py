"""A running `sam-consume run` whose log is read while it runs, and a site configured key by key.

    site = site_of(tmp_path, [broker.url], Subscription(destination), heart_beat="1s")
    with running(site) as daemon:
        daemon.wait_until_subscribed(broker.url)
        ...
        stopped = daemon.stop()

Tests observe it only from outside: in the log, in the database, at the broker.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sam_pipeline.sql.database.engine import make_engine
from tests.support.conservation import key_of
from tests.support.consumer.site import Site, eventually
from tests.support.consumer.site import Subscription as Subscription
from tests.support.consumer.site import site_of as site_of

STARTING = "starting with "
SUBSCRIBED = ": subscribed"
LOST = "trying again"
STOPPED = re.compile(r"stopped: (\d+) messages?.*?: (\d+) rows?, ")
WAIT_S = 60.0
QUIET_S = 30.0


@dataclass(frozen=True)
class Stopped:
    """The totals that the daemon logged at its end; a redelivered message counts again."""

    code: int
    messages: int
    rows: int


@dataclass(frozen=True)
class Daemon:
    process: subprocess.Popen[bytes]
    log_file: Path

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def lines(self, *texts: str) -> list[str]:
        """The lines of the log that contain all these texts."""
        return [line for line in self.log.splitlines() if all(text in line for text in texts)]

    def wait_for(self, *texts: str, times: int = 1, timeout_s: float = WAIT_S) -> list[str]:
        """The lines that contain all these texts, once there are at least `times` of them."""
        eventually(lambda: len(self.lines(*texts)) >= times or not self.alive, timeout_s)
        lines = self.lines(*texts)
        assert len(lines) >= times, f"the daemon ended without {texts}:\n{self.log}"
        return lines

    def wait_until_subscribed(self, *brokers: str, times: int = 1, within_s: float = 30) -> None:
        """Wait until these brokers queue messages for the consumer."""
        for broker in brokers:
            self.wait_for(broker, SUBSCRIBED, times=times, timeout_s=within_s)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> Stopped:
        """Send SIGTERM; the exit code and the totals."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(WAIT_S)
        totals = STOPPED.findall(self.log)
        assert totals, self.log
        return Stopped(code, int(totals[-1][0]), int(totals[-1][1]))


@contextmanager
def running(
    site: Site,
    *options: str,
    log: str = "consume.log",
    group: int | None = None,
    **variables: str,
) -> Iterator[Daemon]:
    """The daemon, run with these options, and killed when the block ends.

    It has a state directory beside its configuration. `group` is its process group, if not ours.
    """
    log_file = site.config.with_name(log)
    with log_file.open("wb") as target:
        process = subprocess.Popen(
            site.command("run", *options),
            stderr=target,
            env={**os.environ, **variables},
            process_group=group,
        )
        try:
            yield Daemon(process, log_file)
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait(WAIT_S)


def checked(site: Site) -> tuple[int, dict[str, Any]]:
    """Exit code and document of `sam-consume check --connect`."""
    done = site.run("check", "--connect", "--json")
    return done.returncode, json.loads(done.stdout)


def row_keys(site: Site) -> list[str]:
    """The keys of all rows, for the oracle `consumed`."""
    return [str(key) for key in site.column("SELECT summaryData FROM metricOutput")]


def settled_row_keys(site: Site, accepted: Collection[str]) -> list[str]:
    """Like `row_keys`, once all accepted records are rows or no row was added for QUIET_S."""
    count, since = -1, time.monotonic()
    while True:
        rows = site.rows()
        if rows != count:
            count, since = rows, time.monotonic()
        if count >= len(accepted) or time.monotonic() - since > QUIET_S:
            return row_keys(site)
        time.sleep(0.1)


def dead_letter_keys(site: Site) -> list[str]:
    """The keys of all dead letters, for the oracle `consumed`."""
    return [key_of(body) for body in site.letter_bodies()]


@contextmanager
def locked(postgres_url: str, table: str) -> Iterator[None]:
    """Block all writes to the table inside the block."""
    engine = make_engine(postgres_url)
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"LOCK TABLE {table} IN EXCLUSIVE MODE")
            yield
    finally:
        engine.dispose()
