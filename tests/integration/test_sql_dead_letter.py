"""Dead letters: what is kept of them, and what a replay does."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from sqlalchemy import Engine

from schema.message import Message, new_message
from schema.record import write_wlcg
from sql.catalogue import Catalogue
from sql.dead_letter import (
    DeadLetter,
    Replayed,
    list_dead_letters,
    replay_dead_letter,
    show_dead_letter,
)
from sql.engine import writing
from sql.errors import NoSuchDeadLetter
from sql.load import load
from tests.builders import NOW, metric_message, metric_result
from tests.integration.roles import acting_as
from tests.integration.sql_rows import query, stored

LATER = NOW + timedelta(hours=1)


def load_now(engine: Engine, *messages: Message) -> None:
    with acting_as("loader", engine) as loader:
        load(loader, Catalogue(loader), messages, NOW)


def replay(engine: Engine, dead_letter_id: int, now: datetime) -> Replayed:
    with acting_as("loader", engine) as loader:
        return replay_dead_letter(loader, Catalogue(loader), dead_letter_id, now)


def only_letter(engine: Engine) -> DeadLetter:
    with acting_as("loader", engine) as loader:
        [letter] = list_dead_letters(loader, any_state=True)
    return letter


def in_the_future() -> Message:
    """Bad now, good two days later: its second record and its third."""
    late = [metric_result(timestamp=f"2026-11-22T1{hour}:00:00Z") for hour in (0, 1)]
    return metric_message(metric_result(), *late, destination="/topic/x")


def execute(engine: Engine, statement: str) -> None:
    with writing(engine) as connection:
        connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def drop_trigger(engine: Engine) -> str:
    """Break the class metricOutput; the statement that mends it."""
    if engine.dialect.name == "sqlite":
        wanted = "SELECT sql FROM sqlite_schema WHERE name = 'metricOutput_insert'"
        drop = "DROP TRIGGER metricOutput_insert"
    else:
        wanted = """
            SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = 'metricoutput_insert'
        """
        drop = "DROP TRIGGER metricOutput_insert ON metricOutput"
    [(mend,)] = query(engine, wanted)
    execute(engine, drop)
    return str(mend)


def test_a_dead_letter_holds_the_one_bad_record_and_all_headers(engine: Engine) -> None:
    bad = metric_result(metricStatus="FINE", detailsData="ü")
    message = metric_message(metric_result(), bad, destination="/topic/x")

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
    assert content.body.strip() == write_wlcg(bad).encode().strip()


def test_letters_are_listed_by_reason_and_class(engine: Engine) -> None:
    load_now(engine, new_message("unknown", "a: b\nEOT\n"), in_the_future())

    by_reason = list_dead_letters(engine, reason="in-the-future")
    by_class = list_dead_letters(engine, message_class="UNKNOWN")

    assert [letter.record_number for letter in by_reason] == [2, 3]
    assert [letter.reason for letter in by_class] == ["unknown-class"]


def test_one_that_does_not_exist_cannot_be_shown_or_replayed(engine: Engine) -> None:
    with pytest.raises(NoSuchDeadLetter, match="no dead letter 4711"):
        show_dead_letter(engine, 4711)
    with pytest.raises(NoSuchDeadLetter):
        replay(engine, 4711, NOW)


def test_a_replayed_record_becomes_a_row_with_the_id_of_its_message(engine: Engine) -> None:
    message = in_the_future()
    load_now(engine, message)
    letters = list_dead_letters(engine)
    then = NOW + timedelta(days=2)

    replayed = [replay(engine, one.dead_letter_id, then) for one in letters]

    assert [one.state for one in replayed] == ["replayed", "replayed"]
    assert list_dead_letters(engine) == []
    rows = stored(engine, "metricOutput")
    assert len(rows) == 3
    assert {row["messageId"] for row in rows} == {message.message_id}


def test_one_that_fails_again_stays_open_with_the_new_reason(engine: Engine) -> None:
    load_now(engine, new_message("downtimes", "hostName: a.example.org\nEOT\n"))
    letter = only_letter(engine)
    execute(engine, "UPDATE dead_letter SET reason = 'something else'")

    outcome = replay(engine, letter.dead_letter_id, LATER)

    assert (outcome.state, outcome.reason) == ("open", "unknown-class")
    again = only_letter(engine)
    assert (again.state, again.reason, again.changed_at) == ("open", "unknown-class", LATER)
    assert again.received_at == NOW


def test_a_replayed_one_is_not_loaded_again(engine: Engine) -> None:
    load_now(engine, metric_message(metric_result(timestamp="2026-11-22T10:00:00Z")))
    letter = only_letter(engine)
    replay(engine, letter.dead_letter_id, NOW + timedelta(days=2))
    execute(engine, "DELETE FROM metric_result")

    outcome = replay(engine, letter.dead_letter_id, LATER)

    assert outcome.state == "replayed"
    assert stored(engine, "metricOutput") == []


def test_a_whole_message_is_replayed_and_its_bad_records_become_letters(
    own_engine: Engine,
) -> None:
    mend = drop_trigger(own_engine)
    good, bad = metric_result(), metric_result(metricStatus="FINE")
    message = metric_message(good, bad)
    load_now(own_engine, message)
    letter = only_letter(own_engine)
    assert (letter.reason, letter.record_number) == ("class-broken", 0)

    execute(own_engine, mend)
    outcome = replay(own_engine, letter.dead_letter_id, LATER)

    assert (outcome.state, outcome.new_dead_letters) == ("replayed", 1)
    assert len(stored(own_engine, "metricOutput")) == 1
    [new] = list_dead_letters(own_engine)
    assert (new.record_number, new.reason, new.message_id) == (2, "bad-status", message.message_id)


def test_a_class_that_is_still_broken_leaves_the_letter_open(own_engine: Engine) -> None:
    drop_trigger(own_engine)
    load_now(own_engine, metric_message())
    letter = only_letter(own_engine)

    outcome = replay(own_engine, letter.dead_letter_id, LATER)

    assert (outcome.state, outcome.reason) == ("open", "class-broken")
    assert only_letter(own_engine).changed_at == LATER
