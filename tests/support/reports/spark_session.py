"""One local Spark session for all tests: the fixture `spark`, which conftest.py imports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark import SparkContext

from sam_pipeline.spark_jobs.compute.cluster.class_archive import archived_classes
from sam_pipeline.spark_jobs.compute.cluster.start import Starter
from sam_pipeline.spark_jobs.config import find_java, prepare_workers
from tests.services import missing
from tests.services.spark_classes import spark_cache


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkContext]:
    if find_java() is None:
        missing("Java", "apt-get install default-jre-headless")
    prepare_workers()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(spark_cache()))
        context = Starter().start("local[2]", {}, archived_classes())
    yield context
    context.stop()
