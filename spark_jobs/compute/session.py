"""Starts Spark quietly, for a nightly process on one machine or under spark-submit."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from sam_pipeline.spark_jobs.config import under_spark_submit
from sam_pipeline.spark_jobs.errors import JavaMissing

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

FEW_RESULTS = 100_000
"""Up to here, generating Java code for a plan takes longer than running it without."""

MANY_RESULTS = 30_000_000
"""From here on, optimised code and plans are worth the time their making takes: of results, which
reach Spark as a tenth of so many stretches."""

PARTITIONS = "spark.sql.shuffle.partitions"
DEFAULTS = {
    "spark.app.name": "sam-report",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "4g",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.ui.explainMode": "simple",
    # One report makes more than the default of 100 classes; the next one then finds them.
    "spark.sql.codegen.cache.maxEntries": "2000",
    # Keeps the call site of every column for error messages; costs more than all the planning.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
# A laptop's own name may not resolve; a local session never leaves the machine anyway.
LOCAL_DEFAULTS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

# A run over few results is mostly start and planning: these cut its processor time to a third.
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:MetaspaceSize=256m"
_QUICK_PLANS = {"spark.sql.adaptive.enabled": "false"}
_NO_CODE = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_LOG_CONFIG = Path(__file__).with_name("log4j2.properties")
# What the JVM and Spark say before any log configuration is read.
_NOISE = (b"WARNING: Using incubator modules", b"Setting default log level", b"To adjust logging")

logger = logging.getLogger(__name__)


def start(
    master: str, settings: Mapping[str, str], java: str | None, *, results: int
) -> SparkSession:
    """A session in UTC with few partitions, ready for so many results.

    `settings` (--conf) beat all defaults.

    Raises:
        JavaMissing: there is no Java runtime, or Spark can't start on it.
    """
    from pyspark import SparkContext  # slow to import: only what runs Spark pays
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if java is None and not under_spark_submit():
        raise JavaMissing("no Java runtime: apt-get install default-jre-headless (17 or 21)")
    # It prints every error that is raised as JSON, with the traces of both languages.
    logging.getLogger("DataFrameQueryContextLogger").disabled = True
    conf = _conf(master, settings, results)
    try:
        gateway = None if under_spark_submit() else _quiet_gateway(conf)
        context = SparkContext(conf=conf, gateway=gateway)
    except PySparkRuntimeError as error:
        raise JavaMissing(f"Spark doesn't start on {java}: it needs Java 17 or 21") from error
    spark = SparkSession(context)
    if PARTITIONS not in settings:
        spark.conf.set(PARTITIONS, str(context.defaultParallelism))
    return spark


def _conf(master: str, settings: Mapping[str, str], results: int) -> SparkConf:
    from pyspark import SparkConf

    own = dict(DEFAULTS)
    java_options = f"-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()}"
    if results < MANY_RESULTS:
        java_options += f" {_QUICK_JAVA}"
        own.update(_QUICK_PLANS)
    if results < FEW_RESULTS:
        own.update(_NO_CODE)
    own["spark.driver.defaultJavaOptions"] = java_options
    if under_spark_submit():
        return _submitted_conf(own, settings)
    if master.startswith("local"):
        own.update(LOCAL_DEFAULTS)
    return SparkConf().setAll([("spark.master", master), *{**own, **settings}.items()])


def _submitted_conf(own: Mapping[str, str], settings: Mapping[str, str]) -> SparkConf:
    """What spark-submit was given, completed by what of ours concerns plans, not processes."""
    from pyspark import SparkConf

    conf = SparkConf()
    for key, value in own.items():
        if key.startswith(("spark.sql.", "spark.python.")):
            conf.setIfMissing(key, value)
    return conf.set("spark.sql.session.timeZone", "UTC").setAll(list(settings.items()))


def _quiet_gateway(conf: SparkConf) -> object:
    """Java with its stderr passed on line by line, but for what it always says at its start."""
    from pyspark.java_gateway import launch_gateway

    reading, writing = os.pipe()
    threading.Thread(target=_pass_on, args=(reading,), daemon=True).start()
    try:
        return launch_gateway(conf, {"stderr": writing})  # type: ignore[no-untyped-call]
    finally:
        os.close(writing)


def _pass_on(reading: int) -> None:
    with open(reading, "rb") as lines:
        for line in lines:
            if not line.startswith(_NOISE):
                sys.stderr.buffer.write(line)
                sys.stderr.flush()
