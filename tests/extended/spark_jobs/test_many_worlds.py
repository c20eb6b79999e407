"""Many more random worlds than in tests/integration/spark_jobs/test_worlds.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark import SparkContext

from tests.integration.spark_jobs.test_worlds import check_revisions
from tests.integration.spark_jobs.test_worlds import checker as checker  # fixtures
from tests.integration.spark_jobs.test_worlds import databases as databases
from tests.oracle.batch import drawn_batch
from tests.oracle.check import Checker
from tests.oracle.databases import Databases


@pytest.mark.parametrize("number", range(8))
def test_figures_timelines_and_trends_of_random_worlds_equal_the_oracles(
    checker: Checker, number: int
) -> None:
    checker.check(11, number, 125)


@pytest.mark.parametrize("number", range(4))
def test_each_revision_of_many_worlds_keeps_its_figures(
    spark: SparkContext,
    databases: Databases,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    check_revisions(spark, databases, tmp_path, monkeypatch, drawn_batch(12, number, 75))
