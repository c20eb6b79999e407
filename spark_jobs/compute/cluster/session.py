"""Spark without SQL, on one machine or a cluster; nothing of it stays behind.

On one machine all its files are in one temporary directory, so at the end Java is killed, which
takes no time, and the directory is removed. Jobs are watched: their progress is shown, and one that
no worker takes is ended.
"""

from __future__ import annotations

import enum
import logging
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from errno import EDQUOT, ENOSPC
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, NoReturn

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from sam_pipeline.schema.program.command import TERMINATED
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.program.wording import duration
from sam_pipeline.spark_jobs.compute.cluster.start import (
    STANDALONE,
    Starter,
    archived_classes,
    failure,
    local_directories,
)
from sam_pipeline.spark_jobs.errors import SparkFailed

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

LOOK_S = 0.5
FIRST_WARNING_S = 10.0
NEXT_WARNING_S = 60.0

logger = logging.getLogger(__name__)


@contextmanager
def running(master: str, settings: Mapping[str, str], timeout_s: float) -> Iterator[SparkContext]:
    """Spark for the block, after which the process must end; SIGTERM and SIGINT end the block.

    Args:
        timeout_s: how long the start may take; some clusters let it wait.
    Raises:
        JavaMissing, SparkFailed, SparkDiskFull: see `Starter.start`; or Spark failed in the block.
    """
    interruptions: list[BaseException] = []
    starter = Starter()

    def interrupt(number: int, _: object) -> NoReturn:
        _ignore_signals()
        interruption = KeyboardInterrupt() if number == signal.SIGINT else SystemExit(TERMINATED)
        interruptions.append(interruption)
        # A call of Java would only return at the end of the job. It fails now.
        starter.abort()
        raise interruption

    before = {
        number: signal.signal(number, interrupt)
        for number in _SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN  # as in the background of a shell
    }

    def not_of_py4j(record: logging.LogRecord) -> bool:
        return "py4j" not in record.pathname

    # py4j logs, with their tracebacks, failures that it raises as well; some by the root logger.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(not_of_py4j)
    try:
        with (
            TemporaryDirectory(prefix="sam-report-", ignore_cleanup_errors=True) as files,
            # In a thread no signal interrupts the start, which would leave Java without an owner.
            ThreadPoolExecutor(1) as thread,
        ):
            options = archived_classes()
            starting = thread.submit(starter.start, master, settings, options, files)
            try:
                done, _ = wait([starting], timeout_s)
                if not done:
                    starter.abort()
                    limit = duration(int(timeout_s))
                    raise SparkFailed(f"Spark doesn't start: no answer of {master} for {limit}")
                context = starting.result()
                with _translated_errors(context):
                    yield context
            except BaseException:
                if interruptions:  # whatever failed because of it
                    raise interruptions[0] from None
                raise
            finally:
                _ignore_signals()
                _end(starting, starter, files)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _translated_errors(context: SparkContext) -> Iterator[None]:
    try:
        yield
    except Py4JError as error:
        with suppress(Py4JError):  # Java has ended
            java: Any = context._jsc
            # Spark itself has given up the cluster.
            if str(context.master).startswith(STANDALONE) and java.sc().isStopped():
                raise SparkFailed(
                    f"Spark failed: {context.master} ended the application, or does not answer"
                ) from error
        raise failure("Spark failed", error, local_directories(context)) from error
    except OSError as error:
        if error.errno not in (ENOSPC, EDQUOT):
            raise
        raise failure("Spark failed", error, local_directories(context)) from error


def _end(starting: Future[SparkContext], starter: Starter, files: str) -> None:
    """End Spark: at once if all its files and processes are on this machine, else in order."""
    context = None if starting.exception() else starting.result()
    java = starter.process
    if java is None:
        if context:
            context.stop()  # spark-submit ends Java
        return
    # The setting spark.local.dir or the variable SPARK_LOCAL_DIRS may name other directories.
    if context is None or (
        str(context.master).startswith("local") and str(context._temp_dir).startswith(files)
    ):
        java.kill()
    else:
        assert java.stdin
        java.stdin.close()
    java.wait()


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


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


@contextmanager
def watching(context: SparkContext, timeout_s: float, progress: Progress) -> Iterator[None]:
    """Watch the jobs of the block from a thread, and draw how much of their tasks is done.

    Raises:
        SparkFailed: no worker ran a task for `timeout_s`.
    """
    ended = threading.Event()
    given_up: list[str] = []

    def watch() -> None:
        wait = WorkerWait(timeout_s)
        nobody = f"{context.master}: no worker has taken a task for"
        try:
            tracker = context.statusTracker()
            while not ended.wait(LOOK_S):
                jobs = [tracker.getJobInfo(job) for job in tracker.getActiveJobsIds()]
                of_jobs = (tracker.getStageInfo(n) for job in jobs if job for n in job.stageIds)
                stages = [stage for stage in of_jobs if stage]
                tasks = Tasks(
                    sum(stage.numTasks for stage in stages),
                    sum(stage.numCompletedTasks for stage in stages),
                    sum(stage.numActiveTasks for stage in stages),
                )
                now = time.monotonic()
                if tasks.total:
                    progress.share(tasks.done / tasks.total)
                step = wait.look(now, tasks)
                if step is Step.WARN:
                    progress.interrupt()
                    logger.warning(
                        "%s %s: waiting for a free one for at most %s ([report] start_timeout)",
                        nobody,
                        wait.waited(now),
                        duration(round(timeout_s)),
                    )
                elif step is Step.GIVE_UP:
                    given_up.append(
                        f"{nobody} {wait.waited(now)} ([report] start_timeout): see whether"
                        " its workers are up and have a free core and enough memory"
                        " (spark.executor.memory)"
                    )
                    context.cancelAllJobs()
                    return
        except Py4JError:  # Java has ended, as the block will notice
            return

    thread = threading.Thread(target=watch, daemon=True)
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
