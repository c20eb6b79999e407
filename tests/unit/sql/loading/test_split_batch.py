"""What a transaction of a loader stores at most."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

from sam_pipeline.schema.messages.decode import Row
from sam_pipeline.sql.database.partitions import MAX_DAYS
from sam_pipeline.sql.loading.batch import (
    MAX_RECORDS,
    Batch,
    PendingRow,
    RecordFailure,
    ViewBatch,
    split_batch,
)
from sam_pipeline.sql.loading.catalogue import ClassView
from tests.support.builders import metric_message

RESULTS = ClassView("metricoutput", ("hostname", "timestamp"), "messageid")
NOTES = ClassView("note", ("timestamp",), None)
MESSAGE, OTHER = metric_message(), metric_message()


def days(number: int) -> list[str]:
    return [f"{date(2016, 12, 1) + timedelta(days=n)}T12:00:00Z" for n in range(number)]


def batch_of(*times: str, view: ClassView = RESULTS, failures: int = 0) -> Batch:
    """A row for each time, in two messages in turn."""
    rows = [
        PendingRow(message, message.message_id, "anonymous", Row(number, b"", {"timestamp": time}))
        for number, (time, message) in enumerate(
            zip(times, [MESSAGE, OTHER] * len(times), strict=False)
        )
    ]
    refused = [RecordFailure(MESSAGE, n, "bad-status", "", b"") for n in range(failures)]
    return Batch({view.name: ViewBatch(view, [MESSAGE, OTHER], rows, refused)}, size=2)


def rows_of(pieces: Sequence[Batch]) -> list[PendingRow]:
    return [row for piece in pieces for part in piece.by_view.values() for row in part.rows]


def test_a_batch_of_a_few_days_is_one_transaction() -> None:
    batch = batch_of(*days(MAX_DAYS) * 2)

    assert split_batch(batch) == [batch]
    assert batch.days == {day[:10] for day in days(MAX_DAYS)}


def test_no_transaction_has_more_than_fifty_days() -> None:
    batch = batch_of(*reversed(days(3640) * 2))
    before = rows_of([batch])

    pieces = split_batch(batch)

    assert MAX_DAYS == 50
    assert len(pieces) == 73
    assert all(len(piece.days) <= MAX_DAYS for piece in pieces)
    for piece in pieces:
        assert {row.row.values["timestamp"][:10] for row in rows_of([piece])} == piece.days
    assert sorted(rows_of(pieces), key=id) == sorted(before, key=id)


def test_no_transaction_has_more_than_ten_thousand_records() -> None:
    pieces = split_batch(batch_of(*days(1) * 25_000))

    assert MAX_RECORDS == 10_000
    assert [len(rows_of([piece])) for piece in pieces] == [10_000, 10_000, 5_000]


def test_the_failures_of_all_messages_are_in_the_last_transaction() -> None:
    *pieces, last = split_batch(batch_of(*days(120), failures=30))

    assert [part.failures for piece in pieces for part in piece.by_view.values()] == [[], []]
    assert len(last.by_view[RESULTS.name].failures) == 30
    assert (last.size, [piece.size for piece in pieces]) == (2, [0, 0])


def test_only_classes_that_are_stored_by_day_are_split_by_day() -> None:
    batch = batch_of(*days(400), view=NOTES)

    assert split_batch(batch) == [batch]
    assert not batch.days
