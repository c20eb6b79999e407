"""The oracle of consuming detects lost, duplicate, misplaced and unknown records."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import pytest

from tests.support.conservation import account, consumed, key_of, keys_of, numbered


@pytest.mark.parametrize(
    ("rows", "letters", "stem"),
    [
        (["a", "c"], ["b"], ""),  # c is uncertain
        (["a"], [], r"lost=\{'b'\}"),
        (["a", "b", "b"], [], r"twice=\{'b'\}"),
        (["a", "b"], ["b"], r"twice=\{'b'\}"),
        (["a", "b", "x"], [], r"unknown=\{'x'\}"),
    ],
)
def test_every_violation_is_detected(
    rows: Sequence[str], letters: Sequence[str], stem: str
) -> None:
    with pytest.raises(AssertionError, match=stem) if stem else nullcontext():
        consumed(["a", "b"], rows, letters, uncertain=["c", "d"])


def test_an_account_names_what_is_lost_what_is_stored_twice_and_what_nobody_published() -> None:
    assert account(["a", "b", "c"], ["d"], stored=["a", "b", "d"], waiting=["b", "c"]).is_balanced

    found = account(["a", "b"], ["c"], stored=["b", "b", "x"], waiting=["y"])
    assert (found.lost, found.twice, found.unknown) == ({"a"}, {"b"}, {"x", "y"})
    assert not found.is_balanced


def test_records_have_keys_in_order_even_if_they_cannot_be_loaded() -> None:
    body = b"".join(message.body for message in numbered("x", range(3)))
    [invalid] = numbered("y", range(1), metricStatus="MAYBE")

    assert (keys_of(body), key_of(invalid.body)) == (["x-0", "x-1", "x-2"], "y-0")
