"""Quantiles of durations from their buckets."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.publisher.load_test.histogram import BUCKETS, Quantiles, bucket, middle, quantiles

YEAR_US = 365 * 86400 * 1_000_000
durations = st.integers(0, YEAR_US)


def of(*values_us: int) -> Quantiles | None:
    return quantiles(Counter(map(bucket, values_us)), max(values_us, default=0))


def test_without_messages_there_are_no_quantiles() -> None:
    assert of() is None


def test_of_one_message_all_quantiles_are_the_same() -> None:
    assert of(2_000_000) == Quantiles(2000.0, 2000.0, 2000.0)


def test_the_99th_percentile_leaves_out_one_of_a_hundred() -> None:
    found = of(*[1000] * 99, 50_000)

    assert found is not None
    assert abs(found.median - 1.0) < 0.01
    assert abs(found.p99 - 1.0) < 0.01
    assert found.maximum == 50.0


@given(durations)
def test_a_bucket_is_at_most_1_percent_away_from_its_values(value: int) -> None:
    assert abs(middle(bucket(value)) - value) <= value * 0.01
    assert bucket(value) < BUCKETS


@given(durations, durations)
def test_longer_durations_have_greater_buckets(one: int, other: int) -> None:
    assert (bucket(one) < bucket(other)) <= (one < other)
    assert (one <= other) <= (bucket(one) <= bucket(other))


@given(st.lists(durations, min_size=1))
def test_the_median_is_that_of_the_sorted_values(values: list[int]) -> None:
    found = of(*values)

    expected = sorted(values)[(len(values) - 1) // 2] / 1000
    assert found is not None
    assert abs(found.median - expected) <= expected * 0.01 + 0.001
    assert found.maximum == round(max(values) / 1000, 3)
