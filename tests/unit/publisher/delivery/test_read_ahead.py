"""Preparing messages while a broker works: the same messages in the same order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sam_pipeline.publisher.delivery.read_ahead import ReadAhead


def test_what_was_fetched_ahead_comes_in_its_order() -> None:
    ahead = ReadAhead(iter(range(5)), max_items=10)
    first = next(ahead)

    worked = [ahead.work() for _ in range(2)]

    assert worked == [True, True]
    assert [first, *ahead] == [0, 1, 2, 3, 4]


def test_no_more_is_fetched_ahead_than_allowed() -> None:
    source = iter(range(5))
    ahead = ReadAhead(source, max_items=2)

    worked = [ahead.work() for _ in range(4)]

    assert worked == [True, True, False, False]
    assert next(source) == 2


def test_an_end_that_was_found_ahead_comes_after_the_last_item() -> None:
    ahead = ReadAhead(iter([1]), max_items=10)

    worked = [ahead.work() for _ in range(3)]

    assert worked == [True, False, False]
    assert list(ahead) == [1]


def test_an_error_that_was_met_ahead_is_raised_where_it_stands() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    ahead = ReadAhead(broken(), max_items=10)
    while ahead.work():
        pass

    assert next(ahead) == 1
    with pytest.raises(ValueError, match="broken"):
        next(ahead)
