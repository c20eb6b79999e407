"""Loading a batch: rows into views, everything else into dead letters, all or nothing."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.identity.identity import with_identity
from sam_pipeline.schema.messages.message import CLASS, JSON, Message, new_message
from sam_pipeline.schema.records.classes import CHECK_CLASS
from sam_pipeline.sql.errors import DatabaseAway
from sam_pipeline.sql.loading.audit import Audit
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.letters.dead_letter import show_dead_letter
from sam_pipeline.sql.loading.load import POISON_TEXT, load
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
    downtime,
    insert,
    message_of,
    name_too_long_for,
    query,
    site_group,
    stored,
)

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
    loaded = load_now(engine, *messages, report=asked)
    assert loaded.reports.keys() == {*asked}
    return [
        (one.rows, one.duplicates, [(failure.number, failure.reason) for failure in one.failures])
        for _, one in sorted(loaded.reports.items())
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


def test_a_row_shows_who_sent_it_and_when_it_arrived(engine: Engine) -> None:
    load_now(engine, message_of("metricOutput", metric_result(), sender="key:a"))
    insert(engine, "siteGroup", site_group())
    insert(engine, "downtime", downtime(publisher="uid:7", receivedAt="2026-11-19T00:00:00Z"))

    [(publisher, received)] = query(engine, "SELECT publisher, receivedAt FROM metricOutput")
    assert publisher == "key:a"
    assert "2026-01-01" < received < "9999"
    [(operator,)] = query(engine, "SELECT publisher FROM siteGroup")
    assert operator.split(":")[0] == "operator"
    assert query(engine, "SELECT publisher, receivedAt FROM downtime") == [
        ("uid:7", "2026-11-19T00:00:00Z")
    ]


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
    """And one that takes precedence over the stored one is not."""
    key, form = KEYS[class_name]

    def record(number: int, **changes: object) -> Values:
        return {**EXAMPLES[class_name], **changes, key: form.format(number)}

    load_now(engine, message_of(class_name, *map(record, range(30))))
    records = [
        *((record(n), "duplicate") for n in range(10)),
        *((record(n, **LOSING[class_name]), "duplicate") for n in range(10, 20)),
        *((record(n, **WINNING[class_name]), "row") for n in range(20, 30)),
        *((record(n), "row") for n in range(30, 40)),
    ]
    Random(22).shuffle(records)
    records += [(record(n), "duplicate") for n in range(30, 40)]  # repeats within the batch
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
