"""Dead letters: their content, their selection, and the effect of an edit and of a drop."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.identity.identity import ANONYMOUS, IDENTITY, operator_identity
from sam_pipeline.schema.login import login_name
from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.sql.errors import EditRefused, NoSuchDeadLetter
from sam_pipeline.sql.loading.audit import Audit
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.letters.dead_letter import (
    DeadLetter,
    LetterFilter,
    dead_letter_ids,
    drop_dead_letters,
    open_by_reason,
    show_dead_letter,
)
from sam_pipeline.sql.loading.letters.edit import edit_dead_letter
from sam_pipeline.sql.loading.load import load
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.database.letters import list_dead_letters
from tests.support.database.roles import acting_as

LATER = NOW + timedelta(hours=1)
BROKER = "stomp://msg.example.org:61613"
BAD = metric_result(metricStatus="FINE", detailsData="ü")


def load_now(engine: Engine, *messages: Message) -> None:
    with acting_as("loader", engine) as loader:
        audit = Audit("site-a", "host", 1, [BROKER] * len(messages))
        load(loader, Catalogue(loader), messages, NOW, audit=audit)


def only_letter(engine: Engine) -> DeadLetter:
    with acting_as("loader", engine) as loader:
        [letter] = list_dead_letters(loader, LetterFilter(state=None))
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
        broker=BROKER,
        login=None,
        publisher=ANONYMOUS,
        claimed_host=None,
        claimed_program=None,
        claimed_user=None,
        body_bytes=len(write_wlcg(BAD)) + 1,
        received_at=NOW,
        state="open",
        changed_at=NOW,
    )
    assert "FINE" in letter.error
    content = show_dead_letter(engine, letter.dead_letter_id)
    assert content.headers == message.headers
    assert content.body.strip() == write_wlcg(BAD).encode().strip()


@pytest.fixture
def three_letters(engine: Engine) -> list[int]:
    """The ids of three letters: an unknown class, and two bad records received two days later."""
    load_now(engine, new_message("unknown", "a: b\nEOT\n"))
    with acting_as("loader", engine) as loader:
        worse = metric_result(metricStatus="WORSE")
        load(loader, Catalogue(loader), [metric_message(BAD, worse)], NOW + timedelta(days=2))
    return numbers(list_dead_letters(engine))


@pytest.mark.parametrize(
    ("wanted", "expected"),
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
    engine: Engine, three_letters: list[int], wanted: LetterFilter, expected: list[int]
) -> None:
    ids = [three_letters[number] for number in expected]
    assert numbers(list_dead_letters(engine, wanted)) == ids
    assert dead_letter_ids(engine, wanted) == ids


def test_a_limited_list_has_the_newest_letters_in_order(
    engine: Engine, three_letters: list[int]
) -> None:
    assert numbers(list_dead_letters(engine, limit=2)) == three_letters[1:]


def test_open_letters_are_counted_by_reason(engine: Engine, three_letters: list[int]) -> None:
    with acting_as("loader", engine) as loader:
        assert open_by_reason(loader) == {"bad-status": 2, "unknown-class": 1}

    drop(engine, LetterFilter(reason="bad-status"))

    assert open_by_reason(engine) == {"unknown-class": 1}


def test_dropped_letters_stay_as_rows_and_are_dropped_once(
    engine: Engine, three_letters: list[int]
) -> None:
    assert drop(engine, LetterFilter(ids=three_letters[:2], state=None)) == 2
    assert drop(engine, LetterFilter(ids=three_letters[:2], state=None)) == 0

    assert numbers(list_dead_letters(engine)) == three_letters[2:]
    states = [letter.state for letter in list_dead_letters(engine, LetterFilter(state=None))]
    assert states == ["dropped", "dropped", "open"]


def test_a_redelivery_does_not_reopen_a_dropped_letter(engine: Engine) -> None:
    message = metric_message(BAD)
    load_now(engine, message)
    drop(engine, LetterFilter())

    load_now(engine, message)

    assert only_letter(engine).state == "dropped"


def test_an_unknown_id_is_an_error(engine: Engine) -> None:
    with pytest.raises(NoSuchDeadLetter, match="no dead letter 4711"):
        show_dead_letter(engine, 4711)
    with pytest.raises(NoSuchDeadLetter):
        edit(engine, 4711, b"x")
    with pytest.raises(NoSuchDeadLetter):
        dead_letter_ids(engine, LetterFilter(ids=[4711], state=None))


def test_an_edit_makes_a_new_letter_and_the_old_one_keeps_its_bytes_and_headers(
    engine: Engine,
) -> None:
    message = metric_message(metric_result(), BAD, destination="/topic/x", JMSXUserID="probe")
    load_now(engine, message)
    old = only_letter(engine)
    before = show_dead_letter(engine, old.dead_letter_id)

    number = edit(engine, old.dead_letter_id, b"fixed\xff", destination=None, by="me")

    new, after = show_dead_letter(engine, number), show_dead_letter(engine, old.dead_letter_id)
    assert (after.headers, after.body) == (before.headers, before.body)
    assert (after.letter.state, after.letter.edited_from) == ("dropped", None)
    assert after.edited_as == number
    assert new.body == b"fixed\xff"
    operator = operator_identity(login_name())
    expected = {**message.headers, "by": "me", IDENTITY: operator}
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
        broker=BROKER,
        login="probe",
        publisher=operator,
        claimed_host=None,
        claimed_program=None,
        claimed_user=None,
        body_bytes=len(b"fixed\xff"),
        received_at=NOW,
        state="open",
        changed_at=LATER,
        edited_from=old.dead_letter_id,
    )


def test_an_edited_letter_can_be_edited_again_and_every_edition_is_kept(engine: Engine) -> None:
    load_now(engine, metric_message(BAD))
    first = only_letter(engine).dead_letter_id
    second = edit(engine, first, b"better")

    third = edit(engine, second, b"good")

    editions = [show_dead_letter(engine, number) for number in (first, second, third)]
    assert [edition.body for edition in editions[1:]] == [b"better", b"good"]
    assert [edition.letter.edited_from for edition in editions] == [None, first, second]
    assert numbers(list_dead_letters(engine)) == [third]


def test_an_edited_class_header_is_the_class_of_the_edition(engine: Engine) -> None:
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


def test_an_edit_of_an_edited_or_dropped_letter_is_refused_with_the_reason(engine: Engine) -> None:
    load_now(engine, metric_message(BAD))
    first = only_letter(engine).dead_letter_id
    second = edit(engine, first, b"better")
    drop(engine, LetterFilter())

    with pytest.raises(EditRefused, match=f"dead letter {second}"):
        edit(engine, first, b"other")
    with pytest.raises(EditRefused, match="is dropped"):
        edit(engine, second, b"other")


def test_a_message_cannot_be_sent_that_passes_for_an_edition(engine: Engine) -> None:
    load_now(engine, metric_message(BAD, samMessageId="m#edited-17"))

    letter = only_letter(engine)

    assert letter.edited_from is None
    assert letter.message_id.startswith("sha256:")
