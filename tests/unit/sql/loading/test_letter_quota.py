"""The limits on the dead letters of a sender, and the summary of those beyond them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sam_pipeline.schema.messages.message import Message
from sam_pipeline.sql.loading.letters.quota import (
    LONGEST_SAMPLE,
    MOST_SAMPLES,
    MOST_SENDERS,
    OTHERS,
    FloodSummary,
    LetterQuota,
    Ration,
    Sender,
    sender_of,
)
from tests.support.builders import NOW

SOURCE = "stomp://broker.example.org:61613"


def message(user: str = "") -> Message:
    return Message({"JMSXUserID": user}, b"x")


def ration_of(quota: LetterQuota, hours_later: int = 0, source: str = SOURCE) -> Ration:
    return quota.begin(NOW + timedelta(hours=hours_later), lambda message: source)


def admitted(ration: Ration, letters: int, user: str = "", size_bytes: int = 1) -> int:
    return sum(ration.admits(message(user), size_bytes) for _ in range(letters))


@pytest.mark.parametrize(("size_bytes", "expected"), [(1, 5), (40, 2), (101, 0)])
def test_a_sender_has_a_limit_on_letters_and_on_bytes(size_bytes: int, expected: int) -> None:
    ration = ration_of(LetterQuota(5, 100))

    assert admitted(ration, 20, size_bytes=size_bytes) == expected


def test_what_was_committed_counts_until_the_hour_ends() -> None:
    quota = LetterQuota(5, 100)
    ration = ration_of(quota)
    admitted(ration, 3)
    ration.commit()

    assert admitted(ration_of(quota), 20) == 2
    assert admitted(ration_of(quota, hours_later=1), 20) == 5


def test_what_was_rolled_back_has_used_nothing() -> None:
    quota = LetterQuota(5, 100)

    assert [admitted(ration_of(quota), 20) for _ in range(3)] == [5, 5, 5]


def test_a_letter_that_had_been_stored_before_uses_nothing() -> None:
    ration = ration_of(LetterQuota(5, 100))
    admitted(ration, 5, size_bytes=20)

    ration.give_back(message(), 20)

    assert admitted(ration, 20, size_bytes=20) == 1


def test_senders_of_one_source_and_of_others_have_limits_of_their_own() -> None:
    quota = LetterQuota(5, 100)
    ration = ration_of(quota)
    assert [admitted(ration, 20, user) for user in ("a", "b", "a")] == [5, 5, 0]
    ration.commit()

    assert admitted(ration_of(quota, source="spool:///var/spool/sam-in"), 20, "a") == 5


def test_forged_names_beyond_the_first_hundred_share_one_limit() -> None:
    ration = ration_of(LetterQuota(5, 100))

    stored = sum(admitted(ration, 20, f"user{number}") for number in range(1000))

    assert stored == 5 * (MOST_SENDERS + 1)
    ration.summarise(message("user999"), "id", "no-key", b"x")
    assert [sender.user for sender in ration.summaries] == [OTHERS]


@pytest.mark.parametrize(
    ("headers", "user"),
    [({"JMSXUserID": "alice"}, "alice"), ({"user-id": "bob"}, "bob"), ({"user": "carol"}, "")],
)
def test_a_sender_is_a_source_and_the_user_that_the_broker_names(
    headers: dict[str, str], user: str
) -> None:
    assert sender_of(Message(headers, b""), SOURCE) == Sender(SOURCE, user)


def test_a_stored_summary_is_continued() -> None:
    first, second = summary_of(3, "no-key"), summary_of(2, "bad-status")
    second.add("more", "no-key", b"x")

    second.add_stored(str(first))

    assert second.counts == {"no-key": 4, "bad-status": 2}
    assert [sample.split()[0] for sample in second.samples] == [*"012", "0", "1", "more"]
    again = summary_of(0, "")
    again.add_stored(str(second))
    assert str(again) == str(second)


def test_a_summary_is_bounded_and_each_sample_is_one_line() -> None:
    summary = FloodSummary(Sender(SOURCE, "evil\nname" * 1000), NOW)
    for _ in range(1000):
        summary.add("id", "no-key", b"\x1b[31m\nEOT\n\xff" * 1000)

    first, *samples = str(summary).split("\n")

    assert first.startswith("1000 ") and "no-key 1000" in first
    assert len(samples) == MOST_SAMPLES
    assert all(line.isprintable() and len(line) <= LONGEST_SAMPLE for line in [first, *samples])
    assert len(summary.message_id) < 100


def summary_of(count: int, reason: str) -> FloodSummary:
    summary = FloodSummary(Sender(SOURCE, "alice (and: others) 3"), NOW)
    for number in range(count):
        summary.add(str(number), reason, b"some\nbody")
    return summary
