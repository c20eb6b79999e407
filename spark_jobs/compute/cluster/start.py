"""Starts Spark: its settings, Java, and the context."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import Popen
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from sam_pipeline.spark_jobs.compute.cluster.causes import failure
from sam_pipeline.spark_jobs.compute.cluster.java_output import JavaOutput
from sam_pipeline.spark_jobs.compute.cluster.master import require_master
from sam_pipeline.spark_jobs.config import require_java, under_spark_submit
from sam_pipeline.spark_jobs.errors import JavaMissing, SparkFailed

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
