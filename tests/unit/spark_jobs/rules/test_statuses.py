"""The ranks of the two operations (availability rule 10)."""

from __future__ import annotations

from itertools import combinations

import pytest

from sam_pipeline.spark_jobs.rules.statuses import AND, FOLDED, OR, STATUSES, Operation


@pytest.mark.parametrize(
    ("operation", "order"),
    [
        (AND, "OK WARNING UNKNOWN MISSING DOWNTIME CRITICAL"),
        (OR, "MISSING DOWNTIME UNKNOWN CRITICAL WARNING OK"),
    ],
    ids=["AND", "OR"],
)
def test_the_result_is_the_later_of_two_states(operation: Operation, order: str) -> None:
    states = [STATUSES.index(name) for name in order.split()]

    assert len(states) == len(FOLDED)
    for earlier, later in combinations(states, 2):
        assert operation.table[earlier][later] == operation.table[later][earlier] == later
