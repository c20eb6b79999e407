"""Spark without SQL, on one machine or a cluster; nothing of it stays behind.

On one machine all its files are in one temporary directory, so at the end Java is killed, which
takes no time, and the directory is removed.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from sam_pipeline.schema.program.command import TERMINATED, print_lines
from sam_pipeline.spark_jobs.config import class_archive, under_spark_submit
from sam_pipeline.spark_jobs.errors import JavaMissing, SparkFailed

DEFAULTS = {
    "spark.app.name": "sam-report",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "4g",
}
# A laptop's own name may not resolve, and a local session never leaves the machine.
LOCAL_DEFAULTS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

# Java only passes arrays on. So the second compiler would cost a third of the processor time of a
# small run, and a parallel garbage collector memory.
_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_LOG_CONFIG = Path(__file__).with_name("log4j2.properties")
# Lines that the JVM and Spark print before they read any log configuration.
_NOISE = (b"WARNING: Using incubator modules", b"Setting default log level", b"To adjust logging")
_CAUSE = re.compile(r"^(?:Caused by: )?[\w.$]*(?:Error|Exception): (.+)$", re.MULTILINE)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def running(master: str, settings: Mapping[str, str], java: str | None) -> Iterator[SparkContext]:
    """Spark for the block, after which the process must end; SIGTERM and SIGINT end the block.

    Raises:
        JavaMissing: no Java runtime was found; or, like SparkFailed, see `start`.
    """
    _require(java)
    interruptions: list[BaseException] = []

    def interrupt(number: int, _: object) -> NoReturn:
        _ignore_signals()
        interruption = KeyboardInterrupt() if number == signal.SIGINT else SystemExit(TERMINATED)
        interruptions.append(interruption)
        # A call of Java would only return at the end of the job. It fails now, and py4j logs that.
        logging.disable()
        if process := _java():
            process.terminate()
        raise interruption

    before = {
        number: signal.signal(number, interrupt)
        for number in _SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN  # as in the background of a shell
    }
    try:
        with (
            TemporaryDirectory(prefix="sam-report-", ignore_cleanup_errors=True) as files,
            # In a thread no signal interrupts the start, which would leave Java without an owner.
            ThreadPoolExecutor(1) as starter,
        ):
            starting = starter.submit(start, master, settings, java, files, _archived_classes())
            try:
                yield starting.result()
            except BaseException:
                if interruptions:  # whatever failed because of it
                    raise interruptions[0] from None
                raise
            finally:
                _ignore_signals()
                _end(starting, files)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def start(
    master: str,
    settings: Mapping[str, str],
    java: str | None,
    files: str | None = None,
    java_options: Sequence[str] = (),
) -> SparkContext:
    """A SparkContext without start-up messages, for `running`, or until its `stop` is called.

    Args:
        settings: those of `--conf`, which override all defaults.
        files: a directory for all files of Java.
        java_options: further options of Java.
    Raises:
        JavaMissing: Spark cannot start on this Java.
        SparkFailed: the settings make no SparkContext, or no master of the cluster answers.
    """
    conf, gateway = SparkConf(), None
    try:
        if under_spark_submit():  # Java is running already
            conf.setAll(list(settings.items()))
        else:
            options = [*_java_options(files), *java_options]
            defaults = {**DEFAULTS, "spark.driver.defaultJavaOptions": shlex.join(options)}
            if master.startswith("local"):
                defaults.update(LOCAL_DEFAULTS)
            conf.setAll([("spark.master", master), *{**defaults, **settings}.items()])
            gateway = _quiet_gateway(conf)
        context = SparkContext(conf=conf, gateway=gateway)
    except PySparkRuntimeError as error:
        raise JavaMissing(f"Spark doesn't start on {java}: it needs Java 17 or 21") from error
    except Py4JError as error:
        raise SparkFailed(f"Spark doesn't start: {cause(error)}") from error
    # It would print a traceback when Java ends.
    context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
    if files is not None and gateway is not None:
        # If this process is killed, Java notices it and removes the directory.
        jvm: Any = context._jvm
        hooks = jvm.org.apache.spark.util.ShutdownHookManager
        hooks.registerShutdownDeleteDir(jvm.java.io.File(files))
    return context


def cause(error: Exception) -> str:
    """The innermost cause of an error of Spark, which a trace prints last, while Java runs."""
    causes = _CAUSE.findall(str(error)) or str(error).splitlines() or [type(error).__name__]
    return str(causes[-1])


def archive_classes(java: str | None, archive: Path) -> None:
    """Store the classes that a run loads; later runs load them from there if they still fit.

    Raises:
        JavaMissing, SparkFailed: see `running`; or Java wrote no archive.
    """
    _require(java)
    archive.parent.mkdir(parents=True, exist_ok=True)
    new = archive.with_suffix(".new")
    new.unlink(missing_ok=True)
    options = (f"-XX:ArchiveClassesAtExit={new}", "-Xlog:disable")
    with TemporaryDirectory(prefix="sam-report-", ignore_cleanup_errors=True) as files:
        context = start("local[2]", {}, java, files, options)
        context.parallelize(range(2), 2).map(lambda n: (n, n)).partitionBy(2).collect()
        process = _java()
        assert process and process.stdin
        process.stdin.close()
        process.wait()
    if not new.exists():
        raise SparkFailed("Java wrote no archive of its classes")
    new.replace(archive)


def _require(java: str | None) -> None:
    if java is None and not under_spark_submit():
        raise JavaMissing("no Java runtime: apt-get install default-jre-headless (17 or 21)")


def _archived_classes() -> list[str]:
    """The options with which Java uses the archive; it ignores one of another Java or Spark."""
    archive = class_archive()
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if archive.exists() else []


def _java_options(files: str | None) -> list[str]:
    options = [*_JAVA, f"-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()}"]
    if files is not None:
        # Without performance data, which Java would leave in /tmp when it is killed.
        options += [f"-Djava.io.tmpdir={files}", "-XX:-UsePerfData"]
    return options


def _quiet_gateway(conf: SparkConf) -> object:
    """Start Java, and pass on its stderr except for the start-up messages in _NOISE."""
    reading, writing = os.pipe()

    def pass_on() -> None:
        with open(reading, "rb") as lines:
            for line in lines:
                if not line.startswith(_NOISE):
                    text = line.decode(errors="backslashreplace")
                    print_lines(text.rstrip("\n"), file=sys.stderr)

    threading.Thread(target=pass_on, daemon=True).start()
    try:
        return launch_gateway(conf, {"stderr": writing})  # type: ignore[no-untyped-call]
    finally:
        os.close(writing)


def _end(starting: Future[SparkContext], files: str) -> None:
    """End Spark: at once if all its files and processes are on this machine, else in order."""
    context = None if starting.exception() else starting.result()
    java = _java()
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


def _java() -> Popen[bytes] | None:
    """The process of Java, if this process has started it."""
    gateway: Any = SparkContext._gateway
    return gateway.proc if gateway else None


def _ignore_signals() -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
