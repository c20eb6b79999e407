"""Reports the state of the daemon: in its state file, to systemd, and on the metrics port."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from sam_pipeline.consumer.core.state import NOT_TRIED
from sam_pipeline.consumer.errors import NoState
from sam_pipeline.consumer.monitoring.observer import Observer
from sam_pipeline.consumer.monitoring.snapshot import Snapshot, read_state, state_path, write_state
from sam_pipeline.consumer.process.signals import StopRequest
from sam_pipeline.consumer.settings.config import ConsumerConfig
from sam_pipeline.schema.program.systemd import Notifier

TICK_S = 1.0
FIRST_TICK_S = 0.1
"""Until READY is sent, for which systemd waits before it starts other services."""
STATUS_TICKS = 5
"""A new state is sent to systemd at once, new numbers every STATUS_TICKS ticks."""
END_S = 2.0
"""The time limit for the thread to end, since it may hang on a disk."""

logger = logging.getLogger(__name__)


@contextmanager
def reporting(observer: Observer, request: StopRequest, config: ConsumerConfig) -> Iterator[None]:
    """Report about once a second inside the block, and at its end how it ended."""
    try:
        previous = read_state([config.state_directory], config.process_name)
    except NoState:
        previous = None
    observer.resume(previous)
    with ExitStack() as stack:
        notifier = stack.enter_context(closing(Notifier(config.notify_socket)))
        if config.metrics_address:
            from sam_pipeline.consumer.monitoring.metrics import MetricsPort, Readers

            readers = Readers(config.metrics_tls_files, config.metrics_token_file)
            port = MetricsPort(config.metrics_address, observer.snapshot, readers)
            stack.enter_context(closing(port))
        stack.enter_context(Reporter(observer, request, config.state_directory, notifier))
        yield


class Reporter:
    """Reports inside its block in a separate thread, even if the main loop is stuck."""

    def __init__(
        self, observer: Observer, request: StopRequest, directory: Path, notifier: Notifier
    ) -> None:
        self._observer = observer
        self._request = request
        self._directory = directory
        self._notifier = notifier
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._report, name="reporter", daemon=True)
        self._ticks = self._turns = 0
        self._reported: tuple[str, int] | None = None
        """The state last sent to systemd, and the number of its STATUS_TICKS; None before READY."""
        self._end_announced = False
        self._write_problem = ""

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """Report how the daemon ended, unless it stops only to reload."""
        self._closing.set()
        self._thread.join(END_S)
        self._announce_end()
        reason = "" if error is None else str(error) or type(error).__name__
        if reason or not self._request.reloading:
            now = datetime.now(UTC)
            self._write(replace(self._observer.snapshot(), ended_at=now, ended_because=reason))

    def _report(self) -> None:
        while not self._closing.wait(TICK_S if self._reported else FIRST_TICK_S):
            self.tick()

    def tick(self) -> None:
        """Write the state file and notify systemd."""
        self._observer.count_spools()
        self._observer.look()
        snapshot = self._observer.snapshot()
        self._write(snapshot)
        self._ticks += 1
        health = snapshot.health(snapshot.written_at)
        report = (health.state, self._ticks // STATUS_TICKS)
        if self._request.stop.is_set():
            self._announce_end()
        elif snapshot.waiting_for != NOT_TRIED and report != self._reported:
            facts = [f"{snapshot.held_messages} messages held"]
            if any(broker.spool_elements is not None for broker in snapshot.brokers):
                facts.append(f"{snapshot.spool_elements} elements in spools")
            if snapshot.lag_s is not None:
                facts.append(f"lag {snapshot.lag_s:.1f} s")
            facts.append(f"{snapshot.messages_per_s:.1f} messages/s")
            facts += snapshot.counts.texts()
            ready = ["READY=1"] if self._reported is None else []
            self._notifier.send(*ready, f"STATUS={health}; {', '.join(facts)}")
            self._reported = report
        if self._observer.state.turns != self._turns:
            self._turns = self._observer.state.turns
            self._notifier.send("WATCHDOG=1")

    def _announce_end(self) -> None:
        if self._end_announced:
            return
        self._end_announced = True
        if self._request.reloading:
            microseconds = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            self._notifier.send("RELOADING=1", f"MONOTONIC_USEC={microseconds}")
        else:
            self._notifier.send("STOPPING=1", "STATUS=stopping: committing the current batch")

    def _write(self, snapshot: Snapshot) -> None:
        try:
            write_state(self._directory, snapshot)
            self._write_problem = ""
        except OSError as error:
            problem = f"{state_path(self._directory, snapshot.name)}: {error.strerror}"
            if problem != self._write_problem:
                logger.warning(
                    "%s: `sam-consume status` will be out of date; if its directory was removed,"
                    " restart this process",
                    problem,
                )
            self._write_problem = problem
