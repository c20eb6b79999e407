"""Watches the jobs of Spark: shows their progress, and ends those that no worker takes."""

from __future__ import annotations

import enum
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.program.wording import duration
from sam_pipeline.spark_jobs.errors import SparkFailed

LOOK_S = 0.5
FIRST_WARNING_S = 10.0
NEXT_WARNING_S = 60.0

logger = logging.getLogger(__name__)


class Tasks(NamedTuple):
    """The numbers of tasks of the jobs that Spark is computing."""

    total: int = 0
    done: int = 0
    running: int = 0


class Step(enum.Enum):
    """What to do while no worker runs a task."""

    NOTHING = enum.auto()
    WARN = enum.auto()
    GIVE_UP = enum.auto()


class WorkerWait:
    """Decides, look by look, how to go on while tasks wait for a worker (times in s)."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._waits_since: float | None = None
        self._warns_at = 0.0

    def look(self, now: float, tasks: Tasks) -> Step:
        if tasks.running or tasks.done == tasks.total:
            self._waits_since = None
            return Step.NOTHING
        if self._waits_since is None:
            self._waits_since, self._warns_at = now, now + FIRST_WARNING_S
        if now - self._waits_since >= self._timeout_s:
            return Step.GIVE_UP
        if now < self._warns_at:
            return Step.NOTHING
        self._warns_at += NEXT_WARNING_S
        return Step.WARN

    def waited(self, now: float) -> str:
        """How long tasks have been waiting, for messages."""
        return duration(round(now - (now if self._waits_since is None else self._waits_since)))


class Watcher:
    """Watches the jobs of a context, from a thread."""

    def __init__(
        self,
        context: SparkContext,
        timeout_s: float,
        progress: Progress,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._timeout_s = timeout_s
        self._progress = progress
        self._clock = clock

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the jobs of the block, and draw how much of their tasks is done.

        Raises:
            SparkFailed: no worker ran a task for `timeout_s`.
        """
        ended = threading.Event()
        given_up: list[str] = []
        thread = threading.Thread(target=self._watch, args=(ended, given_up), daemon=True)
        thread.start()
        try:
            yield
        except Py4JError as error:
            if given_up:
                raise SparkFailed(given_up[0]) from error
            raise
        finally:
            ended.set()
            thread.join()

    def _watch(self, ended: threading.Event, given_up: list[str]) -> None:
        wait = WorkerWait(self._timeout_s)
        try:
            while not ended.wait(LOOK_S):
                tasks, now = self._tasks(), self._clock()
                if tasks.total:
                    self._progress.share(tasks.done / tasks.total)
                step = wait.look(now, tasks)
                nobody = f"{self._context.master}: no worker has taken a task for"
                if step is Step.WARN:
                    self._progress.interrupt()
                    logger.warning(
                        "%s %s: waiting for a free one for at most %s ([report] start_timeout_s)",
                        nobody,
                        wait.waited(now),
                        duration(round(self._timeout_s)),
                    )
                elif step is Step.GIVE_UP:
                    given_up.append(
                        f"{nobody} {wait.waited(now)} ([report] start_timeout_s): see whether"
                        " its workers are up and have a free core and enough memory"
                        " (spark.executor.memory)"
                    )
                    self._context.cancelAllJobs()
                    return
        except Py4JError:  # Java has ended, as the block will notice
            return

    def _tasks(self) -> Tasks:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getActiveJobsIds()]
        stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
        counts = [(s.numTasks, s.numCompletedTasks, s.numActiveTasks) for s in stages if s]
        return Tasks(*map(sum, zip(*counts, strict=True))) if counts else Tasks()
