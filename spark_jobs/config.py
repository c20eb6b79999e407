"""The section `[report]` of sam.toml; only this module of sam-report reads the environment."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from sam_pipeline.schema.settings.key import Settings, config_key, duration_key, one_of
from sam_pipeline.schema.settings.section import load
from sam_pipeline.spark_jobs.errors import JavaMissing

DATABASE, ARCHIVE, AUTO = "database", "archive", "auto"
SOURCES = (DATABASE, ARCHIVE, AUTO)


class ReportConfig(Settings):
    """What `sam-report run` computes by default, and how long it waits for Spark."""

    SECTION = "report"

    profiles: tuple[Path, ...] = config_key(
        "the files of the profiles that `sam-report run` computes", default=()
    )
    source: str = config_key(
        "where closed days are read from: the `database`, the `archive`, or `auto`: the archive if"
        " its newest version of a day includes all changes that the database knows of",
        one_of(*SOURCES),
        AUTO,
    )
    start_timeout_s: float = duration_key(
        "start_timeout",
        "time limit for the start of Spark, and for each time without a worker for its tasks",
        600.0,
    )


def load_report(args: argparse.Namespace) -> ReportConfig:
    """The section `[report]`, and the options that override it; a ConfigError has all problems."""
    profiles = tuple(getattr(args, "profile", None) or ()) or None
    source = getattr(args, "source", None)
    return load(ReportConfig, args.config, profiles=profiles, source=source)


def find_java() -> str | None:
    """The path of the Java runtime that Spark would start, if there is one."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home, "bin", "java")) if home else "java")


def require_java() -> str:
    """The path of the Java runtime that Spark will start.

    Raises:
        JavaMissing: there is none.
    """
    if java := find_java():
        return java
    if home := os.environ.get("JAVA_HOME"):
        raise JavaMissing(
            f"no Java runtime in JAVA_HOME, {home}: correct that variable or unset it"
        )
    raise JavaMissing("no Java runtime: apt-get install default-jre-headless (17 or 21)")


def class_archive() -> Path:
    """Where `warm-up` stores classes: `$CACHE_DIRECTORY`, else `$XDG_CACHE_HOME/sam`."""
    service = os.environ.get("CACHE_DIRECTORY")
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(service or Path(cache) / "sam") / "spark.jsa"


def prepare_workers() -> None:
    """Make Spark's workers run this Python interpreter, which has our packages."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def under_spark_submit() -> bool:
    """Whether spark-submit started this process, and Java before it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
