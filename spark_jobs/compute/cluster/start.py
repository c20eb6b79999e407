"""Starts Spark: its settings, Java and what that prints, and the context."""

from __future__ import annotations

import logging
import os
import re
import shlex
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from sam_pipeline.schema.program.command import print_lines
from sam_pipeline.schema.program.wording import one_line
from sam_pipeline.spark_jobs.config import class_archive, require_java, under_spark_submit
from sam_pipeline.spark_jobs.errors import JavaMissing, SparkDiskFull, SparkFailed

DEFAULTS = {
    "spark.app.name": "sam-report",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "4g",
}
# The machine's own name may not resolve, and a local session never leaves it. Spark looks up the
# name even if it has an address for everything, unless the environment also contains one.
LOCAL_DEFAULTS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
LOCAL_ENVIRONMENT = ("SPARK_LOCAL_IP", "127.0.0.1")

# Java only passes arrays on. So the second compiler would cost a third of the processor time of a
# small run, and a parallel garbage collector memory.
_JAVA = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_LOG_CONFIG = Path(__file__).with_name("log4j2.properties").as_uri()
_LOCAL_DIR = "spark.local.dir"

# The message of an exception of Java or Python, until the next one or the frames of its stack.
_EXCEPTION = r"[\w.$]*(?:Error|Exception)(?:: |$)"
_CAUSE = re.compile(
    rf'^(?:Caused by: |: |Exception in thread "[^"]*" )?{_EXCEPTION}'
    rf"(\S.*(?:\n(?!\s|Caused by: |{_EXCEPTION}).+)*)",
    re.MULTILINE,
)
_STACK = re.compile(
    rf"^(?:\s+at |\s+\.\.\. \d+ |Caused by: |Exception in thread |{_EXCEPTION})", re.MULTILINE
)
_NO_SPACE = ("No space left on device", "Disk quota exceeded", "Failed to create a temp directory")
STANDALONE = "spark://"
TIMEOUT_S = 10.0
# Lines that the JVM and Spark print before they read any log configuration.
_NOISE = ("WARNING: Using incubator modules", "Setting default log level", "To adjust logging")
# Java says this after the reason why it does not start.
_FAREWELL = ("Error: Could not create the Java Virtual Machine", "Error: A fatal exception has")
logger = logging.getLogger(__name__)


class Starter:
    """Starts Spark once; another thread can abort the start.

    `process` is that of Java, if it was started here.
    """

    def __init__(self) -> None:
        self.process: Popen[bytes] | None = None
        self._output: JavaOutput | None = None
        self._is_aborted = threading.Event()

    def abort(self) -> None:
        """End Java, now or as soon as it runs; from now on its output is discarded."""
        self._is_aborted.set()
        if self._output:
            self._output.mute()
        if self.process:
            self.process.terminate()

    def start(
        self,
        master: str,
        settings: Mapping[str, str],
        java_options: Sequence[str] = (),
        files: str | None = None,
    ) -> SparkContext:
        """A SparkContext without start-up messages.

        Args:
            settings: those of `--conf`, which override all defaults.
            java_options: further options of Java.
            files: a directory for all files of Java.
        Raises:
            JavaMissing: Spark cannot start on this Java, or there is none.
            SparkFailed: the settings make no SparkContext, or no master of the cluster answers.
            SparkDiskFull: the disk of Spark's temporary files is full.
        """
        if under_spark_submit():  # Java is running already, with settings of its own
            SparkContext._ensure_initialized()
            conf, gateway = SparkConf().setIfMissing("spark.log.level", "FATAL"), None
            conf.setAll(list(settings.items()))
        else:
            conf = SparkConf()
            java = require_java()
            require_master(settings.get("spark.master", master))
            options = [*_JAVA, f"-Dlog4j2.configurationFile={_LOG_CONFIG}"]
            if files is not None:
                # Without performance data, which Java would leave in /tmp when it is killed.
                options += [f"-Djava.io.tmpdir={files}", "-XX:-UsePerfData"]
            options += java_options
            defaults = {**DEFAULTS, "spark.driver.defaultJavaOptions": shlex.join(options)}
            if master.startswith("local"):
                defaults.update(LOCAL_DEFAULTS)
                os.environ.setdefault(*LOCAL_ENVIRONMENT)
            conf.setAll([("spark.master", master), *{**defaults, **settings}.items()])
            gateway = self._launch(conf, java)
        try:
            context = SparkContext(conf=conf, gateway=gateway)
        except Py4JError as error:
            places = [settings.get(_LOCAL_DIR) or files or "/tmp"]
            raise failure("Spark doesn't start", error, places) from error
        # It would print a traceback when Java ends.
        context._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
        if files is not None and gateway is not None:
            # If this process is killed, Java notices it and removes the directory.
            jvm: Any = context._jvm
            hooks = jvm.org.apache.spark.util.ShutdownHookManager
            hooks.registerShutdownDeleteDir(jvm.java.io.File(files))
        return context

    def _launch(self, conf: SparkConf, java: str) -> object:
        self._output = output = JavaOutput()
        # Of the reasons why it does not start, Java prints some on its standard output.
        streams = {"stdout": output.file, "stderr": output.file}
        try:
            gateway: Any = launch_gateway(conf, streams)  # type: ignore[no-untyped-call]
        except PySparkRuntimeError as error:
            output.close()
            reason = output.reason()
            if reason and "UnsupportedClassVersionError" not in reason:
                raise SparkFailed(f"Spark doesn't start: {reason}") from error
            raise JavaMissing(f"Spark doesn't start on {java}: it needs Java 17 or 21") from error
        output.close()
        output.started()
        self.process = gateway.proc
        if self._is_aborted.is_set():
            self.abort()
            raise SparkFailed("the start of Spark was aborted")
        return gateway


def local_directories(context: SparkContext) -> list[str]:
    """Where Spark writes its temporary files on this machine."""
    jvm: Any = context._jvm
    try:
        return list(jvm.org.apache.spark.util.Utils.getConfiguredLocalDirs(context._conf._jconf))
    except Py4JError:  # Java has ended
        return [str(context.getConf().get(_LOCAL_DIR) or "/tmp")]


def cause(text: str) -> str:
    """The innermost cause, which a trace of Java or Python prints last."""
    causes = _CAUSE.findall(text) or text.splitlines() or ["unknown"]
    return one_line(causes[-1])


def is_stack(line: str) -> bool:
    """Whether a line is part of the trace of an exception of Java."""
    return _STACK.match(line) is not None


def failure(what: str, error: Exception, directories: Sequence[str]) -> SparkFailed | SparkDiskFull:
    """Translate an error of Spark.

    Args:
        what: what failed.
        directories: where Spark writes temporary files.
    """
    innermost = cause(str(error) or type(error).__name__)
    if any(text in innermost for text in _NO_SPACE):
        return SparkDiskFull(
            f"no room for Spark's temporary files in {', '.join(directories)}: {innermost};"
            " make room, or choose another directory with --conf spark.local.dir=DIR"
        )
    return SparkFailed(f"{what}: {innermost}", innermost)


def require_master(url: str) -> None:
    """Check that a master listens, if `url` is one of a standalone cluster.

    Raises:
        SparkFailed: none of its masters can be reached.
    """
    if not url.startswith(STANDALONE):
        return
    failures = []
    for address in url.removeprefix(STANDALONE).split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            failures.append(f"{address}: not a master (expected HOST:PORT)")
            continue
        try:
            socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S).close()
            return
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            failures.append(f"{address}: {reason}")
    raise SparkFailed(f"no Spark master answers: {'; '.join(failures)}")


class JavaOutput:
    """Passes the lines on once Java has started; traces of exceptions go to the debug log.

    Until then they are kept: they say why Java does not start.
    """

    def __init__(self) -> None:
        reading, self.file = os.pipe()
        self._early: list[str] | None = []
        self._is_muted = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._read, args=(reading,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Java alone writes to `file` now, and its end is the end of the lines."""
        os.close(self.file)

    def started(self) -> None:
        with self._lock:
            early, self._early = self._early or [], None
        for line in early:
            self._pass_on(line)

    def mute(self) -> None:
        """Discard what Java prints from now on, because it is being ended."""
        self._is_muted = True

    def reason(self) -> str:
        """Why Java did not start, on one line; empty if it printed no reason."""
        self._thread.join(timeout=2)
        with self._lock:
            lines = [line for line in self._early or () if not line.startswith(_FAREWELL)]
        if any(map(is_stack, lines)):
            return cause("\n".join(lines))
        return ": ".join(line.rstrip(".:") for line in lines)

    def _read(self, reading: int) -> None:
        with open(reading, "rb") as lines:
            for raw in lines:
                line = raw.decode(errors="backslashreplace").rstrip("\n")
                if line.startswith(_NOISE):
                    continue
                with self._lock:
                    if self._early is not None:
                        self._early.append(line)
                        continue
                self._pass_on(line)

    def _pass_on(self, line: str) -> None:
        if self._is_muted or is_stack(line):
            logger.debug("Java: %s", line)
        else:
            print_lines(line, file=sys.stderr)


def archive_classes(archive: Path) -> None:
    """Store the classes that a run loads; later runs load them from there if they still fit.

    Raises:
        JavaMissing, SparkFailed: see `Starter.start`; or Java wrote no archive.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    new = archive.with_suffix(".new")
    new.unlink(missing_ok=True)
    options = (f"-XX:ArchiveClassesAtExit={new}", "-Xlog:disable")
    with TemporaryDirectory(prefix="sam-report-", ignore_cleanup_errors=True) as files:
        starter = Starter()
        context = starter.start("local[2]", {}, options, files)
        context.parallelize(range(2), 2).map(lambda n: (n, n)).partitionBy(2).collect()
        java = starter.process
        assert java and java.stdin
        java.stdin.close()
        java.wait()
    if not new.exists():
        raise SparkFailed("Java wrote no archive of its classes")
    new.replace(archive)


def archived_classes() -> list[str]:
    """The options with which Java uses the archive; it ignores one of another Java or Spark."""
    archive = class_archive()
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if archive.exists() else []
