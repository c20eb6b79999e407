"""Loading a batch: rows into views, everything else into dead letters, all or nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.identity.identity import with_identity
from sam_pipeline.schema.messages.message import CLASS, JSON, Message, new_message
from sam_pipeline.schema.records.classes import CHECK_CLASS
from sam_pipeline.schema.records.normalise import Limits
from sam_pipeline.schema.records.text import Record
from sam_pipeline.sql.errors import DatabaseAway, DatabaseExhausted, DatabaseFull
from sam_pipeline.sql.loading import load as load_module
from sam_pipeline.sql.loading.batch import Batch
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.insert import Inserted
from sam_pipeline.sql.loading.letters.dead_letter import show_dead_letter
from sam_pipeline.sql.loading.load import POISON_TEXT, Audit, Loader, Loading, MessageReport, load
from sam_pipeline.sql.loading.replay import replay_dead_letters
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.database.letters import list_dead_letters, load_now, only_letter, reasons
from tests.support.database.own_class import add_trigger, make_class, run
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import (
    EXAMPLES,
    LOSING,
    WINNING,
    Values,
    message_of,
    name_too_long_for,
    query,
    site_group,
    stored,
)
from tests.support.database.with_schema import with_schema

BROKERS = ("stomp://msg.example.org:61613", "spool:///var/spool/sam") * 2
AUDIT = Audit("site-a", "consumer1.example.org", 4711, BROKERS)
AUDITED = """
    SELECT consumer, host, process_id, messages, rows, duplicates, dead_letters, checks,
        brokers, publishers, loaded_at, database_user
    FROM load_audit ORDER BY batch_id
"""
BAD = metric_result(metricStatus="FINE")


def hosts(engine: Engine) -> list[str]:
    return sorted(row["hostName"].removesuffix(".org") for row in stored(engine, "metricOutput"))


def results(*names: str, **changes: str) -> Message:
    return metric_message(*(metric_result(hostName=f"{name}.org", **changes) for name in names))


def reported(
    engine: Engine, *messages: Message, report: Collection[int] | None = None
) -> list[tuple[int, int, list[tuple[int, str]]]]:
    """Rows, duplicates, and numbers and reasons of the failures, by position."""
    asked = range(len(messages)) if report is None else report
    reports: dict[int, MessageReport] = {}
    with acting_as("loader", engine) as role:
        loading = Loading(Loader(role, Catalogue(role)), messages, NOW, report=asked)
        while loading.is_pending:
            for commit in loading.store(loading.decode()):
                reports |= commit.reports
    assert reports.keys() == {*asked}
    return [
        (one.rows, one.duplicates, [(failure.number, failure.reason) for failure in one.failures])
        for _, one in sorted(reports.items())
    ]


def test_all_values_arrive_as_they_were_sent(engine: Engine) -> None:
    sent = metric_result(
        detailsData="tab\there\nbackslash \\ and \\N and \\.\n\n'quotes' \"too\" 100 % ü €",
        performanceData="time=3s;30;60",
        summaryData="\\.",
    )
    message = metric_message(sent)

    loaded = load_now(engine, message)

    assert (loaded.rows_by_class, loaded.dead_letters) == ({"metricOutput": 1}, {})
    [row] = stored(engine, "metricOutput")
    assert row == {**sent, "monitoringHost": "wn17.example.org", "messageId": message.message_id}


def test_results_that_differ_under_one_message_id_are_all_stored(engine: Engine) -> None:
    records = [metric_result(), metric_result(timestamp="2026-11-20T12:05:00Z")]
    one, other = (metric_message(record, samMessageId="same") for record in records)

    load_now(engine, one, other, one)
    load_now(engine, other)

    rows = stored(engine, "metricOutput")
    assert [row["messageId"] for row in rows] == ["same"] * 2
    assert {row["timestamp"] for row in rows} == {record["timestamp"] for record in records}


def test_a_redelivered_batch_changes_nothing(engine: Engine) -> None:
    batch = [metric_message(metric_result(), BAD), new_message(CHECK_CLASS, "hello")]

    for _ in range(2):
        loaded = load_now(engine, *batch, audit=AUDIT)

    assert loaded.dead_letters == {}
    assert len(stored(engine, "metricOutput")) == 1
    assert reasons(engine) == [(2, "bad-status")]
    counts = [row[3:8] for row in query(engine, AUDITED)]
    assert counts == [(2, 1, 0, 1, 1), (2, 0, 1, 0, 1)]


@pytest.mark.parametrize("value", ["nul \x00 inside", "lone \udc80 surrogate"])
def test_a_value_that_no_database_can_store_is_a_dead_letter(engine: Engine, value: str) -> None:
    rows = [metric_result(hostName=f"{name}.org") for name in "abc"]
    rows[1]["siteName"] = value

    loaded = load_now(engine, message_of("metricOutput", *rows))

    assert hosts(engine) == ["a", "c"]
    assert loaded.dead_letters.total() == 1


def test_unknown_keys_of_any_name_are_counted_and_ignored(engine: Engine) -> None:
    odd = ["__proto__", "select", "metric_status; DROP TABLE host", "", "'", "messageId"]
    many = {f"key{number}": "x" for number in range(5000)}
    body = json.dumps({**metric_result(), **dict.fromkeys(odd, "x"), **many})
    message = new_message("metricOutput", body, content_type=JSON)

    loaded = load_now(engine, message)

    assert (loaded.rows, loaded.dead_letters) == (1, {})
    assert loaded.ignored_keys == dict.fromkeys([*odd, *many], 1)
    [row] = stored(engine, "metricOutput")
    assert row["messageId"] == message.message_id


@pytest.mark.parametrize(
    "name",
    [
        *("host", "report_result", "pg_class", "sqlite_schema", "public.metricOutput", "%s"),
        *('metricOutput"; DROP TABLE host; --', "m" * 10_000, "metric\u043eutput", "\x00"),
    ],
    ids=lambda name: name[:20].encode("unicode_escape").decode(),
)
def test_a_message_of_an_unknown_class_is_kept_whole(engine: Engine, name: str) -> None:
    message = new_message(name, "name: x\nEOT\n", headers={"destination": "/topic/x"})

    loaded = load_now(engine, message, results("a"))

    assert (loaded.rows, loaded.dead_letters) == (1, {"unknown-class": 1})
    letter = only_letter(engine)
    assert letter.record_number == 0
    if "\x00" not in name:
        assert letter.message_class == name
    assert show_dead_letter(engine, letter.dead_letter_id).body == message.body


def test_a_dead_letter_stores_any_headers_and_bytes(engine: Engine) -> None:
    headers = {"samMessageId": "i\x00d" * 2000, "odd": "\udc80 \x00", CLASS: "no\x00\udc80"}

    loaded = load_now(engine, Message(headers, b"\x00\xff"))

    assert loaded.dead_letters == {"unknown-class": 1}
    content = show_dead_letter(engine, only_letter(engine).dead_letter_id)
    assert (content.headers, content.body) == (headers, b"\x00\xff")
    load_now(engine, Message({}, b"name: x\nEOT\n"))
    assert reasons(engine) == [(0, "unknown-class")] * 2


# The outcome of each message ----------------------------------------------------------------------


def test_a_mixed_batch_reports_each_message(engine: Engine) -> None:
    load_now(engine, results("known"))
    days = [f"{NOW - timedelta(days=n):%Y-%m-%dT%H:%M:%SZ}" for n in range(60)]
    twice = results("x", "y")

    outcomes = reported(
        engine,
        results("a", "b"),
        results("known"),
        metric_message(BAD, metric_result(hostName="c.org")),
        metric_message(BAD),
        new_message("weatherReport", "wind: 3\nEOT\n"),
        new_message("SAM-check", ""),
        metric_message(*[BAD] * 25, metric_result(hostName="d.org")),
        metric_message(*(metric_result(timestamp=day) for day in days)),  # is split by days
        twice,
        Message(*twice),
    )

    assert outcomes == [
        (2, 0, []),
        (0, 1, []),
        (1, 0, [(1, "bad-status")]),
        (0, 0, [(1, "bad-status")]),
        (0, 0, [(0, "unknown-class")]),
        (0, 0, []),
        (1, 0, [(0, "bad-status")]),
        (60, 0, []),
        (2, 0, []),
        (0, 2, []),
    ]
    assert reported(engine, results("e"), results("f"), results("g"), report=[1]) == [(1, 0, [])]
    assert reported(engine, report=[]) == []


def test_only_the_records_that_the_database_refuses_are_dead_letters(engine: Engine) -> None:
    """And they do not blur the duplicates of others."""
    long_name = name_too_long_for("metric", engine)
    names = [f"wn{number:03d}" for number in range(200)]
    load_now(engine, *(results(name) for name in names[::3]))
    batch = [results(name) for name in names]
    batch[7], batch[122] = (results(names[at], metricName=long_name) for at in (7, 122))

    outcomes = reported(engine, *batch)

    expected: list[Any] = [(int(n % 3 > 0), int(n % 3 == 0), []) for n in range(200)]
    expected[7] = expected[122] = (0, 0, [(1, "refused-by-database")])
    assert outcomes == expected
    assert hosts(engine) == [name for name in names if name not in (names[7], names[122])]
    state = "SQLITE_CONSTRAINT" if engine.dialect.name == "sqlite" else "54000"
    for letter in list_dead_letters(engine):
        assert letter.error.lower().startswith("metricoutput: ") and state in letter.error


KEYS = {
    "metricOutput": ("hostName", "ce{}.example.org"),
    "serviceEndpoint": ("hostName", "ce{}.example.org"),
    "siteGroup": ("siteName", "SITE-{}"),
    "siteContact": ("siteName", "SITE-{}"),
    "downtime": ("hostName", "ce{}.example.org"),
}
"""A part of the natural key, and values for it."""


@pytest.mark.parametrize("class_name", KEYS)
def test_a_row_that_changes_nothing_is_a_duplicate_of_its_message(
    engine: Engine, class_name: str
) -> None:
    """An equal result, but not a statement that another message repeats."""
    key, form = KEYS[class_name]
    same = "duplicate" if class_name == "metricOutput" else "row"

    def record(number: int, **changes: object) -> Values:
        return {**EXAMPLES[class_name], **changes, key: form.format(number)}

    load_now(engine, message_of(class_name, *map(record, range(30))))
    records = [
        *((record(n), same) for n in range(10)),
        *((record(n, **LOSING[class_name]), "row") for n in range(10, 20)),
        *((record(n, **WINNING[class_name]), "row") for n in range(20, 30)),
        *((record(n), "row") for n in range(30, 40)),
    ]
    Random(22).shuffle(records)
    records += [(record(n), same) for n in range(30, 40)]  # repeats within the batch
    parts = [records[at : at + 3] for at in range(0, len(records), 3)]
    messages = [message_of(class_name, *(row for row, _ in part)) for part in parts]

    outcomes = reported(engine, *messages)
    again = load_now(engine, *messages, audit=Audit("c", "h", 1, ["b"] * len(messages)))

    expected = [Counter(outcome for _, outcome in part) for part in parts]
    assert outcomes == [(count["row"], count["duplicate"], []) for count in expected]
    assert (again.rows, again.duplicates_by_class) == (0, {class_name: 50})
    assert query(engine, "SELECT rows, duplicates FROM load_audit") == [(0, 50)]


# The audit ----------------------------------------------------------------------------------------


def test_a_batch_writes_a_row_with_consumer_brokers_and_counts(engine: Engine) -> None:
    good = metric_result()
    began = datetime.now(UTC).replace(microsecond=0)

    load_now(engine, results("unaudited"))
    load_now(
        engine,
        with_identity(metric_message(good, BAD), "key:a"),
        with_identity(metric_message(good), "uid:7"),
        new_message(CHECK_CLASS, ""),
        audit=AUDIT,
    )

    [(*row, brokers, publishers, at, user)] = query(engine, AUDITED)
    assert row == ["site-a", "consumer1.example.org", 4711, 3, 1, 1, 1, 1]
    assert json.loads(brokers) == {BROKERS[0]: 2, BROKERS[1]: 1}
    assert json.loads(publishers) == {"key:a": [1, 1], "uid:7": [1, 0]}
    assert began <= datetime.fromisoformat(at) <= datetime.now(UTC) + timedelta(seconds=1)
    assert user == ("loader_login" if engine.dialect.name == "postgresql" else None)


# Poison -------------------------------------------------------------------------------------------


def test_poison_is_kept_whole_and_not_parsed_until_a_replay(engine: Engine) -> None:
    poison, harmless = metric_message(metric_result(metricName="kills")), metric_message()
    check, unknown = new_message(CHECK_CLASS, ""), new_message("nowhere", "a: b\nEOT\n")
    bad = [message.message_id for message in (poison, check, unknown)]

    loaded = load_now(engine, poison, harmless, check, unknown, poison=bad)

    assert (loaded.dead_letters, loaded.checks) == ({"poison": 3}, 0)
    assert [row["messageId"] for row in stored(engine, "metricOutput")] == [harmless.message_id]
    letter, *others = list_dead_letters(engine)
    assert [letter.message_id, *(other.message_id for other in others)] == bad
    assert (letter.record_number, letter.reason, letter.error) == (0, "poison", POISON_TEXT)
    content = show_dead_letter(engine, letter.dead_letter_id)
    assert (content.headers, content.body) == (poison.headers, poison.body)
    [replayed] = replay_dead_letters(engine, [letter.dead_letter_id], lambda: NOW)
    assert replayed.state == "replayed"
    assert len(stored(engine, "metricOutput")) == 2


# A class or the database is broken ----------------------------------------------------------------

VIEW_OF = 'CREATE VIEW note AS SELECT {} FROM "kept note"'
BREAK: Mapping[str, tuple[Sequence[str], str]] = {
    "trigger": (["DROP VIEW note", VIEW_OF.format("*")], ""),
    "view": (["DROP VIEW note"], ""),
    "table": ([], "INSERT INTO gone VALUES (NEW.words);"),
    "column of the view": (
        ["DROP VIEW note", VIEW_OF.format("author")],
        'INSERT INTO "kept note" (author) VALUES (NEW.author);',
    ),
    "column of the table": ([], 'INSERT INTO "kept note" (writer) VALUES (NEW.words);'),
}
"""Statements, and what the trigger does from now on."""


@pytest.mark.parametrize("damage", BREAK)
def test_messages_of_a_broken_class_are_parked_while_others_load(
    own_engine: Engine, damage: str
) -> None:
    make_class(own_engine, "note", author="text", words="text")
    note = message_of("note", {"author": "me", "words": "hello"})
    statements, into = BREAK[damage]
    with acting_as("loader", own_engine) as loader:
        catalogue = Catalogue(loader)
        assert load(loader, catalogue, [note], NOW).rows == 1
        run(own_engine, *statements)
        if into:
            add_trigger(own_engine, "note", into)
        batch = [note, message_of("siteGroup", site_group())]
        loaded = load(loader, catalogue, batch, NOW)

    assert (loaded.rows, loaded.dead_letters) == (1, {"class-broken": 1})
    assert reasons(own_engine) == [(0, "class-broken")]
    assert len(stored(own_engine, "siteGroup")) == 1


def test_nothing_is_committed_where_a_dead_letter_cannot_be_stored(own_engine: Engine) -> None:
    run(own_engine, "ALTER TABLE dead_letter RENAME TO elsewhere")

    with pytest.raises(DatabaseAway):
        load_now(own_engine, metric_message(metric_result(), BAD))

    assert stored(own_engine, "metricOutput") == []


# Bounds of transactions ---------------------------------------------------------------------------

LIMITS = Limits(max_records=100_000)
OF_THREE = Audit("site-a", "consumer1.example.org", 4711, ["a", "b", "c"])

COUNTED = "SELECT messages, rows, dead_letters FROM load_audit ORDER BY batch_id"
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
        loaded = load_now(engine, message, audit=OF_THREE, limits=LIMITS)

        counts = loaded.rows, loaded.duplicates, loaded.dead_letters.total()
        assert counts == (12_000 * expected, 12_000 * (1 - expected), 2 * expected)
        assert loaded.repeated_dead_letters == 2 * (1 - expected)
        assert query(engine, COUNT) == [(12_000, 12_000)]
        assert reasons(engine) == [(1, "refused-by-database"), (12_002, "bad-status")]
    assert query(engine, COUNTED) == [
        (0, 9_999, 0), (1, 2_001, 2), (0, 0, 0), (1, 0, 0),
    ]  # fmt: skip
    brokers = query(engine, "SELECT brokers FROM load_audit ORDER BY batch_id")
    assert brokers == [("{}",), ('{"a": 1}',)] * 2


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

    loaded = load_now(with_notes, *notes(10), audit=Audit("c", "h", 1, ["b"] * 10))

    assert loaded.rows == 10
    assert words(with_notes) == [(str(n),) for n in range(10)]
    assert [row[0] for row in query(with_notes, COUNTED)] == [2, 3, 2, 3]
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

    assert (loaded.rows, loaded.dead_letters.total()) == (count - len(lost), len(lost))
    assert words(with_notes) == [(str(n),) for n in range(count) if n not in lost]
