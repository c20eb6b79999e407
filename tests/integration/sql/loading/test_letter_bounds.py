"""Dead letters are neither lost nor without bound: their key, whole messages, and summaries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.messages.decode import MOST_REFUSED
from sam_pipeline.schema.messages.message import JSON, Message, new_message
from sam_pipeline.schema.messages.refused import TOO_LARGE, mark_refused
from sam_pipeline.schema.records.json_form import MAX_DEPTH
from sam_pipeline.sql.errors import EditRefused
from sam_pipeline.sql.loading.audit import Audit
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.letters.dead_letter import (
    DeadLetter,
    LetterFilter,
    drop_dead_letters,
    open_by_reason,
    show_dead_letter,
)
from sam_pipeline.sql.loading.letters.edit import edit_dead_letter
from sam_pipeline.sql.loading.letters.quota import LetterQuota
from sam_pipeline.sql.loading.load import Loaded, load
from sam_pipeline.sql.loading.replay import Replayed, replay_dead_letters
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.database.letters import list_dead_letters
from tests.support.database.own_class import add_trigger, make_class, run
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import query, stored

LATER = NOW + timedelta(hours=2)
MANY = MOST_REFUSED + 5


def load_now(engine: Engine, *messages: Message, quota: LetterQuota | None = None) -> Loaded:
    quota = quota or LetterQuota(1000, 10**8)
    with acting_as("loader", engine) as loader:
        return load(
            loader,
            Catalogue(loader),
            messages,
            NOW,
            audit=Audit("site-a", "host", 1, ["stomp://broker:61613"] * len(messages)),
            quota=quota,
        )


def replay(engine: Engine, *letters: DeadLetter) -> list[Replayed]:
    ids = [letter.dead_letter_id for letter in letters]
    with acting_as("loader", engine) as loader:
        return list(replay_dead_letters(loader, ids, lambda: LATER))


def letters(engine: Engine) -> list[DeadLetter]:
    return list_dead_letters(engine, LetterFilter(state=None))


def bad(status: str, **headers: str) -> Message:
    return metric_message(metric_result(metricStatus=status), **headers)


def audited(engine: Engine) -> Sequence[tuple[object, ...]]:
    return query(
        engine,
        "SELECT messages, rows, dead_letters, repeated_dead_letters, summarised_dead_letters"
        " FROM load_audit ORDER BY batch_id",
    )


# The key -----------------------------------------------------------------------------------------


def test_other_bytes_under_one_id_are_another_letter_and_the_same_bytes_are_not(
    engine: Engine,
) -> None:
    one, two = (bad(status, samMessageId="same") for status in ("BROKEN-ONE", "BROKEN-TWO"))

    loaded = [load_now(engine, one), load_now(engine, two), load_now(engine, one, two, two)]

    assert [len(one.dead_letters) for one in loaded] == [1, 1, 0]
    assert [one.repeated_dead_letters for one in loaded] == [0, 0, 3]
    bodies = [show_dead_letter(engine, letter.dead_letter_id).body for letter in letters(engine)]
    assert bodies == [one.body, two.body]
    assert audited(engine) == [(1, 0, 1, 0, 0), (1, 0, 1, 0, 0), (3, 0, 0, 3, 0)]


def test_a_settled_letter_does_not_hide_other_bytes_under_its_id(engine: Engine) -> None:
    load_now(engine, bad("BROKEN-ONE", samMessageId="same"))
    drop_dead_letters(engine, LetterFilter(), NOW)

    load_now(engine, bad("BROKEN-TWO", samMessageId="same"))

    assert [letter.state for letter in letters(engine)] == ["dropped", "open"]


def test_large_bodies_that_begin_alike_are_letters_of_their_own(engine: Engine) -> None:
    def cut(digest: str) -> Message:
        message = new_message("metricOutput", "the same beginning", message_id="same")
        return mark_refused(message, TOO_LARGE, f"SHA-256 of all: {digest}")

    load_now(engine, cut("one"), cut("two"), cut("one"))

    assert [letter.error[-3:] for letter in letters(engine)] == ["one", "two"]


def test_results_that_differ_under_one_id_are_both_rows(engine: Engine) -> None:
    one, two = (
        metric_message(metric_result(hostName=f"{name}.example.org"), samMessageId="same")
        for name in ("a", "b")
    )

    load_now(engine, one)
    load_now(engine, two)

    assert len(stored(engine, "metricOutput")) == 2


# Whole messages ----------------------------------------------------------------------------------


def mixed(refused: int, at: str = "2026-11-20T12:00:00Z") -> Message:
    """A good record, and refused ones for two reasons."""
    records = [metric_result(metricStatus="FINE"), metric_result(metricName="", timestamp=at)]
    return metric_message(metric_result(), *(records[number % 2] for number in range(refused)))


@pytest.mark.parametrize("refused", [MOST_REFUSED, MOST_REFUSED + 1])
def test_more_than_twenty_refused_records_are_one_letter_of_the_message(
    engine: Engine, refused: int
) -> None:
    message = mixed(refused)

    loaded = load_now(engine, message)

    assert loaded.rows == 1
    if refused == MOST_REFUSED:
        assert loaded.dead_letters == {"bad-status": 10, "missing-key": 10}
        return
    [letter] = letters(engine)
    assert (letter.record_number, letter.reason) == (0, "mixed")
    assert show_dead_letter(engine, letter.dead_letter_id).body == message.body
    first, *records = letter.error.split("\n")
    assert first.startswith(f"{refused} ") and "bad-status: 11" in first
    assert len(records) == MOST_REFUSED
    assert records[0].startswith("record 2: bad-status: ")


def test_records_that_the_database_refuses_count_as_well(own_engine: Engine) -> None:
    make_class(own_engine, "note", words="text")
    refuse_words(own_engine, "x")
    body = "words: good\nEOT\n" + "words: x\nEOT\n" * 11 + "no key\nEOT\n" * 10
    message = new_message("note", body)

    loaded = load(own_engine, Catalogue(own_engine), [message], NOW)

    assert (loaded.rows, loaded.dead_letters) == (1, {"mixed": 1})
    [letter] = letters(own_engine)
    assert "refused-by-database: 11" in letter.error and "no-key: 10" in letter.error


def test_every_good_record_is_a_row_however_many_the_database_refuses(own_engine: Engine) -> None:
    make_class(own_engine, "note", words="text")
    refuse_words(own_engine, "x")
    records = ["x" if number % 3 else f"good {number}" for number in range(600)]
    message = new_message("note", "".join(f"words: {words}\nEOT\n" for words in records))

    loaded = load(own_engine, Catalogue(own_engine), [message], NOW)

    assert (loaded.rows, loaded.dead_letters) == (200, {"refused-by-database": 1})
    assert query(own_engine, "SELECT count(DISTINCT words) FROM note") == [(200,)]
    assert letters(own_engine)[0].error.startswith("400 ")


def refuse_words(engine: Engine, words: str) -> None:
    """Make the trigger of the class `note` refuse a value."""
    if engine.dialect.name == "sqlite":
        refuse = f"SELECT RAISE(ABORT, 'words: no') WHERE NEW.words = '{words}';"
        run(engine, 'DROP TRIGGER "note insert"')
    else:
        refuse = f"IF NEW.words = '{words}' THEN RAISE 'words: no'; END IF;"
        run(engine, 'DROP TRIGGER "note insert" ON note')
    add_trigger(engine, "note", f'{refuse} INSERT INTO "kept note" VALUES (NEW.words);')


def test_a_letter_of_a_whole_message_stays_the_same_while_its_records_are_bad(
    engine: Engine,
) -> None:
    message = mixed(MANY)
    load_now(engine, message)
    before = letters(engine)
    body = show_dead_letter(engine, before[0].dead_letter_id).body

    [outcome] = replay(engine, *before)

    assert (outcome.outcome, outcome.state, outcome.reason) == ("failed", "open", "mixed")
    [after] = letters(engine)
    assert (after.dead_letter_id, after.error) == (before[0].dead_letter_id, before[0].error)
    assert show_dead_letter(engine, after.dead_letter_id).body == body
    assert load_now(engine, message).repeated_dead_letters == 1
    assert len(stored(engine, "metricOutput")) == 1


def test_a_replay_of_a_whole_message_loads_what_has_become_good(engine: Engine) -> None:
    soon = [metric_result(timestamp=f"2026-11-21T13:{minute:02}:00Z") for minute in range(MANY)]
    message = metric_message(metric_result(metricStatus="FINE"), *soon)
    load_now(engine, message)

    [outcome] = replay(engine, *letters(engine))

    [bad] = list_dead_letters(engine)
    assert (outcome.outcome, outcome.state) == ("replaced", "replayed")
    assert (outcome.dead_letters, bad.record_number) == ((bad.dead_letter_id,), 1)
    assert len(stored(engine, "metricOutput")) == MANY


def test_an_edited_whole_message_that_is_still_bad_stays_one_letter(engine: Engine) -> None:
    load_now(engine, mixed(MANY))
    [old] = letters(engine)
    edited = edit_dead_letter(engine, old.dead_letter_id, LATER, mixed(MANY + 1).body)

    [outcome] = replay(engine, *list_dead_letters(engine))

    assert (outcome.dead_letter_id, outcome.state) == (edited, "open")
    assert [letter.state for letter in letters(engine)] == ["dropped", "open"]


def test_json_nested_too_deeply_is_one_letter_of_the_message(engine: Engine) -> None:
    deep = "[" * 500 + "]" * 500
    body = f'["{"x" * 100_000}", {", ".join([deep] * 500)}]'

    load_now(engine, new_message("metricOutput", body, content_type=JSON))

    [letter] = letters(engine)
    assert letter.reason == "not-json" and str(MAX_DEPTH) in letter.error
    assert show_dead_letter(engine, letter.dead_letter_id).body == body.encode()


# Summaries ---------------------------------------------------------------------------------------


def flood(count: int, start: int = 0, user: str = "alice") -> list[Message]:
    return [bad(f"BROKEN-{start + at}", JMSXUserID=user) for at in range(count)]


def test_letters_beyond_the_limit_are_counted_in_one_summary(engine: Engine) -> None:
    quota = LetterQuota(10, 10**6)

    first = load_now(engine, metric_message(), *flood(30), quota=quota)
    second = load_now(engine, *flood(30, 30), *flood(5, user="bob"), quota=quota)

    assert (first.rows, first.dead_letters) == (1, {"bad-status": 10, "flood": 1})
    assert second.dead_letters == {"bad-status": 5}
    assert (first.summarised_dead_letters, second.summarised_dead_letters) == (20, 30)
    [summary] = list_dead_letters(engine, LetterFilter(reason="flood"))
    line, *samples = summary.error.split("\n")
    assert line.startswith("50 ") and "bad-status 50" in line and "alice" in line
    assert len(samples) == 20 and "BROKEN" in samples[0]
    assert [row[2:] for row in audited(engine)] == [(11, 0, 20), (5, 0, 30)]


def test_a_repeated_letter_takes_no_room_from_another_one(engine: Engine) -> None:
    quota = LetterQuota(10, 10**6)
    repeated = flood(1)
    for _ in range(20):
        load_now(engine, *repeated, quota=quota)

    loaded = load_now(engine, *flood(9, 1), quota=quota)

    assert loaded.dead_letters == {"bad-status": 9}


def test_a_summary_can_be_dropped_but_neither_edited_nor_replayed(engine: Engine) -> None:
    quota = LetterQuota(0, 10**6)
    load_now(engine, *flood(2), quota=quota)
    [summary] = letters(engine)

    [outcome] = replay(engine, summary)
    with pytest.raises(EditRefused, match="dropped"):
        edit_dead_letter(engine, summary.dead_letter_id, NOW, b"x")
    drop_dead_letters(engine, LetterFilter(), NOW)

    assert (outcome.outcome, outcome.state, outcome.reason) == ("failed", "open", "flood")
    assert "dropped" in outcome.error
    assert letters(engine)[0].state == "dropped"


def test_a_dropped_summary_is_open_again_when_more_is_counted(engine: Engine) -> None:
    quota = LetterQuota(0, 10**6)
    load_now(engine, *flood(2), quota=quota)
    drop_dead_letters(engine, LetterFilter(), NOW)

    load_now(engine, *flood(3), quota=quota)

    [summary] = list_dead_letters(engine)
    assert summary.error.startswith("5 ")


def test_letters_of_a_broken_class_are_stored_beyond_the_limit(own_engine: Engine) -> None:
    on = "" if own_engine.dialect.name == "sqlite" else " ON metricOutput"
    run(own_engine, f"DROP TRIGGER metricOutput_insert{on}")

    load_now(own_engine, *(metric_message() for _ in range(5)), quota=LetterQuota(1, 1))

    assert open_by_reason(own_engine) == {"class-broken": 5}


def test_a_message_cannot_be_sent_that_passes_for_a_summary(engine: Engine) -> None:
    quota = LetterQuota(0, 10**6)
    load_now(engine, *flood(1), quota=quota)
    [summary] = letters(engine)
    forged = new_message("nowhere", "", message_id=summary.message_id)

    load_now(engine, forged)

    assert [letter.reason for letter in letters(engine)] == ["flood", "unknown-class"]
