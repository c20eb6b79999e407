"""The fitted laws: figures that are known come back, and bad ones stay within reason."""

from __future__ import annotations

import numpy as np
import pytest

from tests.simulation.law import Amdahl, Usl, fitted_amdahl, fitted_usl, non_negative


def test_amdahl_finds_cost_and_contention() -> None:
    law = Amdahl(alone_us=20.0, contention=0.05)
    processes = [1, 2, 4, 1, 2, 4]

    found = fitted_amdahl(processes, [law.us(count) for count in processes])

    assert (found.alone_us, found.contention) == pytest.approx((20.0, 0.05))


def test_usl_finds_its_three_figures() -> None:
    law = Usl(alone=10_000, contention=0.1, coherency=0.02)
    processes = [1, 2, 3, 4, 8]

    found = fitted_usl(processes, [law.rate(count) for count in processes])

    assert (found.alone, found.contention, found.coherency) == pytest.approx((10_000, 0.1, 0.02))


def test_no_figure_is_negative() -> None:
    """Noise may say that a message gets cheaper with more processes."""
    found = fitted_amdahl([1, 2, 4], [22.0, 20.0, 18.0])

    assert found.contention == 0
    assert found.alone_us == pytest.approx(20.0)
    assert found.limit == float("inf")


def test_the_best_non_negative_figures_are_found() -> None:
    terms = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])

    assert non_negative(terms, np.array([2.0, 3.0, 4.0])) == pytest.approx((1.0, 1.0))
    assert non_negative(terms, np.array([1.0, 3.0, 5.0])) == pytest.approx((0.0, 22 / 14))


def test_a_rate_takes_the_cores_that_give_it() -> None:
    law = Amdahl(alone_us=20.0, contention=0.05)

    assert law.rate(law.cores(200_000)) == pytest.approx(200_000)
    assert law.cores(1.01 * law.limit) == float("inf")
