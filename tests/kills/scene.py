"""A consumer with two brokers, a servlet in front of them, and a database.

Each of them can be killed or frozen under load.
"""

from __future__ import annotations

import re
import time
import urllib.request
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

_COMMITTED = "SELECT coalesce(sum(messages), 0) FROM loaded_batch"


class Scene:
    """The consumer and the servlet run inside the block.

    `metrics_port` is that of the consumer's configuration; `servlet` is a consumer that sends what
    it gets to the brokers.
    """

    def __init__(
        self,
        site: Site,
        servlet: Site,
        brokers: Sequence[StompServer],
        postgres: PostgresServer,
        metrics_port: int,
    ) -> None:
        self.site = site
        self.servlet_site = servlet
        self.brokers = brokers
        self.postgres = postgres
        self._metrics = f"http://127.0.0.1:{metrics_port}/metrics"
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
        self.daemon: Daemon = self._consumer.enter_context(running(self.site, log=log))

    def kill_consumer(self) -> None:
        self._consumer.close()  # a SIGKILL

    def start_servlet(self) -> None:
        targets = [part for broker in self.brokers for part in ("--to", broker.url)]
        log = f"life-{next(self._lives)}.log"
        servlet = running(self.servlet_site, *targets, log=log)
        self.servlet: Daemon = self._servlet.enter_context(servlet)

    def kill_servlet(self) -> None:
        self._servlet.close()  # a SIGKILL

    def stop(self, daemon: Daemon) -> None:
        """Fail unless it stops in time, and no life of it has logged a traceback."""
        began = time.monotonic()
        stopped = daemon.stop()
        assert stopped.code == 0, daemon.log
        assert time.monotonic() - began < STOP_S
        for log in daemon.log_file.parent.glob("life-*.log"):
            assert "Traceback" not in log.read_text(errors="replace"), log

    def wait_for_commit(self) -> float:
        """Wait for the next commit; the seconds it took."""
        began, before = time.monotonic(), self.committed()
        while self.committed() == before:
            for daemon in (self.daemon, self.servlet):
                assert daemon.alive, f"{daemon.log_file} ended by itself:\n{daemon.log}"
            assert time.monotonic() - began < BACK_S, f"nothing was loaded:\n{self.daemon.log}"
            time.sleep(POLL_S)
        return time.monotonic() - began

    def wait_until_quiet(self, quiet_s: float) -> None:
        """Wait until nothing was committed for so long."""
        committed, since = -1, time.monotonic()
        while time.monotonic() - since < quiet_s:
            if committed != (committed := self.committed()):
                since = time.monotonic()
            time.sleep(POLL_S)

    def committed(self) -> int:
        """The messages in all batches so far; a redelivered message counts again."""
        return int(self.site.scalar(_COMMITTED))

    def gauge(self, name: str, broker: str) -> float:
        """A metric of the consumer for one of its broker URLs."""
        with urllib.request.urlopen(self._metrics, timeout=10) as answer:
            text = answer.read().decode()
        label = re.escape(f'sam_consume_{name}{{broker="{broker}"}}')
        found = re.search(rf"^{label} (\S+)", text, re.MULTILINE)
        assert found, text
        return float(found[1])
