"""Results become stretches without losing anything that a report needs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.spark_jobs.compute.stretches import Results, Stretches, newest, stretches

START = 1_794_614_400  # 2026-11-14T00:00:00Z
OK, WARNING, CRITICAL = 0, 1, 5

ResultRows = list[tuple[int, int, int]]  # instance, second of the day, status


def condensed(
    results: ResultRows, *, alone: tuple[int, ...] = (), apart_s: int | None = None
) -> Stretches:
    rows = np.array([(i, (START + s) << 3 | status) for i, s, status in results], np.int64)
    columns = rows.reshape(-1, 2).T
    return stretches(Results(columns[0], columns[1]), np.array(alone, np.int64), apart_s)


def rows_of(table: Stretches) -> list[tuple[int, int, int, int, int]]:
    """Instance, status, first and last second of the day, number of results."""
    columns = (
        table.instance,
        table.packed & 7,
        (table.packed >> 3) - START,
        table.last - START,
        table.results,
    )
    return [tuple(map(int, row)) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize(
    ("results", "options", "rows"),
    [
        # Equal consecutive results are one stretch; instances stay apart.
        (
            [(1, 10, OK), (1, 20, OK), (1, 30, CRITICAL), (1, 40, OK), (2, 40, CRITICAL)],
            {},
            [
                *((1, OK, 10, 20, 2), (1, CRITICAL, 30, 30, 1), (1, OK, 40, 40, 1)),
                (2, CRITICAL, 40, 40, 1),
            ],
        ),
        # Of several results at one second the worst counts.
        (
            [(1, 10, OK), (1, 20, CRITICAL), (1, 20, OK), (1, 20, WARNING), (1, 30, CRITICAL)],
            {},
            [(1, OK, 10, 10, 1), (1, CRITICAL, 20, 30, 4)],
        ),
        # A long silence begins a new stretch.
        (
            [(1, 0, OK), (1, 100, OK), (1, 201, OK)],
            {"apart_s": 100},
            [(1, OK, 0, 100, 2), (1, OK, 201, 201, 1)],
        ),
        # Results of an instance in `alone` are not merged.
        (
            [(1, 0, OK), (1, 1, OK), (2, 0, OK), (2, 1, OK)],
            {"alone": (2,)},
            [(1, OK, 0, 1, 2), (2, OK, 0, 0, 1), (2, OK, 1, 1, 1)],
        ),
        ([], {}, []),
    ],
)
def test_results_become_stretches(
    results: ResultRows, options: dict[str, Any], rows: list[tuple[int, ...]]
) -> None:
    assert rows_of(condensed(results, **options)) == rows


any_results = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 40), st.sampled_from([OK, WARNING, CRITICAL]))
)


@given(any_results, st.sampled_from([None, 3, 7]))
def test_each_second_has_the_state_and_the_age_of_the_newest_result(
    results: ResultRows, apart_s: int | None
) -> None:
    rows = rows_of(condensed(results, apart_s=apart_s))

    for instance in {i for i, _, _ in results}:
        own = [(s, status) for i, s, status in results if i == instance]
        parts = [(first, last, status) for i, status, first, last, _ in rows if i == instance]
        for second in range(45):
            newest = max((result for result in own if result[0] <= second), default=None)
            at = max((part for part in parts if part[0] <= second), default=None)
            assert (newest is None) == (at is None)
            if newest is not None and at is not None:
                assert at[2] == newest[1]
                # Time is known while a result of the stretch is still valid.
                valid = 7 if apart_s is None else apart_s
                measured = min(at[1], second)
                if apart_s is not None:
                    assert (second - newest[0] <= valid) == (
                        second - measured <= valid or at[1] > second
                    )


@given(any_results)
def test_counts_and_checks_add_up_however_results_are_sliced(results: ResultRows) -> None:
    whole = condensed(results)
    assert whole.results.sum() == len(results)
    early, late = ([r for r in results if (r[1] < 20) == first] for first in (True, False))
    parts = [condensed(early), condensed(late)]

    for column in ("results", "check"):
        cut = sum(int(getattr(part, column).sum()) for part in parts) % 2**64
        assert int(getattr(whole, column).sum()) == cut


def test_the_newest_result_of_each_instance_is_not_counted_again() -> None:
    table = condensed([(1, 10, CRITICAL), (1, 20, OK), (1, 30, OK), (2, 15, WARNING)])

    assert rows_of(newest(table)) == [(1, OK, 30, 30, 0), (2, WARNING, 15, 15, 0)]
    assert not newest(table).check.any()
    assert rows_of(newest(condensed([]))) == []
