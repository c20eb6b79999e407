"""Preparing messages while a broker works: the same messages in the same order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sam_pipeline.publisher.delivery.read_ahead import ReadAhead


def test_items_fetched_ahead_keep_their_order() -> None:
    ahead = ReadAhead(iter(range(5)), max_items=10)
    first = next(ahead)

    worked = [ahead.work() for _ in range(2)]

    assert worked == [True, True]
    assert [first, *ahead] == [0, 1, 2, 3, 4]


def test_the_number_of_items_fetched_ahead_is_limited() -> None:
    source = iter(range(5))
    ahead = ReadAhead(source, max_items=2)

    worked = [ahead.work() for _ in range(4)]

    assert worked == [True, True, False, False]
    assert next(source) == 2


def test_the_end_is_reported_after_the_last_item() -> None:
    ahead = ReadAhead(iter([1]), max_items=10)

    worked = [ahead.work() for _ in range(3)]

    assert worked == [True, False, False]
    assert list(ahead) == [1]


def test_an_error_is_raised_at_its_position() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    ahead = ReadAhead(broken(), max_items=10)
    while ahead.work():
        pass

    assert next(ahead) == 1
    with pytest.raises(ValueError, match="broken"):
        next(ahead)
