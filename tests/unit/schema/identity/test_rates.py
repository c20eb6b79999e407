"""Rates of publishers: how long their messages stay with their broker."""

from __future__ import annotations

import pytest

from sam_pipeline.schema.identity.policy import PublisherRule
from sam_pipeline.schema.identity.rates import RateLimits


def publisher(records_per_minute: int | None, name: str = "a") -> PublisherRule:
    return PublisherRule(name, ("uid:1",), ("metricOutput",), records_per_minute=records_per_minute)


def test_the_records_of_a_minute_may_come_at_once() -> None:
    assert RateLimits().spend(publisher(100), 100, 0.0) == 0


def test_what_is_above_the_rate_is_paid_by_a_pause() -> None:
    rates = RateLimits()

    assert rates.spend(publisher(100), 150, 0.0) == pytest.approx(30)
    assert rates.spend(publisher(100), 50, 30.0) == pytest.approx(30)
    assert rates.spend(publisher(100), 150, 120.0) == pytest.approx(30)


def test_over_a_long_time_the_rate_is_what_is_read() -> None:
    rates, now, read = RateLimits(), 0.0, 0

    while now < 3600:
        now += 1 + rates.spend(publisher(600), 70, now)
        read += 70

    assert 600 * 60 < read < 600 * 60 + 600 + 70


def test_a_pause_lasts_a_minute_at_most() -> None:
    assert RateLimits().spend(publisher(10), 1_000_000, 0.0) == 60


def test_publishers_without_a_limit_and_others_do_not_wait() -> None:
    rates = RateLimits()
    rates.spend(publisher(10), 20, 0.0)

    assert rates.spend(publisher(10, "b"), 5, 0.0) == 0
    assert rates.spend(publisher(None, "c"), 1_000_000, 0.0) == 0
