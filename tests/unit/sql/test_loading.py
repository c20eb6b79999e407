"""The bounds of loading, which views are classes, and the chain of operations."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import date, timedelta

import pytest

from sam_pipeline.schema.messages.decode import Row
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.records.classes import METRIC_OUTPUT, folded
from sam_pipeline.sql.database.operations import START, RecordedOperation, broken_links, digest_of
from sam_pipeline.sql.database.partitions import MAX_DAYS
from sam_pipeline.sql.loading import insert
from sam_pipeline.sql.loading.batch import (
    Batch,
    PendingRow,
    ViewBatch,
    split_batch,
)
from sam_pipeline.sql.loading.catalogue import (
    TEXT_FILLS,
    TIMES,
    ClassView,
    View,
    ViewColumn,
    problem_of,
)
from sam_pipeline.sql.loading.insert import copy_text
from sam_pipeline.sql.loading.letters.dead_letter import COMPRESSED_FROM, original_body, stored_body
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
from tests.support.builders import NOW, metric_message

# What a transaction stores ------------------------------------------------------------------------

RESULTS = ClassView("metricoutput", ("hostname", "timestamp"), "messageid", known=METRIC_OUTPUT)
NOTES = ClassView("note", ("timestamp",), None)
MESSAGE, OTHER = metric_message(), metric_message()


def days(number: int) -> list[str]:
    return [f"{date(2016, 12, 1) + timedelta(days=n)}T12:00:00Z" for n in range(number)]


def batch_of(*times: str, view: ClassView = RESULTS) -> Batch:
    """A row for each time, in two messages in turn."""
    rows = [
        PendingRow(message, message.message_id, "anonymous", Row(number, b"", {"timestamp": time}))
        for number, (time, message) in enumerate(
            zip(times, [MESSAGE, OTHER] * len(times), strict=False)
        )
    ]
    return Batch({view.name: ViewBatch(view, [MESSAGE, OTHER], rows, [])}, size=2)


def rows_of(pieces: Sequence[Batch]) -> list[PendingRow]:
    return [row for piece in pieces for part in piece.by_view.values() for row in part.rows]


def test_no_transaction_has_more_than_fifty_days_or_ten_thousand_records() -> None:
    for whole in (batch_of(*days(MAX_DAYS) * 2), batch_of(*days(400), view=NOTES)):
        assert split_batch(whole) == [whole]
    pieces = split_batch(batch_of(*days(1) * 25_000))
    assert [len(rows_of([piece])) for piece in pieces] == [10_000, 10_000, 5_000]
    batch = batch_of(*reversed(days(3640) * 2))
    before = rows_of([batch])

    pieces = split_batch(batch)

    assert (MAX_DAYS, len(pieces)) == (50, 73)
    for piece in pieces:
        assert len(piece.days) <= MAX_DAYS
        assert {row.row.values["timestamp"][:10] for row in rows_of([piece])} == piece.days
    assert sorted(rows_of(pieces), key=id) == sorted(before, key=id)


# The dead letters of a sender ---------------------------------------------------------------------

SOURCE = "stomp://broker.example.org:61613"


def message(user: str = "") -> Message:
    return Message({"JMSXUserID": user}, b"x")


def ration_of(quota: LetterQuota, hours_later: int = 0, source: str = SOURCE) -> Ration:
    return quota.begin(NOW + timedelta(hours=hours_later), lambda message: source)


def admitted(ration: Ration, letters: int, user: str = "", size_bytes: int = 1) -> int:
    return sum(ration.admits(message(user), "bad-status", size_bytes) for _ in range(letters))


@pytest.mark.parametrize(("size_bytes", "expected"), [(1, 5), (40, 2), (101, 0)])
def test_a_sender_has_a_limit_on_letters_and_on_bytes(size_bytes: int, expected: int) -> None:
    """What was rolled back has used nothing."""
    quota = LetterQuota(5, 100)

    assert [admitted(ration_of(quota), 20, "", size_bytes) for _ in range(3)] == [expected] * 3


def test_what_was_committed_counts_until_the_hour_ends() -> None:
    quota = LetterQuota(5, 100)
    ration = ration_of(quota)
    admitted(ration, 3)
    ration.commit()

    assert admitted(ration_of(quota), 20) == 2
    assert admitted(ration_of(quota, hours_later=1), 20) == 5


def test_senders_of_one_source_and_of_others_have_limits_of_their_own() -> None:
    quota = LetterQuota(5, 100)
    ration = ration_of(quota)
    assert [admitted(ration, 20, user) for user in ("a", "b", "a")] == [5, 5, 0]
    ration.commit()

    assert admitted(ration_of(quota, source="spool:///var/spool/sam-in"), 20, "a") == 5
    for headers, user in (({"user-id": "bob"}, "bob"), ({"user": "carol"}, "")):
        assert sender_of(Message(headers, b""), SOURCE) == Sender(SOURCE, user)


def test_forged_names_beyond_the_first_hundred_share_one_limit() -> None:
    ration = ration_of(LetterQuota(5, 100))

    stored = sum(admitted(ration, 20, f"user{number}") for number in range(1000))

    assert stored == 5 * (MOST_SENDERS + 1)
    ration.summarise(message("user999"), "id", "no-key", b"x")
    assert [sender.user for sender in ration.summaries] == [OTHERS]


def test_a_summary_is_bounded_and_each_sample_is_one_line() -> None:
    summary = FloodSummary(Sender(SOURCE, "evil\nname" * 1000), NOW)
    for _ in range(1000):
        summary.add("id", "no-key", b"\x1b[31m\nEOT\n\xff" * 1000)

    first, *samples = str(summary).split("\n")

    assert first.startswith("1000 ") and "no-key 1000" in first
    assert len(samples) == MOST_SAMPLES
    assert all(line.isprintable() and len(line) <= LONGEST_SAMPLE for line in [first, *samples])
    assert len(summary.message_id) < 100


def test_a_compressed_body_never_becomes_longer_than_the_table_says() -> None:
    for body in (b"", b"x" * (COMPRESSED_FROM - 1), os.urandom(5000)):
        assert (stored_body(body).compressed, original_body(stored_body(body))) == (False, body)
    stored = stored_body(b"x" * COMPRESSED_FROM)
    assert (stored.compressed, stored.body_bytes) == (True, COMPRESSED_FROM)

    assert len(original_body(stored._replace(body_bytes=10))) == 10


# The cache for COPY -------------------------------------------------------------------------------

COLUMNS = tuple(key.lower() for key in METRIC_OUTPUT.keys)
VIEW = ClassView("metricoutput", COLUMNS, "messageid", "publisher", bulk=True, known=METRIC_OUTPUT)
ROW = {"hostname": "CE01", "serviceflavour": "CE", "metricname": "M", "metricstatus": "ok"}


def test_the_cache_of_constant_fields_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insert, "_MAX_CACHED", 50)
    monkeypatch.setattr(insert, "_constant_fields", insert._ConstantFields())

    for number in range(120):
        names = (f"M{number}", "M" * 1000)
        copy_text(VIEW, [({**ROW, "metricname": name}, "id", "uid:7") for name in names])

    assert 0 < len(insert._constant_fields) <= 50
    assert all(len(fields) <= 1000 for fields in insert._constant_fields.values())


# Which views can be message classes ---------------------------------------------------------------

SCHEMAS_OWN = {"metricoutput", "site_availability"}
TEXT = ViewColumn("text", "text", "text")


def problem(
    name: str = "note",
    columns: tuple[ViewColumn, ...] = (TEXT,),
    enabled: tuple[bool, ...] = (True,),
    rivals: tuple[str, ...] = (),
) -> str | None:
    key = folded(name)
    same = [rival for rival in rivals if folded(rival) == key]
    return problem_of(View(name, columns, enabled), key, key if key in SCHEMAS_OWN else None, same)


@pytest.mark.parametrize(
    "found",
    [
        *map(problem, ("note", "Note", "org.wlcg.metricEnvironment", "ü", "metricoutput")),
        *(problem(columns=(ViewColumn("x", base, "any"),)) for base in (None, *sorted(TEXT_FILLS))),
        problem(enabled=(False, True)),
        problem("Note", rivals=("notes", "\u212aote")),
    ],
)
def test_a_view_with_a_trigger_and_columns_of_plain_types_is_a_class(found: str | None) -> None:
    assert found is None
    assert TIMES.keys() < TEXT_FILLS


@pytest.mark.parametrize(
    ("found", "text"),
    [
        *(
            (problem(columns=(ViewColumn("x", base, name),)), f"column x has type {name}")
            for base, name in (("_text", "text[]"), ("", "int4range"), ("bytea", "bytea"))
        ),
        (
            problem(columns=(ViewColumn("hostname"), ViewColumn("b"), ViewColumn("hostName"))),
            'columns "hostName" and "hostname" differ only in upper and lower case',
        ),
        (problem(enabled=()), "view note has no INSTEAD OF INSERT trigger"),
        (problem(enabled=(False,)), "of view note is disabled"),
        (problem("MetricOutput"), 'a view named "metricoutput"'),
        (problem("site_availability"), 'a view named "site_availability"'),
        (problem("Sam-Check"), "never loaded"),
        *((problem(name), "no message header") for name in (" note", "no\nte", "note\u202e")),
        (problem("Note", rivals=("note",)), 'view "note" only in upper and lower case'),
    ],
)
def test_a_view_that_cannot_be_a_class_has_a_problem(found: str, text: str) -> None:
    assert text in found
    assert "; " not in found


# The chain of operations --------------------------------------------------------------------------


def chain(length: int) -> list[RecordedOperation]:
    operations: list[RecordedOperation] = []
    previous = START
    for number in range(1, length + 1):
        fields = ("2026-11-20T10:00:00Z", "sam", "jane", "prune", "{}", previous)
        previous = digest_of(str(number), *fields)
        operations.append(RecordedOperation(number, *fields, previous))
    return operations


def broken(operations: Sequence[RecordedOperation]) -> list[int]:
    """The numbers of the operations that are reported."""
    return [int(text.split(":")[0].removeprefix("operation ")) for text in broken_links(operations)]


@pytest.mark.parametrize(
    "column", ["happened_at", "database_login", "os_login", "command", "arguments"]
)
def test_a_changed_column_breaks_the_chain_at_its_operation(column: str) -> None:
    operations = chain(4)
    operations[1] = operations[1]._replace(**{column: "x"})

    assert broken(operations) == [2]


def test_an_operation_that_was_replaced_with_a_valid_digest_breaks_the_next_one() -> None:
    operations = chain(4)
    changed = operations[1]._replace(os_login="joe")
    digest = digest_of(str(changed.operation_id), *changed[1:-1])
    operations[1] = changed._replace(digest=digest)

    assert broken(operations) == [3]
    assert digest_of("ab", "c") != digest_of("a", "bc")  # texts cannot be shifted between fields


def test_a_removed_operation_breaks_the_chain() -> None:
    for removed in range(3):
        operations = chain(4)
        del operations[removed]

        assert broken(operations) == [removed + 2]
