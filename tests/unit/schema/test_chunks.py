"""Streams cut by count and bytes, and a clock that was never set."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.schema.chunks import chunks
from sam_pipeline.schema.errors import ClockNotSet
from sam_pipeline.schema.times import NOT_BEFORE, require_set_clock


@given(st.lists(st.integers(0, 12)), st.integers(1, 5), st.integers(1, 10))
def test_lists_are_as_large_as_the_limits_allow(
    sizes: list[int], max_items: int, max_bytes: int
) -> None:
    cut = list(chunks(sizes, int, max_items, max_bytes))

    assert [size for chunk in cut for size in chunk] == sizes
    for chunk in cut:
        assert 0 < len(chunk) <= max_items
        assert sum(chunk) <= max_bytes or len(chunk) == 1
    for chunk, (first, *_) in itertools.pairwise(cut):
        is_full = len(chunk) == max_items or sum(chunk) >= max_bytes
        assert is_full or sum(chunk) + first > max_bytes


def test_a_full_list_does_not_wait_for_the_next_item() -> None:
    read: list[int] = []

    def items() -> Iterator[int]:
        for number in range(4):
            read.append(number)
            yield number

    assert next(chunks(items(), lambda number: 1, 2, 100)) == [0, 1]
    assert read == [0, 1]


def test_a_clock_before_the_build_of_the_program_is_refused() -> None:
    with pytest.raises(ClockNotSet, match=r"shows 1970-01-01T00:00:00Z.*NTP"):
        require_set_clock(datetime.fromtimestamp(0, UTC))
    require_set_clock(NOT_BEFORE)
    require_set_clock(NOT_BEFORE + timedelta(days=10_000))
