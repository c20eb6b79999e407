"""Made-up lives of processes: which of them the soak calls a leak."""

from __future__ import annotations

import random

import pytest

from tests.soak.growth import MIN_LIFE_S, Sample, growth

EVERY_S = 10.0
HOUR_S = 3600


def life(hours: float = 1.0, leak: float = 0.0, noise: float = 0.3, seed: int = 0) -> list[Sample]:
    """A process of 60 MB that fills its caches at first, then grows by `leak` MB per hour."""
    chance = random.Random(seed)
    times = [EVERY_S * number for number in range(int(hours * HOUR_S / EVERY_S))]
    warm_up_s = 0.08 * hours * HOUR_S
    return [
        (at_s, 40 + 20 * min(1, at_s / warm_up_s) + leak * at_s / HOUR_S + chance.gauss(0, noise))
        for at_s in times
    ]


@pytest.mark.parametrize("seed", range(20))
def test_a_process_that_fills_its_caches_and_stays_there_does_not_leak(seed: int) -> None:
    found = growth(life(seed=seed))

    assert found
    assert not found.is_leak
    assert found.size == pytest.approx(60, abs=1)


@pytest.mark.parametrize("seed", range(20))
def test_a_process_that_grows_leaks(seed: int) -> None:
    found = growth(life(leak=4.0, seed=seed))

    assert found
    assert found.is_leak
    assert found.slope == pytest.approx(4, abs=0.5)


def test_a_slow_leak_is_found_in_a_longer_run() -> None:
    short, long = (growth(life(hours, leak=0.6)) for hours in (1.0, 6.0))

    assert short and long
    assert not short.is_leak
    assert long.is_leak


def test_memory_that_jumps_under_faults_and_comes_back_is_no_leak() -> None:
    """Each 20th minute the process holds 30 MB more, for four minutes."""
    samples = [(at_s, size + 30 * (at_s % 1200 < 240)) for at_s, size in life(2.0)]

    found = growth(samples)

    assert found
    assert not found.is_leak


def test_a_leak_is_found_beneath_such_jumps() -> None:
    samples = [(at_s, size + 30 * (at_s % 1200 < 240)) for at_s, size in life(2.0, leak=10.0)]

    found = growth(samples)

    assert found
    assert found.is_leak


def test_descriptors_that_come_and_go_are_no_leak() -> None:
    chance = random.Random(1)
    samples = [(at_s, 25 + float(chance.randrange(-3, 4))) for at_s, _ in life()]

    found = growth(samples)

    assert found
    assert not found.is_leak


def test_one_descriptor_more_every_five_minutes_is_a_leak() -> None:
    chance = random.Random(1)
    samples = [(at_s, 25 + at_s // 300 + chance.randrange(-3, 4)) for at_s, _ in life()]

    found = growth(samples)

    assert found
    assert found.is_leak


def test_constant_descriptors_have_no_slope() -> None:
    found = growth([(at_s, 6.0) for at_s, _ in life()])

    assert found
    assert (found.slope, found.lowest_slope, found.is_leak) == (0, 0, False)


def test_a_short_life_is_not_judged() -> None:
    assert growth([]) is None
    assert growth([sample for sample in life(leak=100) if sample[0] < MIN_LIFE_S]) is None
