"""The oracle of consuming finds what is lost, doubled, misplaced or of nobody."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.conservation import consumed, key_of, numbered


def test_records_in_different_places_are_conserved() -> None:
    consumed(["a", "b", "c", "d"], rows=["d"], dead_letters=["c"], spool=["b"], backlog=["a"])


def test_records_of_a_killed_publisher_may_or_may_not_exist() -> None:
    consumed(["a"], rows=["a", "b"], perhaps=["b", "c"])


@pytest.mark.parametrize(
    ("rows", "backlog", "words"),
    [
        (["a"], [], "accepted and lost"),
        (["a", "b", "b"], [], "twice among the rows"),
        (["a", "b"], ["b"], "among the rows and the backlog"),
        (["a", "b", "c"], [], "never published"),
    ],
)
def test_every_violation_is_detected(
    rows: Sequence[str], backlog: Sequence[str], words: str
) -> None:
    with pytest.raises(AssertionError, match=words):
        consumed(["a", "b"], rows=rows, backlog=backlog)


def test_a_record_has_a_key_even_if_it_cannot_be_loaded() -> None:
    good, bad = numbered("x", range(1)), numbered("y", range(1), metricStatus="MAYBE")

    assert [key_of(message.body) for message in (*good, *bad)] == ["x-0", "y-0"]
