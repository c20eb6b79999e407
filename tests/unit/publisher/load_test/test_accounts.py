"""Losses and duplicates by id, exactly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sam_pipeline.publisher.load_test.accounts import (
    MAX_LISTED,
    Arrivals,
    Sent,
    balance,
    count,
    first_bits,
    gaps,
)


def arrivals(shares: list[int], *ids: tuple[int, int]) -> Arrivals:
    found = Arrivals(shares)
    for producer, number in ids:
        found.add(producer, number)
    return found


def test_everything_arrived_once() -> None:
    consumers = [arrivals([2, 1], (0, 0), (1, 0), (0, 1)) for _ in range(3)]

    account = balance([Sent(2, 2), Sent(1, 1)], consumers, shared=False)

    assert (account.sent, account.expected, account.delivered) == (3, 9, 9)
    assert (account.missing, account.unconfirmed, account.duplicates) == (0, 0, 0)
    assert account.missing_ids == account.duplicate_ids == []


def test_each_consumer_of_a_topic_misses_its_own_messages() -> None:
    first = arrivals([20], *((0, number) for number in range(20) if number not in (3, 4, 5, 19)))
    second = arrivals([20], *((0, number) for number in range(20)))

    account = balance([Sent(20, 20)], [first, second], shared=False)

    assert account.missing == 4
    assert account.missing_ids == [
        "producer 0 message 3 to 5 at consumer 0",
        "producer 0 message 19 at consumer 0",
    ]


def test_a_message_of_a_queue_is_missing_only_if_no_consumer_has_it() -> None:
    first, second = arrivals([4], (0, 0), (0, 2)), arrivals([4], (0, 1))

    account = balance([Sent(4, 4)], [first, second], shared=True)

    assert (account.expected, account.delivered, account.missing) == (4, 3, 1)
    assert account.missing_ids == ["producer 0 message 3"]


def test_a_message_that_was_never_confirmed_is_not_lost() -> None:
    account = balance([Sent(10, 4)], [arrivals([10], (0, 0), (0, 1), (0, 2))], shared=False)

    assert (account.missing, account.unconfirmed) == (1, 6)
    assert account.missing_ids == ["producer 0 message 3 at consumer 0"]


def test_duplicates_are_counted_at_one_consumer_and_between_two_of_a_queue() -> None:
    first, second = arrivals([4], (0, 0), (0, 0), (0, 1)), arrivals([4], (0, 1), (0, 2), (0, 3))

    account = balance([Sent(4, 4)], [first, second], shared=True)

    assert (account.delivered, account.missing, account.duplicates) == (4, 0, 2)
    assert account.duplicate_ids == [
        "producer 0 message 0 at consumer 0",
        "producer 0 message 1 at two consumers",
    ]


def test_all_losses_are_counted_but_only_some_are_listed() -> None:
    arrived = arrivals([1000], *((0, number) for number in range(0, 1000, 2)))

    account = balance([Sent(1000, 1000)], [arrived], shared=False)

    assert account.missing == 500
    assert len(account.missing_ids) == MAX_LISTED


@pytest.mark.parametrize("message", [(0, 16), (2, 0), (0, 10**12)])
def test_a_message_that_nobody_sends_is_refused_and_needs_no_memory(
    message: tuple[int, int],
) -> None:
    with pytest.raises(IndexError):
        arrivals([10, 10], message)


@given(st.lists(st.integers(0, 99)), st.integers(0, 100))
def test_the_bitmaps_agree_with_sets(numbers: list[int], limit: int) -> None:
    found = arrivals([100], *((0, number) for number in numbers))
    expected = {number for number in numbers if number < limit}

    missing = [n for first, last in gaps(found.bitmaps[0], limit) for n in range(first, last + 1)]

    assert found.count == count(found.bitmaps[0]) == len(set(numbers))
    assert found.duplicates == len(numbers) - len(set(numbers))
    assert count(first_bits(found.bitmaps[0], limit)) == len(expected)
    assert missing == sorted(set(range(limit)) - expected)
