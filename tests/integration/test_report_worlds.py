"""Random small worlds: what Spark says of them is what the oracle says, to the second."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.exact.check import Checker
from tests.exact.databases import Databases
from tests.services.postgres import PostgresServer, fresh_database

SEED = 7
BATCHES, SIZE = 4, 125  # 500 worlds


@pytest.fixture(scope="module")
def checker(
    spark: SparkSession, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Checker:
    directory = tmp_path_factory.mktemp("worlds")
    return Checker(spark, Databases(directory, fresh_database(postgres)))


@pytest.mark.parametrize("number", range(BATCHES))
def test_figures_timelines_and_trends_of_random_worlds_are_the_oracles(
    checker: Checker, number: int
) -> None:
    """Each batch with its own order, copies, partitions and slices, on either database by turns."""
    checker.check(SEED, number, SIZE)
