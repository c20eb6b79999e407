"""Transactions stay bounded, however many records and days arrive at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.schema.records.text import Record
from sam_pipeline.sql.errors import DatabaseAway, DatabaseExhausted, DatabaseFull
from sam_pipeline.sql.loading import load as load_module
from sam_pipeline.sql.loading.audit import Audit
from sam_pipeline.sql.loading.batch import Batch
from sam_pipeline.sql.loading.insert import Inserted
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.database.letters import list_dead_letters, load_now, reasons
from tests.support.database.own_class import add_trigger, make_class, run
from tests.support.database.sql_rows import name_too_long_for, query
from tests.support.database.with_schema import with_schema

LIMITS = Limits(max_records=100_000)
AUDIT = Audit("site-a", "consumer1.example.org", 4711, ["a", "b", "c"])

AUDITED = "SELECT messages, rows, dead_letters FROM load_audit ORDER BY batch_id"
COUNT = "SELECT count(*), count(DISTINCT timestamp) FROM metricOutput"


def on_days(number: int, **changes: str) -> list[Record]:
    """A result of each of the last days."""
    days = [NOW - timedelta(days=n) for n in range(number)]
    return [metric_result(timestamp=f"{day:%Y-%m-%dT12:00:00Z}", **changes) for day in days]


def in_one_day(number: int, **changes: str) -> list[Record]:
    return [
        metric_result(timestamp=f"{NOW - timedelta(seconds=n):%Y-%m-%dT%H:%M:%SZ}", **changes)
        for n in range(number)
    ]


def test_a_message_with_very_many_records_takes_several_transactions(engine: Engine) -> None:
    """A record that the database refuses in the first one is a dead letter as well."""
    refused = metric_result(metricName=name_too_long_for("metric", engine))
    message = metric_message(refused, *in_one_day(12_000), metric_result(metricStatus="FINE"))
    for expected in (1, 0):  # a repeat changes nothing
        loaded = load_now(engine, message, audit=AUDIT, limits=LIMITS)

        counts = loaded.rows, loaded.duplicates, loaded.refused, loaded.dead_letters.total()
        assert counts == (12_000 * expected, 12_000 * (1 - expected), 2, 2 * expected)
        assert query(engine, COUNT) == [(12_000, 12_000)]
        assert reasons(engine) == [(1, "refused-by-database"), (12_002, "bad-status")]
    assert query(engine, AUDITED) == [
        (0, 9_999, 0), (1, 2_001, 2), (0, 0, 0), (1, 0, 0),
    ]  # fmt: skip
    brokers = query(engine, "SELECT brokers FROM load_audit ORDER BY batch_id")
    assert brokers == [("{}",), ('{"a": 1}',)] * 2


def test_messages_are_decoded_when_those_before_are_committed(engine: Engine) -> None:
    """Memory is bounded by the records of a transaction, not by those of a batch."""
    messages = [metric_message(*in_one_day(4_000, hostName=f"{name}.org")) for name in "abc"]
    events: list[str] = []

    @contextmanager
    def decoding() -> Iterator[None]:
        events.append("decode")
        yield

    loaded = load_now(
        engine, *messages, audit=AUDIT, decoding=decoding, on_commit=lambda: events.append("commit")
    )

    assert loaded.rows == 12_000
    assert [row[:2] for row in query(engine, AUDITED)] == [(2, 8_000), (1, 4_000)]
    events = [event for at, event in enumerate(events) if events[:at][-1:] != [event]]
    assert events == ["decode", "commit", "decode", "commit", "decode"]


def test_a_failure_between_two_transactions_loses_nothing_and_repeats_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = metric_message(
        metric_result(metricStatus="FINE"), *on_days(120), metric_result(metricName=None)
    )
    insert = load_module.insert_batch
    calls: list[Batch] = []

    def fail_the_second(connection: Any, batch: Batch, *more: Any) -> Inserted:
        calls.append(batch)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return insert(connection, batch, *more)

    monkeypatch.setattr(load_module, "insert_batch", fail_the_second)
    with pytest.raises(KeyboardInterrupt):
        load_now(engine, message)
    assert query(engine, COUNT) == [(50, 50)]
    assert list_dead_letters(engine) == []

    loaded = load_now(engine, message)

    assert (loaded.rows, loaded.duplicates, loaded.dead_letters.total()) == (70, 50, 2)
    assert query(engine, COUNT) == [(120, 120)]
    assert [letter.record_number for letter in list_dead_letters(engine)] == [1, 122]


# Errors of the server ----------------------------------------------------------------------------


@pytest.fixture
def with_notes(postgres_url: str) -> Iterator[Engine]:
    """A class `note`, and a sequence that counts attempts, also those that are rolled back."""
    engine = with_schema(postgres_url)
    make_class(engine, "note")
    run(engine, "CREATE SEQUENCE attempts", "GRANT UPDATE ON attempts TO sam_loader")
    yield engine
    engine.dispose()


def notes(number: int) -> list[Message]:
    return [new_message("note", f"words: {n}\nEOT\n") for n in range(number)]


def raise_if(engine: Engine, condition: str, sqlstate: str) -> None:
    """Make the trigger fail; `stored` is the number of rows of the transaction so far."""
    add_trigger(
        engine,
        "note",
        f"""
        DECLARE
            attempt CONSTANT integer := nextval('attempts');
            stored CONSTANT integer
                := coalesce(nullif(current_setting('test.stored', true), ''), '0');
        BEGIN
            IF {condition} THEN
                RAISE EXCEPTION 'trouble in the server' USING ERRCODE = '{sqlstate}';
            END IF;
            PERFORM set_config('test.stored', CAST(stored + 1 AS text), true);
        END;
        INSERT INTO "kept note" VALUES (NEW.words);
        """,
    )


def words(engine: Engine) -> list[Any]:
    return query(engine, "SELECT words FROM note ORDER BY CAST(words AS integer)")


def test_messages_for_which_the_server_lacks_memory_are_loaded_in_halves(
    with_notes: Engine,
) -> None:
    raise_if(with_notes, "stored >= 3", "53200")

    loaded = load_now(with_notes, *notes(10), audit=AUDIT)

    assert loaded.rows == 10
    assert words(with_notes) == [(str(n),) for n in range(10)]
    assert [row[0] for row in query(with_notes, AUDITED)] == [2, 3, 2, 3]
    assert list_dead_letters(with_notes) == []


@pytest.mark.parametrize(
    ("sqlstate", "error", "attempts"),
    [("53200", DatabaseExhausted, 2), ("53100", DatabaseFull, 1), ("53300", DatabaseAway, 1)],
    ids=["memory: both, then the first", "disk", "connections"],
)
def test_messages_wait_until_the_server_has_room_again(
    with_notes: Engine, sqlstate: str, error: type[DatabaseAway], attempts: int
) -> None:
    raise_if(with_notes, "true", sqlstate)

    with pytest.raises(error):
        load_now(with_notes, *notes(2))

    assert query(with_notes, "SELECT last_value FROM attempts") == [(attempts,)]
    assert words(with_notes) == []


@pytest.mark.parametrize(
    ("count", "condition", "lost"),
    [(1, "attempt = 1", []), (5, "attempt = 5", []), (5, "NEW.words = '3'", [3])],
    ids=["the only row", "the last row", "always"],
)
def test_only_a_record_that_always_causes_an_internal_error_is_a_dead_letter(
    with_notes: Engine, count: int, condition: str, lost: list[int]
) -> None:
    raise_if(with_notes, condition, "XX000")

    loaded = load_now(with_notes, *notes(count))

    assert (loaded.rows, loaded.refused) == (count - len(lost), len(lost))
    assert words(with_notes) == [(str(n),) for n in range(count) if n not in lost]
