"""Operations: ranks, and folds of sets."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import pytest

from sam_pipeline.spark_jobs.rules.statuses import AND, FOLDED, OR, STATUSES, Operation


def fold(operation: Operation, states: Iterable[str]) -> str:
    present = sum(1 << FOLDED.index(state) for state in set(states))
    return STATUSES[operation.answers[present]]


@pytest.mark.parametrize(
    ("states", "by_and", "by_or"),
    [
        (["OK"], "OK", "OK"),
        (["OK", "WARNING"], "WARNING", "OK"),
        (["UNKNOWN", "MISSING"], "MISSING", "UNKNOWN"),
        (["MISSING", "DOWNTIME"], "DOWNTIME", "DOWNTIME"),
        (["DOWNTIME", "CRITICAL"], "CRITICAL", "CRITICAL"),
        (["CRITICAL", "WARNING", "UNKNOWN"], "CRITICAL", "WARNING"),
        (FOLDED, "CRITICAL", "OK"),
    ],
)
def test_operations_are_ranks(states: list[str], by_and: str, by_or: str) -> None:
    assert fold(AND, states) == by_and
    assert fold(OR, states) == by_or


@pytest.mark.parametrize(
    ("operation", "order"),
    [
        (AND, "OK WARNING UNKNOWN MISSING DOWNTIME CRITICAL"),
        (OR, "MISSING DOWNTIME UNKNOWN CRITICAL WARNING OK"),
    ],
)
def test_of_two_states_the_later_one_in_the_order_is_the_result(
    operation: Operation, order: str
) -> None:
    for (low, a), (high, b) in product(enumerate(order.split()), repeat=2):
        assert fold(operation, [a, b]) == order.split()[max(low, high)]


def test_nothing_but_excluded_folds_to_excluded() -> None:
    assert fold(AND, []) == fold(OR, []) == "EXCLUDED"
