"""One local Spark session for all tests of a process: the fixture `spark`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest
from pyspark import SparkContext

from sam_pipeline.spark_jobs.compute.cluster.start import Starter, archived_classes
from sam_pipeline.spark_jobs.config import find_java, prepare_workers
from tests.services import missing
from tests.services.spark_classes import spark_cache


@cache
def shared_context() -> SparkContext:
    """Starts Spark at the first call; it ends with this process, or with the fixture `spark`."""
    if find_java() is None:
        missing("Java", "apt-get install default-jre-headless")
    prepare_workers()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(spark_cache()))
        return Starter().start("local[2]", {}, archived_classes())


@pytest.fixture(scope="session")
def spark() -> SparkContext:
    return shared_context()


@pytest.fixture(scope="session", autouse=True)
def spark_ends() -> Iterator[None]:
    yield
    if shared_context.cache_info().currsize:
        shared_context().stop()
