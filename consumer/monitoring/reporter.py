"""Tells others how the daemon does: a state file, systemd, and the metrics port."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from sam_pipeline.consumer.config import ConsumerConfig, notify_address, state_directory
from sam_pipeline.consumer.core.state import NOT_TRIED
from sam_pipeline.consumer.monitoring.observer import ElementCounts, Speaker, Watched
from sam_pipeline.consumer.monitoring.snapshot import Snapshot, judge
from sam_pipeline.consumer.monitoring.state_file import StateFile
from sam_pipeline.consumer.monitoring.systemd import Notifier
from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.net.broker_url import SPOOL

TICK_S = 1.0
FIRST_TICK_S = 0.1
"""Until we are ready: systemd starts others after us."""
STATUS_TICKS = 5
"""A new state is told to systemd at once, new numbers after so many ticks."""
END_S = 2.0
"""A thread that hangs on a disk must not keep the process."""
MAX_PORT = 65535

logger = logging.getLogger(__name__)


@contextmanager
def watching(config: ConsumerConfig, instance: int | None, watched: Watched) -> Iterator[None]:
    """Others are told inside the block, about once a second; at its end, how it ended.

    Raises:
        ConfigError: the metrics port can't be had.
    """
    notifier = Notifier(notify_address())
    spools = {str(each): Path(each.path) for each in config.parsed_brokers() if each.kind == SPOOL}
    speaker = Speaker(watched, ElementCounts(spools))
    watch = Watch(speaker, StateFile(state_directory(), watched.name), notifier)
    with ExitStack() as stack:
        stack.callback(notifier.close)
        if config.metrics_port:
            from sam_pipeline.consumer.monitoring.metrics import serving

            port = port_of(config.metrics_port, instance)
            stack.enter_context(serving(port, speaker.say, watched.state))
        thread = threading.Thread(target=watch.run, name="watch", daemon=True)
        thread.start()
        try:
            yield
        except BaseException as error:
            watch.end(thread, str(error) or type(error).__name__)
            raise
        watch.end(thread, "")


def port_of(base: int, instance: int | None) -> int:
    """The metrics port of an instance: each has its own.

    Raises:
        ConfigError: there is no such port.
    """
    port = base + (instance or 0)
    if port > MAX_PORT:
        words = f"{base} and instance {instance} make {port}, ports end at {MAX_PORT}"
        raise ConfigError([f"[consumer] metrics_port: {words}"])
    return port


class Watch:
    """The body of the thread that tells; it only looks, and so can tell that the loop is stuck."""

    def __init__(self, speaker: Speaker, file: StateFile, notifier: Notifier) -> None:
        self._speaker = speaker
        self._file = file
        self._notifier = notifier
        self._closing = threading.Event()
        self._ready = self._ends = False
        self._turns_told = 0
        self._told = ("", 0)
        self._ticks = 0
        self._trouble = ""

    def run(self) -> None:
        while not self._closing.wait(TICK_S if self._ready else FIRST_TICK_S):
            self.tick()

    def end(self, thread: threading.Thread, because: str) -> None:
        """Say how it ended, unless it begins anew at once."""
        self._closing.set()
        thread.join(END_S)
        self._tell_of_the_end()
        if because or not self._speaker.watched.wishes.only_reloads:
            now = datetime.now(UTC)
            self._write(replace(self._speaker.say(), ended_at=now, ended_because=because))

    def tick(self) -> None:
        self._speaker.count_spools()
        snapshot = self._speaker.say()
        self._write(snapshot)
        self._tell_systemd(snapshot)

    def _tell_systemd(self, said: Snapshot) -> None:
        self._ticks += 1
        verdict = judge(said, said.written_at)
        text = f"{verdict}; {summary(said)}"
        told = (verdict.state, self._ticks // STATUS_TICKS)
        if self._speaker.watched.wishes.stop.is_set():
            self._tell_of_the_end()
        elif not self._ready and said.waiting_for != NOT_TRIED:
            self._ready = True
            self._told = told
            self._notifier.ready(text)
        elif self._ready and told != self._told:
            self._told = told
            self._notifier.status(text)
        turns = self._speaker.watched.state.turns
        if turns != self._turns_told:
            self._turns_told = turns
            self._notifier.turned()

    def _tell_of_the_end(self) -> None:
        if self._ends:
            return
        self._ends = True
        if self._speaker.watched.wishes.only_reloads:
            self._notifier.reloading()
        else:
            self._notifier.stopping()

    def _write(self, snapshot: Snapshot) -> None:
        try:
            self._file.write(snapshot)
            self._trouble = ""
        except OSError as error:
            trouble = f"{self._file.path}: {error.strerror}"
            if trouble != self._trouble:
                logger.warning("%s: `sam-consume status` will not know how we do", trouble)
            self._trouble = trouble


def summary(said: Snapshot) -> str:
    """`3 messages held, 12 elements in spools, lag 0.2 s, 15.0 messages/s`"""
    parts = [f"{said.held_messages} messages held"]
    if any(each.spool_elements is not None for each in said.brokers):
        parts.append(f"{said.spool_elements} elements in spools")
    if said.lag_s is not None:
        parts.append(f"lag {said.lag_s:.1f} s")
    return ", ".join([*parts, f"{said.messages_per_s:.1f} messages/s"])
