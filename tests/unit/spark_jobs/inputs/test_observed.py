"""The sample of instances, and the percentile of their intervals."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.spark_jobs.inputs.observed import Instance, percentile, sample


def instances(count: int) -> list[Instance]:
    return [Instance("CE", f"ce{number:04}", "ping", number) for number in range(count)]


def test_few_instances_are_all_in_the_sample() -> None:
    assert sample(instances(50), 50) == instances(50)
    assert sample([], 50) == []


def test_a_sample_of_many_instances_is_evenly_spread() -> None:
    chosen = [instance.instance_id for instance in sample(instances(10_000), 50)]

    assert chosen == list(range(0, 10_000, 200))


@given(st.lists(st.integers(0, 9), min_size=1))
def test_the_percentile_is_the_least_value_that_enough_values_do_not_exceed(
    values: list[int],
) -> None:
    nearest = percentile(sorted(values), 99)

    enough = math.ceil(len(values) * 99 / 100)
    assert sum(value <= nearest for value in values) >= enough
    assert sum(value < nearest for value in values) < enough


def test_one_value_of_a_hundred_may_exceed_the_percentile() -> None:
    assert percentile([*range(1, 100), 5000], 99) == 99
    assert percentile([1] * 98 + [7, 8], 99) == 7
    assert percentile([3], 99) == 3
