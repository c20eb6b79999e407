"""Dead letters: what is kept of them, which are found, what an edit and a drop leave behind."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.sql.errors import EditRefused, NoSuchDeadLetter
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.dead_letter import (
    DeadLetter,
    LetterFilter,
    dead_letter_ids,
    drop_dead_letters,
    list_dead_letters,
    open_by_reason,
    show_dead_letter,
)
from sam_pipeline.sql.loading.dead_letter_edit import edit_dead_letter
from sam_pipeline.sql.loading.load import load
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.database.roles import acting_as

LATER = NOW + timedelta(hours=1)
BAD = metric_result(metricStatus="FINE", detailsData="ü")


def load_now(engine: Engine, *messages: Message) -> None:
    with acting_as("loader", engine) as loader:
        load(loader, Catalogue(loader), messages, NOW)


def only_letter(engine: Engine) -> DeadLetter:
    with acting_as("loader", engine) as loader:
        [letter] = list_dead_letters(loader, LetterFilter(any_state=True))
    return letter


def edit(engine: Engine, number: int, body: bytes | None = None, **headers: str | None) -> int:
    with acting_as("loader", engine) as loader:
        return edit_dead_letter(loader, number, LATER, body, headers)


def drop(engine: Engine, wanted: LetterFilter) -> int:
    with acting_as("loader", engine) as loader:
        return drop_dead_letters(loader, wanted, LATER)


def numbers(letters: list[DeadLetter]) -> list[int]:
    return [letter.dead_letter_id for letter in letters]


def test_a_dead_letter_holds_the_one_bad_record_and_all_headers(engine: Engine) -> None:
    message = metric_message(metric_result(), BAD, destination="/topic/x")

    load_now(engine, message)

    letter = only_letter(engine)
    assert letter == DeadLetter(
        dead_letter_id=letter.dead_letter_id,
        message_id=message.message_id,
        record_number=2,
        message_class="metricOutput",
        reason="bad-status",
        error=letter.error,
        received_at=NOW,
        state="open",
        changed_at=NOW,
    )
    assert "FINE" in letter.error
    content = show_dead_letter(engine, letter.dead_letter_id)
    assert content.headers == message.headers
    assert content.body.strip() == write_wlcg(BAD).encode().strip()


@pytest.fixture
def three(engine: Engine) -> list[int]:
    """Letters: an unknown class, two bad records of a message received two days later."""
    load_now(engine, new_message("unknown", "a: b\nEOT\n"))
    with acting_as("loader", engine) as loader:
        worse = metric_result(metricStatus="WORSE")
        load(loader, Catalogue(loader), [metric_message(BAD, worse)], NOW + timedelta(days=2))
    return numbers(list_dead_letters(engine))


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (LetterFilter(), [0, 1, 2]),
        (LetterFilter(reason="bad-status"), [1, 2]),
        (LetterFilter(message_class="UNKNOWN"), [0]),
        (LetterFilter(received_before=NOW + timedelta(days=1)), [0]),
        (LetterFilter(received_before=NOW), []),
        (LetterFilter(reason="bad-status", message_class="unknown"), []),
    ],
)
def test_letters_are_found_by_reason_class_and_age(
    engine: Engine, three: list[int], wanted: LetterFilter, found: list[int]
) -> None:
    assert numbers(list_dead_letters(engine, wanted)) == [three[at] for at in found]
    assert dead_letter_ids(engine, wanted) == [three[at] for at in found]


def test_of_a_long_list_the_newest_are_told_in_order(engine: Engine, three: list[int]) -> None:
    assert numbers(list_dead_letters(engine, limit=2)) == three[1:]


def test_open_ones_are_counted_by_reason(engine: Engine, three: list[int]) -> None:
    with acting_as("loader", engine) as loader:
        assert open_by_reason(loader) == {"bad-status": 2, "unknown-class": 1}

    drop(engine, LetterFilter(reason="bad-status"))

    assert open_by_reason(engine) == {"unknown-class": 1}


def test_dropped_ones_stay_as_rows_and_are_dropped_once(engine: Engine, three: list[int]) -> None:
    assert drop(engine, LetterFilter(ids=three[:2], any_state=True)) == 2
    assert drop(engine, LetterFilter(ids=three[:2], any_state=True)) == 0

    assert numbers(list_dead_letters(engine)) == three[2:]
    states = [letter.state for letter in list_dead_letters(engine, LetterFilter(any_state=True))]
    assert states == ["dropped", "dropped", "open"]


def test_a_redelivery_of_a_dropped_one_does_not_bring_it_back(engine: Engine) -> None:
    message = metric_message(BAD)
    load_now(engine, message)
    drop(engine, LetterFilter())

    load_now(engine, message)

    assert only_letter(engine).state == "dropped"


def test_one_that_does_not_exist_is_told(engine: Engine) -> None:
    with pytest.raises(NoSuchDeadLetter, match="no dead letter 4711"):
        show_dead_letter(engine, 4711)
    with pytest.raises(NoSuchDeadLetter):
        edit(engine, 4711, b"x")
    with pytest.raises(NoSuchDeadLetter):
        dead_letter_ids(engine, LetterFilter(ids=[4711], any_state=True))


def test_an_edited_letter_is_a_new_one_and_the_old_one_keeps_its_bytes_and_headers(
    engine: Engine,
) -> None:
    message = metric_message(metric_result(), BAD, destination="/topic/x")
    load_now(engine, message)
    old = only_letter(engine)
    before = show_dead_letter(engine, old.dead_letter_id)

    number = edit(engine, old.dead_letter_id, b"mended\xff", destination=None, by="me")

    new, kept = show_dead_letter(engine, number), show_dead_letter(engine, old.dead_letter_id)
    assert (kept.headers, kept.body) == (before.headers, before.body)
    assert (kept.letter.state, kept.edited_as, kept.letter.edited_from) == ("dropped", number, None)
    assert new.body == b"mended\xff"
    expected = {**message.headers, "by": "me"}
    assert new.headers == {
        key: value for key, value in expected.items() if key not in ("destination", "recordCount")
    }
    assert new.letter == DeadLetter(
        dead_letter_id=number,
        message_id=message.message_id,
        record_number=2,
        message_class="metricOutput",
        reason="bad-status",
        error=old.error,
        received_at=NOW,
        state="open",
        changed_at=LATER,
        edited_from=old.dead_letter_id,
    )


def test_an_edition_can_be_edited_again_and_every_one_is_kept(engine: Engine) -> None:
    load_now(engine, metric_message(BAD))
    first = only_letter(engine).dead_letter_id
    second = edit(engine, first, b"better")

    third = edit(engine, second, b"good")

    assert [show_dead_letter(engine, one).body for one in (second, third)] == [b"better", b"good"]
    editions = [show_dead_letter(engine, one).letter.edited_from for one in (first, second, third)]
    assert editions == [None, first, second]
    assert numbers(list_dead_letters(engine)) == [third]


def test_another_class_by_header_is_the_class_of_the_edition(engine: Engine) -> None:
    load_now(engine, new_message("metricoutputt", write_wlcg(metric_result())))

    number = edit(engine, only_letter(engine).dead_letter_id, messageClass="metricOutput")

    assert show_dead_letter(engine, number).letter.message_class == "metricOutput"


def test_an_edit_that_changes_nothing_is_refused(engine: Engine) -> None:
    message = metric_message(BAD)
    load_now(engine, message)
    letter = only_letter(engine)
    body = show_dead_letter(engine, letter.dead_letter_id).body

    with pytest.raises(EditRefused, match="nothing changed"):
        edit(engine, letter.dead_letter_id, body, messageClass="metricOutput")

    assert only_letter(engine) == letter


def test_an_edit_of_an_edited_or_dropped_one_is_refused_and_says_why(engine: Engine) -> None:
    load_now(engine, metric_message(BAD))
    first = only_letter(engine).dead_letter_id
    second = edit(engine, first, b"better")
    drop(engine, LetterFilter())

    with pytest.raises(EditRefused, match=f"by dead letter {second};"):
        edit(engine, first, b"other")
    with pytest.raises(EditRefused, match="is dropped"):
        edit(engine, second, b"other")


def test_nobody_can_send_a_message_that_is_taken_for_an_edition(engine: Engine) -> None:
    load_now(engine, metric_message(BAD, samMessageId="m#edited-17"))

    letter = only_letter(engine)

    assert letter.edited_from is None
    assert letter.message_id.startswith("sha256:")
