"""Rates of publishers: how long their messages stay with their broker."""

from __future__ import annotations

import pytest

from sam_pipeline.schema.identity import rates as module
from sam_pipeline.schema.identity.policy import PublisherRule
from sam_pipeline.schema.identity.rates import RateLimits


def publisher(records_per_minute: int | None, name: str = "a") -> PublisherRule:
    return PublisherRule(name, ("uid:1",), ("metricOutput",), records_per_minute=records_per_minute)


@pytest.mark.parametrize(
    ("per_minute", "spent", "pauses"),
    [
        (100, [(100, 0.0)], [0]),  # the records of a minute may come at once
        (100, [(150, 0.0), (50, 30.0), (150, 120.0)], [30, 30, 30]),
        (10, [(1_000_000, 0.0)], [60]),  # a minute at most
        (None, [(1_000_000, 0.0)], [0]),
    ],
)
def test_what_is_above_the_rate_is_paid_by_a_pause(
    per_minute: int | None, spent: list[tuple[int, float]], pauses: list[float]
) -> None:
    rates = RateLimits()
    waits = [rates.spend(publisher(per_minute), records, now) for records, now in spent]
    assert waits == pytest.approx(pauses)
    assert rates.spend(publisher(10, "b"), 5, 0.0) == 0  # others do not wait


def test_a_client_may_use_its_minute_at_once_and_then_waits_for_each_request() -> None:
    rates = RateLimits()

    assert [rates.admit("a", 60, 0.0) for _ in range(60)] == [0] * 60
    assert rates.admit("a", 60, 0.0) == pytest.approx(1)
    assert rates.admit("b", 60, 0.0) == 0
    assert rates.admit("a", 60, 1.0) == 0
    assert rates.admit("a", 60, 1.0) > 0
    assert not any(rates.admit("c", 0, 0.0) for _ in range(1000))  # no limit


def test_a_client_gets_its_rate_until_it_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = RateLimits()
    admitted = sum(not rates.admit("a", 60, at / 10) for at in range(6000))
    assert 60 + 599 <= admitted <= 60 + 600

    monkeypatch.setattr(module, "MAX_BUCKETS", 3)
    for name in ("b", "c"):
        rates.admit(name, 60, 600.0)
    rates.admit("d", 60, 700.0)
    assert rates._buckets.keys() == {"d"}
