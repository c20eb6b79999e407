"""The records and events of the soak."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from itertools import islice

import pytest

from tests.kills.faults import FAULTS
from tests.soak.events import EVENTS, events
from tests.soak.records import CLASSES, MAX_DETAILS, METRIC_OUTPUT, RecordClass, keys_in, text_of

MIDNIGHT = datetime(2018, 9, 9, tzinfo=UTC)


@pytest.mark.parametrize("record_class", CLASSES.values(), ids=lambda item: item.name)
def test_keys_are_found_in_records_of_every_class(record_class: RecordClass) -> None:
    chance = random.Random(0)
    texts = [text_of(record_class, "12345678x", n, MIDNIGHT, chance) for n in range(100)]

    assert keys_in("".join(texts).encode()) == [f"12345678x-{n}" for n in range(100)]


def test_details_have_up_to_10_kb_and_begin_with_their_length() -> None:
    chance = random.Random(0)
    texts = [text_of(METRIC_OUTPUT, "12345678x", n, MIDNIGHT, chance) for n in range(20_000)]

    details = [text.partition("detailsData: ")[2].removesuffix("\nEOT\n") for text in texts]
    assert all(not text or int(text.split()[0]) == len(text) for text in details)
    assert 0.95 * MAX_DETAILS < max(map(len, details)) < MAX_DETAILS
    assert min(map(len, details)) == 0


def test_a_seed_repeats_its_events_and_all_of_them_occur() -> None:
    first, again, other = (list(islice(events(seed), 500)) for seed in ("7-0", "7-0", "7-1"))

    assert first == again
    assert first != other
    assert {event.name for event in first} == {*FAULTS, *EVENTS}
