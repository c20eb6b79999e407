"""The oracle of consuming finds what is lost, doubled, misplaced or of nobody."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.conservation import consumed, key_of, numbered


def test_records_in_different_places_are_conserved() -> None:
    consumed(["a", "b", "c", "d"], rows=["d"], dead_letters=["c"], spool=["b"], backlog=["a"])


def test_what_a_killed_publisher_may_have_sent_may_be_there_or_not() -> None:
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
def test_what_is_not_conserved_is_found(
    rows: Sequence[str], backlog: Sequence[str], words: str
) -> None:
    with pytest.raises(AssertionError, match=words):
        consumed(["a", "b"], rows=rows, backlog=backlog)


def test_the_key_of_a_record_is_in_its_body_even_if_it_can_not_be_loaded() -> None:
    good, bad = numbered("x", range(1)), numbered("y", range(1), metricStatus="MAYBE")

    assert [key_of(message.body) for message in (*good, *bad)] == ["x-0", "y-0"]
