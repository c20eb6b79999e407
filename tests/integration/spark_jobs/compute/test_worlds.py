"""Random small worlds: Spark's figures and timelines equal the oracle's, to the second."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from pyspark import SparkContext

from tests.oracle.batch import Batch, drawn_batch
from tests.oracle.check import Checker
from tests.oracle.databases import DIALECTS, Databases
from tests.oracle.spark import Arrangement
from tests.services.postgres import PostgresServer, fresh_database
from tests.worlds.drawn_setting import DAYS, HOST
from tests.worlds.model import Endpoint, Flavour, Profile, Result, World, midnight

SEED = 7
BATCHES, SIZE = 4, 125  # 500 worlds


@pytest.fixture(scope="module")
def checker(
    spark: SparkContext, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Checker:
    directory = tmp_path_factory.mktemp("worlds")
    return Checker(spark, Databases(directory, fresh_database(postgres)))


@pytest.mark.parametrize("number", range(BATCHES))
def test_figures_timelines_and_trends_of_random_worlds_equal_the_oracles(
    checker: Checker, number: int
) -> None:
    """Every batch has its own order, copies, slices and groups; the databases take turns."""
    checker.check(SEED, number, SIZE)


def test_order_copies_slices_and_the_database_do_not_change_the_facts(checker: Checker) -> None:
    batch = drawn_batch(SEED, BATCHES, 30)
    arranged = [
        Arrangement(shuffled=1, copies=0.0, cores=1),
        Arrangement(shuffled=2, copies=1.0, cores=7, instances_per_task=30),
    ]

    on_sqlite, on_postgresql = map(checker.facts, [batch] * 2, arranged, DIALECTS)

    assert on_sqlite == on_postgresql


def test_a_database_with_a_single_result(checker: Checker) -> None:
    """It is of the last second before the first day, so that the second day has no result."""
    given = drawn_batch(SEED, 0, 1).setting
    profile = Profile("worlds", {"CE": Flavour(("ping",))})
    setting = replace(given, profiles=(profile,), exclusions=())
    start = midnight(setting.first_day)
    endpoint = Endpoint("A", HOST, "CE", start - timedelta(days=9))
    result = Result(HOST, "CE", "ping", "OK", start - timedelta(seconds=1), monitoring_host="m1")
    batch = Batch(setting, [World(setting.first_day, DAYS, (endpoint,), (), (), (result,))])

    facts = checker.facts(batch, Arrangement(), DIALECTS[0])

    assert facts == batch.oracle_facts()
    [first, second] = [
        facts["w000"]["timeline", "sites", "worlds", str(day), "w000-A"] for day in setting.days[:2]
    ]
    assert (first, second) == (((0, 86_400, "OK"),), ((86_400, 172_800, "MISSING"),))
