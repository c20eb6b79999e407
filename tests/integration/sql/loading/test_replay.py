"""Replays of dead letters: single, in bulk, concurrent and automatic."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from sqlalchemy import Engine, event

from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.loading.letters.dead_letter import (
    LetterFilter,
    dead_letter_ids,
    drop_dead_letters,
    lock_dead_letters,
    open_by_reason,
)
from sam_pipeline.sql.loading.replay import (
    PARKED_LETTERS,
    Parked,
    Replayed,
    replay_dead_letters,
    replay_parked,
)
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.database.letters import list_dead_letters, load_now, only_letter
from tests.support.database.own_class import add_trigger, drop_trigger, make_class, run
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import query, stored
from tests.support.database.with_schema import with_schema

LATER = NOW + timedelta(hours=1)
TWO_DAYS_LATER = NOW + timedelta(days=2)
COUNT = "SELECT count(*) FROM metricOutput"


@pytest.fixture
def postgresql(postgres_url: str) -> Iterator[Engine]:
    """A PostgreSQL database: SQLite has neither EXECUTE of a made statement nor row locks."""
    engine = with_schema(postgres_url)
    yield engine
    engine.dispose()


def replay(engine: Engine, ids: Sequence[int], now: datetime = LATER) -> list[Replayed]:
    with acting_as("loader", engine) as loader:
        return list(replay_dead_letters(loader, ids, lambda: now))


def replay_some_parked(engine: Engine) -> Parked:
    with acting_as("loader", engine) as loader:
        return replay_parked(loader, lambda: LATER)


def in_the_future() -> Message:
    """A message whose second and third record are bad now, and good two days later."""
    late = [metric_result(timestamp=f"2026-11-22T1{hour}:00:00Z") for hour in (0, 1)]
    return metric_message(metric_result(), *late, destination="/topic/x")


def many_results(count: int) -> list[Message]:
    start = 1_763_600_000
    return [metric_message(metric_result(timestamp=str(start + at))) for at in range(count)]


def note(words: str) -> Message:
    return new_message("note", f"words: {words}\nEOT\n")


def test_a_replay_loads_the_good_letters_with_the_id_of_their_message(engine: Engine) -> None:
    bad = metric_message(metric_result(metricStatus="FINE"), metric_result(metricName=""))
    message = in_the_future()
    load_now(engine, bad, message)

    replayed = replay(engine, dead_letter_ids(engine), TWO_DAYS_LATER)

    assert [(one.outcome, one.state, one.all_loaded, one.reason) for one in replayed] == [
        ("failed", "open", False, "bad-status"),
        ("failed", "open", False, "missing-key"),
        *[("loaded", "replayed", True, "in-the-future")] * 2,
    ]
    assert open_by_reason(engine) == {"bad-status": 1, "missing-key": 1}
    assert [row["messageId"] for row in stored(engine, "metricOutput")] == [message.message_id] * 3


def test_a_replayed_or_dropped_letter_is_not_loaded_again(engine: Engine) -> None:
    load_now(engine, in_the_future())
    first, second = dead_letter_ids(engine)
    replay(engine, [first], TWO_DAYS_LATER)
    drop_dead_letters(engine, LetterFilter(), LATER)
    run(engine, "DELETE FROM metric_result")

    outcomes = replay(engine, [first, second], TWO_DAYS_LATER)

    assert [(outcome.outcome, outcome.state) for outcome in outcomes] == [
        ("skipped", "replayed"),
        ("skipped", "dropped"),
    ]
    assert stored(engine, "metricOutput") == []


def test_a_whole_message_is_replayed_and_its_bad_records_become_letters(
    own_engine: Engine,
) -> None:
    repair = drop_trigger(own_engine, "metricOutput")
    message = metric_message(metric_result(), metric_result(metricStatus="FINE"))
    load_now(own_engine, message)
    [letter] = dead_letter_ids(own_engine)
    [still_broken] = replay(own_engine, [letter])
    assert (still_broken.state, still_broken.reason) == ("open", "class-broken")
    assert only_letter(own_engine).changed_at == LATER

    run(own_engine, repair)
    [outcome] = replay(own_engine, [letter])

    [new] = list_dead_letters(own_engine)
    assert (outcome.outcome, outcome.state) == ("replaced", "replayed")
    assert (outcome.dead_letters, outcome.all_loaded) == ((new.dead_letter_id,), False)
    assert len(stored(own_engine, "metricOutput")) == 1
    assert (new.record_number, new.reason, new.message_id) == (2, "bad-status", message.message_id)


def test_concurrent_replays_load_every_letter_once(own_engine: Engine) -> None:
    repair = drop_trigger(own_engine, "metricOutput")
    load_now(own_engine, *many_results(1200))
    run(own_engine, repair)
    ids = dead_letter_ids(own_engine)

    with ThreadPoolExecutor(3) as pool:
        runs = list(pool.map(lambda _: replay(own_engine, ids), range(3), timeout=60))

    outcomes = [outcome for run in runs for outcome in run]
    assert {outcome.state for outcome in outcomes} == {"replayed"}
    loaded = [outcome.dead_letter_id for outcome in outcomes if outcome.outcome == "loaded"]
    assert sorted(loaded) == ids
    assert query(own_engine, COUNT) == [(1200,)]


def test_a_letter_that_breaks_its_class_does_not_keep_others_from_loading(
    postgresql: Engine,
) -> None:
    """The trigger inserts into the table that a record names; one record names a missing table."""
    make_class(postgresql, "note", words="text")
    run(postgresql, "CREATE TABLE good_note (words text)", 'DROP TRIGGER "note insert" ON note')
    load_now(postgresql, *(note("good" if at != 70 else "no") for at in range(200)))
    assert open_by_reason(postgresql) == {"class-broken": 200}
    into = "EXECUTE format('INSERT INTO %I VALUES ($1)', NEW.words || '_note') USING NEW.words;"
    add_trigger(postgresql, "note", into)

    outcomes = replay(postgresql, dead_letter_ids(postgresql))

    assert [outcome.outcome for outcome in outcomes].count("loaded") == 199
    assert "no_note" in outcomes[70].error
    assert query(postgresql, "SELECT count(*) FROM good_note") == [(199,)]


def test_a_letter_of_many_days_is_replayed_in_several_transactions(own_engine: Engine) -> None:
    """And so are many letters of a few days each."""
    results = [
        metric_result(timestamp=f"{NOW - timedelta(days=n):%Y-%m-%dT12:00:00Z}") for n in range(120)
    ]
    bad = metric_result(metricStatus="FINE")
    repair = drop_trigger(own_engine, "metricOutput")
    load_now(own_engine, metric_message(*results[:70], bad), *map(metric_message, results[70:]))
    numbers = dead_letter_ids(own_engine)
    assert len(numbers) == 51
    run(own_engine, repair)
    stored_before_commits = [0]
    counting = threading.Lock()

    def before_commit(_: object) -> None:
        if not counting.locked():  # counting commits, too
            with counting:  # the days with results that other sessions see
                stored_before_commits.append(query(own_engine, COUNT)[0][0])

    with acting_as("loader", own_engine) as loader:
        event.listen(loader, "commit", before_commit)
        replayed = list(replay_dead_letters(loader, numbers, lambda: LATER))
        event.remove(loader, "commit", before_commit)

    assert {letter.outcome for letter in replayed} == {"loaded", "replaced"}
    assert sum(len(letter.dead_letters) for letter in replayed) == 1
    assert query(own_engine, COUNT) == [(120,)]
    days = [*stored_before_commits, 120]
    assert max(after - before for before, after in pairwise(days)) <= 50


# By the consumer itself ---------------------------------------------------------------------------


def test_parked_letters_are_loaded_once_the_view_works_again(own_engine: Engine) -> None:
    """Another class that stays broken keeps only its own letters."""
    repair = drop_trigger(own_engine, "metricOutput")
    drop_trigger(own_engine, "downtime")
    load_now(
        own_engine, *many_results(700), new_message("downtime", "hostName: a.example.org\nEOT\n")
    )
    assert replay_some_parked(own_engine) == Parked(0, any=True)
    run(own_engine, repair)

    turns = [replay_some_parked(own_engine)]
    while turns[-1].loaded:
        turns.append(replay_some_parked(own_engine))

    assert sum(turn.loaded for turn in turns) == 700
    assert max(turn.loaded for turn in turns) <= PARKED_LETTERS + 2
    assert {turn.message_class for turn in turns[:-1]} == {"metricOutput"}
    assert turns[-1] == Parked(0, any=True)
    assert query(own_engine, COUNT) == [(700,)]
    [letter] = list_dead_letters(own_engine)
    assert letter.message_class == "downtime"
    assert query(own_engine, "SELECT * FROM operation_log") == []  # no operator did it


def test_a_replay_does_not_wait_for_letters_that_another_one_has_locked(postgresql: Engine) -> None:
    repair = drop_trigger(postgresql, "metricOutput")
    load_now(postgresql, *many_results(3))
    run(postgresql, repair)

    with writing(postgresql) as connection:
        lock_dead_letters(connection, dead_letter_ids(postgresql))
        meanwhile = replay_some_parked(postgresql)

    assert meanwhile == Parked(0, any=True)
    assert replay_some_parked(postgresql).loaded == 3
