"""Spark without SQL, on one machine or a cluster; nothing of it stays behind.

On one machine all its files are in one temporary directory, so at the end Java is killed, which
takes no time, and the directory is removed.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from errno import EDQUOT, ENOSPC
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from sam_pipeline.schema.program.command import TERMINATED
from sam_pipeline.schema.program.wording import duration
from sam_pipeline.spark_jobs.compute.cluster.causes import failure
from sam_pipeline.spark_jobs.compute.cluster.class_archive import archived_classes
from sam_pipeline.spark_jobs.compute.cluster.master import STANDALONE
from sam_pipeline.spark_jobs.compute.cluster.start import Starter, local_directories
from sam_pipeline.spark_jobs.errors import SparkFailed

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


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
        if _was_stopped(context):
            raise SparkFailed(
                f"Spark failed: {context.master} ended the application, or does not answer"
            ) from error
        raise failure("Spark failed", error, local_directories(context)) from error
    except OSError as error:
        if error.errno not in (ENOSPC, EDQUOT):
            raise
        raise failure("Spark failed", error, local_directories(context)) from error


def _was_stopped(context: SparkContext) -> bool:
    """Whether Spark itself has given up a cluster."""
    try:
        java: Any = context._jsc
        return str(context.master).startswith(STANDALONE) and bool(java.sc().isStopped())
    except Py4JError:  # Java has ended
        return False


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
