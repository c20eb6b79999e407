"""Counts of messages: sums, limits on names, and their forms."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import fields, replace

import pytest

from sam_pipeline.schema.messages.counts import MAX_KEYS, MAX_REFUSALS, OTHERS, Counts, listed

LOADED = Counts(
    messages_by_broker=Counter({"stomp://a:61613": 4}),
    rows_by_class=Counter(metricOutput=3, siteGroup=2),
    dead_letters=Counter({"bad-status": 1}),
    checks=1,
    refusals=Counter({("alice", "not-authorised"): 1, ("alice", "unsigned"): 2}),
)


def total_of(*parts: Counts) -> Counts:
    """The total that a process keeps."""
    total = Counts()
    for part in parts:
        total += part.printable_for(total)
    return total


def test_every_count_is_added() -> None:
    ones = Counts()
    for item in fields(Counts):
        value = getattr(ones, item.name)
        setattr(ones, item.name, 1 if isinstance(value, int) else Counter({("a", "b"): 1}))
    total = replace(Counts())

    for _ in range(2):
        total += ones

    for item in fields(Counts):
        assert getattr(total, item.name) in (2, {("a", "b"): 2})


def test_ignored_keys_are_counted_by_a_limited_number_of_printable_names() -> None:
    first = Counts(ignored_keys=Counter({"colour": 2, "a\ud800b\0c": 1}))
    more = Counts(ignored_keys=Counter(colour=3))
    many = Counts(ignored_keys=Counter({f"key{number}": 1 for number in range(1000)}))
    late = Counts(ignored_keys=Counter(key0=1, late=1))

    assert total_of(first, more).ignored_keys == {"colour": 5, r"a\ud800b\x00c": 1}
    keys = total_of(first, more, many, late).ignored_keys
    assert len(keys) == MAX_KEYS + 1
    assert (keys[OTHERS], keys["key0"]) == (1002 - MAX_KEYS + 1, 2)


def test_refusals_are_counted_by_a_limited_number_of_publishers() -> None:
    senders = [f"broker:stomp://mb1:61613/user{number}" for number in range(3 * MAX_REFUSALS)]
    parts = [
        Counts(refusals=Counter({(sender, "not-authorised"): 1}))
        for sender in [*senders, senders[0], senders[0]]
    ]

    refusals = total_of(*parts).refusals

    assert refusals[senders[0], "not-authorised"] == 3
    assert refusals[OTHERS, "not-authorised"] == 2 * MAX_REFUSALS


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        (Counts(rows_by_class=Counter(downtime=1), repeated_dead_letters=1), True),
        (Counts(dead_letters=Counter({"bad-status": 1})), False),
        (Counts(summarised_dead_letters=1), False),
        (Counts(rejected_messages=1), False),
        (Counts(damaged_elements=1), False),
    ],
)
def test_not_everything_is_loaded_while_a_record_or_message_is_kept_elsewhere(
    counts: Counts, expected: bool
) -> None:
    assert counts.all_loaded is expected


def test_a_document_has_totals_and_is_read_back() -> None:
    document = json.loads(json.dumps(LOADED.document()))

    assert (document["messages"], document["rows"], document["duplicates"]) == (4, 5, 0)
    assert document["refusals"] == {"alice": {"not-authorised": 1, "unsigned": 2}}
    assert Counts.from_document(document) == LOADED


def test_a_text_has_rows_duplicates_dead_letters_and_all_other_counts() -> None:
    assert str(Counts()) == "0 messages: 0 rows, 0 duplicates, 0 dead letters"
    assert str(LOADED) == (
        "4 messages (stomp://a:61613: 4): 5 rows, 0 duplicates, 1 dead letter (bad-status: 1),"
        " 1 check, 3 refusals (alice: 3)"
    )


def test_a_text_lists_a_limited_number_of_names() -> None:
    text = listed({f"user{number}": number for number in range(1000)})

    assert text.startswith(" (user999: 999, ") and text.endswith(", …)")
    assert "user0:" not in text
