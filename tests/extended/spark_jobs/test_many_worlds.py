"""Many more random worlds than in tests/integration/spark_jobs/test_worlds.py."""

from __future__ import annotations

import pytest

from tests.integration.spark_jobs.test_worlds import checker as checker  # fixtures
from tests.integration.spark_jobs.test_worlds import databases as databases
from tests.oracle.check import Checker


@pytest.mark.parametrize("number", range(8))
def test_figures_timelines_and_trends_of_random_worlds_equal_the_oracles(
    checker: Checker, number: int
) -> None:
    checker.check(11, number, 125)
