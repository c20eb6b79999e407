"""The section `[report]` of sam.toml; the only module of the room that reads the environment."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from sam_pipeline.schema.program.config import load

SECTION = "report"


@dataclass(frozen=True)
class ReportConfig:
    """Which reports `sam-report run` computes."""

    profiles: tuple[Path, ...] = ()


def load_report(args: argparse.Namespace) -> ReportConfig:
    """The section; flags beat it.

    Raises:
        ConfigError: every problem of it.
    """
    profiles = getattr(args, "profile", None)
    profiles = tuple(profiles) if profiles else None
    return load(ReportConfig, SECTION, args.config, os.environ, profiles=profiles)


def find_java() -> str | None:
    """The Java runtime that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return shutil.which(str(Path(home) / "bin" / "java"))
    return shutil.which("java")


def prepare_workers() -> None:
    """Make Spark's Python workers run this interpreter, where our packages are."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def under_spark_submit() -> bool:
    """Whether spark-submit has started Java already."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
