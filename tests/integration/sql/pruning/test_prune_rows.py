"""`prune` of tables without partitions: audit rows and settled dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, time

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.sql.database.engine import writing
from sam_pipeline.sql.errors import DatabaseRefused
from sam_pipeline.sql.loading.letters.dead_letter import LetterFilter
from sam_pipeline.sql.removal.pruning import sqlite as prune_sqlite
from tests.support.database.dialects import only_on
from tests.support.database.letters import list_dead_letters
from tests.support.database.old_results import TODAY, days_ago, prune_now
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import query

A_DAY = (time(0, 0, 0), time(12, 0, 0), time(23, 59, 59))


def moments(engine: Engine, ages: Iterable[int]) -> list[dict[str, object]]:
    """Three times on the day of each age, as the tables store them."""
    times = [datetime.combine(days_ago(age), at, UTC) for age in ages for at in A_DAY]
    if engine.dialect.name == "sqlite":
        return [{"at": int(moment.timestamp())} for moment in times]
    return [{"at": moment} for moment in times]


def load_batches(engine: Engine, ages: Iterable[int]) -> None:
    statement = text("""
        INSERT INTO loaded_batch (
            loaded_at, consumer, host, process_id, brokers, messages, rows, dead_letters, checks
        )
        VALUES (:at, 'site-a', 'h', 1, '{}', 1, 1, 0, 0)
    """)
    with writing(engine) as connection:
        connection.execute(statement, moments(engine, ages))


def settle_letters(engine: Engine, state: str, ages: Iterable[int]) -> None:
    """Dead letters received long ago and settled on these days."""
    statement = text("""
        INSERT INTO dead_letter (
            message_id, record_number, message_class, reason, error, headers, body,
            body_bytes, body_digest, received_at, changed_at, state
        )
        VALUES (
            :id, 0, 'metricOutput', 'bad-status', '', '{}', :body, 0, :body, :long_ago, :at, :state
        )
    """)
    [long_ago, *_] = moments(engine, [1000])
    values = {"long_ago": long_ago["at"], "state": state, "body": b""}
    with writing(engine) as connection:
        for number, moment in enumerate(moments(engine, ages)):
            connection.execute(statement, {**values, **moment, "id": f"{state}-{number}"})


def batches_by_age(engine: Engine) -> Counter[int]:
    rows = query(engine, "SELECT loaded_at FROM load_audit")
    return Counter((TODAY - datetime.fromisoformat(moment).date()).days for (moment,) in rows)


def letters_by_state(engine: Engine) -> Counter[str]:
    return Counter(letter.state for letter in list_dead_letters(engine, LetterFilter(state=None)))


def test_exactly_the_batches_of_days_before_the_bound_are_removed(engine: Engine) -> None:
    load_batches(engine, [0, 1, 2, 3, 4, 9, 500])

    pruned = prune_now(engine, audit=3)

    assert batches_by_age(engine) == dict.fromkeys(range(4), 3)
    assert pruned.audit.rows == 9
    assert query(engine, "SELECT * FROM report_horizon") == []


def test_small_batches_leave_nothing_behind(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune_sqlite, "BATCH_ROWS", 4)
    load_batches(engine, range(12))

    prune_now(engine, audit=2)

    assert batches_by_age(engine) == dict.fromkeys(range(3), 3)


def test_only_settled_letters_are_removed_by_the_day_of_settling(engine: Engine) -> None:
    settle_letters(engine, "open", [300])
    settle_letters(engine, "replayed", [8, 11])
    settle_letters(engine, "dropped", [9, 10, 12])

    pruned = prune_now(engine, letters=9)

    assert letters_by_state(engine) == {"open": 3, "replayed": 3, "dropped": 3}
    assert pruned.dead_letters.rows == 9


def test_a_dropped_letter_is_kept_for_the_week_in_which_it_can_be_restored(engine: Engine) -> None:
    settle_letters(engine, "replayed", [2, 3, 7])
    settle_letters(engine, "dropped", [2, 3, 7, 8])

    pruned = prune_now(engine, letters=2)

    assert letters_by_state(engine) == {"replayed": 3, "dropped": 9}
    assert pruned.dead_letters.rows == 9


def test_kinds_without_an_age_are_kept(engine: Engine) -> None:
    load_batches(engine, [500])
    settle_letters(engine, "dropped", [500])

    prune_now(engine, results=1, details=1)

    assert (batches_by_age(engine), letters_by_state(engine)) == ({500: 3}, {"dropped": 3})


def test_a_dry_run_only_counts(engine: Engine) -> None:
    load_batches(engine, [1, 2, 3])
    settle_letters(engine, "replayed", [1, 2])

    counted = prune_now(engine, audit=1, letters=1, dry_run=True)

    assert (counted.audit.rows, counted.dead_letters.rows) == (6, 3)
    assert (len(batches_by_age(engine)), letters_by_state(engine)) == (3, {"replayed": 6})


def test_a_second_prune_removes_nothing(engine: Engine) -> None:
    load_batches(engine, [1, 2])
    prune_now(engine, audit=1, letters=1)

    pruned = prune_now(engine, audit=1, letters=1)

    assert (pruned.audit.rows, pruned.dead_letters.rows) == (0, 0)


@only_on("postgresql")  # SQLite has no users
def test_a_loader_may_not_prune(engine: Engine) -> None:
    load_batches(engine, [5])

    with acting_as("loader", engine) as loader, pytest.raises(DatabaseRefused):
        prune_now(loader, audit=1)


@only_on("postgresql")  # SQLite has one writer at a time
def test_a_loader_does_not_wait_for_a_prune(engine: Engine) -> None:
    """A new batch arrives while the deletion of old ones is not committed."""
    load_batches(engine, [5, 6])
    with writing(engine) as connection:
        connection.execute(text("DELETE FROM loaded_batch"))
        with writing(engine) as loader:
            loader.execute(text("SET LOCAL lock_timeout = '2s'"))
            loader.execute(
                text(
                    "INSERT INTO loaded_batch (consumer, host, process_id, brokers, messages,"
                    " rows, dead_letters, checks) VALUES ('b', 'h', 1, '{}', 1, 1, 0, 0)"
                )
            )

    assert query(engine, "SELECT consumer FROM load_audit") == [("b",)]
