"""The oracle of consuming detects lost, duplicate, misplaced and unknown records."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.conservation import account, consumed, key_of, keys_of, numbered


def test_records_in_different_places_are_conserved() -> None:
    consumed(["a", "b", "c", "d"], rows=["d"], dead_letters=["c"], spool=["b"], backlog=["a"])


def test_records_of_a_killed_publisher_may_or_may_not_exist() -> None:
    consumed(["a"], rows=["a", "b"], uncertain=["b", "c"])


@pytest.mark.parametrize(
    ("rows", "backlog", "stem"),
    [
        (["a"], [], "accepted and lost"),
        (["a", "b", "b"], [], "twice among the rows"),
        (["a", "b"], ["b"], "among the rows and the backlog"),
        (["a", "b", "c"], [], "never published"),
    ],
)
def test_every_violation_is_detected(
    rows: Sequence[str], backlog: Sequence[str], stem: str
) -> None:
    with pytest.raises(AssertionError, match=stem):
        consumed(["a", "b"], rows=rows, backlog=backlog)


def test_a_record_has_a_key_even_if_it_cannot_be_loaded() -> None:
    valid, invalid = numbered("x", range(1)), numbered("y", range(1), metricStatus="MAYBE")

    assert [key_of(message.body) for message in (*valid, *invalid)] == ["x-0", "y-0"]


def test_an_account_balances_when_each_record_is_stored_once_or_waits_somewhere() -> None:
    found = account(["a", "b", "c"], ["d"], stored=["a", "b", "d"], waiting=["b", "c"])

    assert found.is_balanced


def test_an_account_names_what_is_lost_what_is_stored_twice_and_what_nobody_published() -> None:
    found = account(["a", "b"], ["c"], stored=["b", "b", "x"], waiting=["y"])

    assert (found.lost, found.twice, found.unknown) == ({"a"}, {"b"}, {"x", "y"})
    assert not found.is_balanced


def test_a_body_of_several_records_has_their_keys_in_order() -> None:
    body = b"".join(message.body for message in numbered("x", range(3)))

    assert keys_of(body) == ["x-0", "x-1", "x-2"]
