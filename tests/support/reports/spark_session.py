"""One local Spark session for all tests: the fixture `spark`, which conftest.py imports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark import SparkContext

from sam_pipeline.spark_jobs.compute.cluster.start import Starter
from sam_pipeline.spark_jobs.config import find_java, prepare_workers
from tests.services import missing


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkContext]:
    if find_java() is None:
        missing("Java", "apt-get install default-jre-headless")
    prepare_workers()
    context = Starter().start("local[2]", {})
    yield context
    context.stop()
