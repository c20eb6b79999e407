"""A consumer with two brokers, a servlet in front of them, and a database.

Each of them can be killed or frozen under load.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count

from tests.services.broker import StompServer
from tests.services.postgres import PostgresServer
from tests.support.consumer.daemon import Daemon, running
from tests.support.consumer.site import Site

BACK_S = 120.0
"""The time in which something is committed again after any fault."""
STOP_S = 10.0
POLL_S = 0.05

_BATCH = "SELECT coalesce(max(batch_id), 0) FROM loaded_batch WHERE consumer = '{consumer}'"


class Scene:
    """The consumer and the servlet run inside the block.

    `servlet` is a consumer that sends what it gets to the brokers. Both are in the process group
    `group`, if it is not ours.
    """

    def __init__(
        self,
        site: Site,
        servlet: Site,
        brokers: Sequence[StompServer],
        postgres: PostgresServer,
        group: int | None = None,
    ) -> None:
        self.site = site
        self.servlet_site = servlet
        self.brokers = brokers
        self.postgres = postgres
        self._group = group
        self._lives = count(1)
        self._consumer = ExitStack()
        self._servlet = ExitStack()

    def __enter__(self) -> Scene:
        self.start_servlet()
        self.start_consumer()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_consumer()
        self.kill_servlet()

    def start_consumer(self) -> None:
        log = f"life-{next(self._lives)}.log"
        self.daemon: Daemon = self._consumer.enter_context(
            running(self.site, log=log, group=self._group)
        )

    def kill_consumer(self) -> None:
        self._consumer.close()  # a SIGKILL

    def start_servlet(self) -> None:
        targets = [part for broker in self.brokers for part in ("--to", broker.url)]
        log = f"life-{next(self._lives)}.log"
        servlet = running(self.servlet_site, *targets, log=log, group=self._group)
        self.servlet: Daemon = self._servlet.enter_context(servlet)

    def kill_servlet(self) -> None:
        self._servlet.close()  # a SIGKILL

    def stop(self, daemon: Daemon, within_s: float = STOP_S) -> None:
        """Fail unless it stops in time, and no life of it has logged a traceback."""
        began = time.monotonic()
        stopped = daemon.stop()
        assert stopped.code == 0, daemon.log
        assert time.monotonic() - began < within_s
        for log in daemon.log_file.parent.glob("life-*.log"):
            assert "Traceback" not in log.read_text(errors="replace"), log

    def wait_for_commit(self) -> float:
        """Wait for the next commit; the seconds it took."""
        began, before = time.monotonic(), self.last_batch()
        while self.last_batch() == before:
            for daemon in (self.daemon, self.servlet):
                assert daemon.alive, f"{daemon.log_file} ended by itself:\n{daemon.log}"
            assert time.monotonic() - began < BACK_S, f"nothing was loaded:\n{self.daemon.log}"
            time.sleep(POLL_S)
        return time.monotonic() - began

    def wait_until_quiet(self, quiet_s: float) -> None:
        """Wait until nothing was committed for so long."""
        last, since = -1, time.monotonic()
        while time.monotonic() - since < quiet_s:
            if last != (last := self.last_batch()):
                since = time.monotonic()
            time.sleep(POLL_S)

    def last_batch(self) -> int:
        """The number of the last batch that the consumer committed."""
        return int(self.site.scalar(_BATCH.format(consumer=self.site.name)))
