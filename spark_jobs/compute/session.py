"""Starts Spark without its start-up messages: on one machine, or under spark-submit."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sam_pipeline.schema.program.command import print_lines
from sam_pipeline.spark_jobs.config import under_spark_submit
from sam_pipeline.spark_jobs.errors import JavaMissing

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

FEW_RESULTS = 100_000
"""Below this number, generating Java code for a plan takes longer than running without it."""

MANY_RESULTS = 30_000_000
"""From this number on, optimised code and plans are worth the time they take. Spark sees about a
tenth as many stretches."""

PARTITIONS = "spark.sql.shuffle.partitions"
DEFAULTS = {
    "spark.app.name": "sam-report",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "4g",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.ui.explainMode": "simple",
    # One report generates more than 100 classes (the default), and the next report reuses them.
    "spark.sql.codegen.cache.maxEntries": "2000",
    # Recording the call site of every column for error messages takes longer than all planning.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
# A laptop's own name may not resolve, and a local session never leaves the machine.
LOCAL_DEFAULTS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

# A run over few results is mostly start-up and planning: these cut its CPU time to a third.
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:MetaspaceSize=256m"
_QUICK_PLANS = {"spark.sql.adaptive.enabled": "false"}
_NO_CODE = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_LOG_CONFIG = Path(__file__).with_name("log4j2.properties")
# Lines that the JVM and Spark print before they read any log configuration.
_NOISE = (b"WARNING: Using incubator modules", b"Setting default log level", b"To adjust logging")


def start(
    master: str, settings: Mapping[str, str], java: str | None, *, results: int
) -> SparkSession:
    """A session in UTC with one shuffle partition per core, tuned for the number of results.

    `settings` (`--conf`) override all defaults.

    Raises:
        JavaMissing: no Java runtime was found, or Spark cannot start on it.
    """
    from pyspark import SparkConf, SparkContext  # slow to import
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if java is None and not under_spark_submit():
        raise JavaMissing("no Java runtime: apt-get install default-jre-headless (17 or 21)")
    # This logger prints every error as JSON, with the stack traces of Python and Java.
    logging.getLogger("DataFrameQueryContextLogger").disabled = True
    defaults = dict(DEFAULTS)
    java_options = f"-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()}"
    if results < MANY_RESULTS:
        java_options += f" {_QUICK_JAVA}"
        defaults.update(_QUICK_PLANS)
    if results < FEW_RESULTS:
        defaults.update(_NO_CODE)
    conf, gateway = SparkConf(), None
    try:
        if under_spark_submit():
            # Java is running already: only the settings of plans still take effect.
            for key, value in defaults.items():
                if key.startswith(("spark.sql.", "spark.python.")):
                    conf.setIfMissing(key, value)
            conf.set("spark.sql.session.timeZone", "UTC").setAll(list(settings.items()))
        else:
            defaults["spark.driver.defaultJavaOptions"] = java_options
            if master.startswith("local"):
                defaults.update(LOCAL_DEFAULTS)
            conf.setAll([("spark.master", master), *{**defaults, **settings}.items()])
            gateway = _quiet_gateway(conf)
        spark = SparkSession(SparkContext(conf=conf, gateway=gateway))
    except PySparkRuntimeError as error:
        raise JavaMissing(f"Spark doesn't start on {java}: it needs Java 17 or 21") from error
    if PARTITIONS not in settings:
        spark.conf.set(PARTITIONS, str(spark.sparkContext.defaultParallelism))
    return spark


def _quiet_gateway(conf: SparkConf) -> object:
    """Start Java, and pass on its stderr except for the start-up messages in _NOISE."""
    from pyspark.java_gateway import launch_gateway

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
