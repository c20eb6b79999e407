"""The audit row that records who loaded a batch, written in the same transaction."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from sam_pipeline.schema.identity.identity import with_identity
from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.records.classes import CHECK_CLASS
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.errors import DatabaseAway
from sam_pipeline.sql.imports.records import Import, limits_of_history
from sam_pipeline.sql.loading.audit import Audit
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.letters.dead_letter import show_dead_letter
from sam_pipeline.sql.loading.load import POISON_TEXT, Loaded, load
from sam_pipeline.sql.loading.replay import replay_dead_letters
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.database.letters import list_dead_letters
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import (
    Values,
    downtime,
    query,
    service_endpoint,
    site_contact,
    site_group,
    stored,
)

BROKERS = ("stomp://msg.example.org:61613", "spool:///var/spool/sam") * 2
AUDIT = Audit("site-a", "consumer1.example.org", 4711, BROKERS)

AUDITED = """
    SELECT consumer, host, process_id, messages, rows, dead_letters, checks
    FROM load_audit ORDER BY batch_id
"""


def load_now(engine: Engine, *messages: Message, poison: tuple[str, ...] = ()) -> Loaded:
    with acting_as("loader", engine) as loader:
        return load(loader, Catalogue(loader), messages, NOW, audit=AUDIT, poison=poison)


def test_a_batch_writes_a_row_with_consumer_brokers_and_counts(engine: Engine) -> None:
    good, bad = metric_result(), metric_result(metricStatus="FINE")
    began = datetime.now(UTC).replace(microsecond=0)

    load_now(engine, metric_message(good, bad), metric_message(good), new_message(CHECK_CLASS, ""))

    with acting_as("reader", engine) as reader, reading(reader) as connection:
        [row] = connection.exec_driver_sql("SELECT * FROM load_audit").mappings()
    assert json.loads(row["brokers"]) == {BROKERS[0]: 2, BROKERS[1]: 1}
    assert (row["consumer"], row["host"], row["process_id"]) == (
        "site-a",
        "consumer1.example.org",
        4711,
    )
    counts = [row[name] for name in ("messages", "rows", "duplicates", "dead_letters", "checks")]
    assert counts == [3, 1, 1, 1, 1]
    at = row["loaded_at"]
    at = at if isinstance(at, datetime) else datetime.fromisoformat(at)
    assert began <= at <= datetime.now(UTC) + timedelta(seconds=1)
    user = "loader_login" if engine.dialect.name == "postgresql" else None
    assert row["database_user"] == user


def test_records_are_counted_as_accepted_or_refused_by_publisher(engine: Engine) -> None:
    good, bad = metric_result(), metric_result(metricStatus="FINE")
    other = metric_result(hostName="other.example.org")
    messages = [
        with_identity(metric_message(good, other, bad), "key:a"),
        with_identity(metric_message(good), "uid:7"),
        metric_message(bad, bad),
    ]

    load_now(engine, *messages)

    [row] = query(engine, "SELECT publishers FROM load_audit")
    assert json.loads(row[0]) == {"anonymous": [0, 2], "key:a": [2, 1], "uid:7": [1, 0]}


def test_a_batch_that_was_not_committed_leaves_no_audit_row(engine: Engine) -> None:
    """The database goes away after all rows were written, before the commit."""
    with acting_as("loader", engine) as loader:
        catalogue, written = Catalogue(loader), []

        def record_audit_row(_: object, cursor: object, statement: str, *more: object) -> None:
            written.extend(["row"] if "INTO loaded_batch" in statement else [])

        def fail_commit(_: object) -> None:
            if written == ["row"]:
                raise OperationalError("COMMIT", None, Exception("the server went away"))

        event.listen(loader, "after_cursor_execute", record_audit_row)
        event.listen(loader, "commit", fail_commit)

        with pytest.raises(DatabaseAway):
            load(loader, catalogue, [metric_message()], NOW, audit=AUDIT)
        event.remove(loader, "commit", fail_commit)
        assert written == ["row"]
        assert query(engine, AUDITED) == []
        assert stored(engine, "metricOutput") == []

        load(loader, catalogue, [metric_message()], NOW, audit=AUDIT)
    assert query(engine, AUDITED) == [("site-a", "consumer1.example.org", 4711, 1, 1, 0, 0)]


def test_a_repeated_batch_counts_its_dead_letters_only_once(engine: Engine) -> None:
    message = metric_message(metric_result(metricStatus="FINE"))

    load_now(engine, message)
    load_now(engine, message)

    assert [row[3:] for row in query(engine, AUDITED)] == [(1, 0, 1, 0), (1, 0, 0, 0)]


def test_a_batch_loaded_without_audit_leaves_no_row(engine: Engine) -> None:
    load(engine, Catalogue(engine), [metric_message()], NOW)

    assert query(engine, AUDITED) == []


def test_rows_are_counted_by_class_name_as_spelled_on_the_wire(engine: Engine) -> None:
    planned = new_message("DOWNTIME", json.dumps(downtime()), content_type="application/json")

    loaded = load_now(engine, metric_message(metric_result()), metric_message(), planned)

    assert loaded.rows_by_class == {"metricOutput": 1, "downtime": 1}
    assert loaded.duplicates_by_class == {"metricOutput": 1}


@pytest.mark.parametrize(
    ("class_name", "record", "changed"),
    [
        ("metricOutput", metric_result(), {"metricStatus": "CRITICAL"}),
        ("downtime", downtime(), {"timestamp": "2026-11-19T00:00:00Z"}),
        ("serviceEndpoint", service_endpoint(), {"validTo": "2026-12-01T00:00:00Z"}),
        ("siteGroup", site_group(), {"validTo": "2026-12-01T00:00:00Z"}),
        ("siteContact", site_contact(), {"timestamp": "2026-11-19T00:00:00Z"}),
    ],
)
def test_a_row_that_changes_nothing_is_a_duplicate_and_one_that_takes_precedence_is_not(
    engine: Engine, class_name: str, record: Values, changed: Values
) -> None:
    def message(*records: Values) -> Message:
        return new_message(class_name, json.dumps(records), content_type="application/json")

    outcomes = [
        load_now(engine, message(record)),
        load_now(engine, message(record, record), message(record)),
        load_now(engine, message({**record, **changed})),
        load_now(engine, message(record)),
    ]

    assert [(outcome.rows, outcome.duplicates) for outcome in outcomes] == [
        (1, 0),
        (0, 3),
        (1, 0),
        (0, 1),
    ]
    assert query(engine, "SELECT rows, duplicates FROM load_audit ORDER BY batch_id") == [
        (outcome.rows, outcome.duplicates) for outcome in outcomes
    ]


def test_an_import_writes_a_row_with_its_file_and_counts(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "old results.txt"
    file.write_bytes(metric_message(metric_result(), metric_result(metricStatus="FINE")).body)
    with acting_as("loader", engine) as loader:
        limits = limits_of_history(datetime.now(UTC))
        job = Import(loader, Catalogue(loader), "metricOutput", limits, Progress(), tmp_path)

        job.run(str(file))

    [(consumer, _, process_id, *counts)] = query(engine, AUDITED)
    assert (consumer, counts) == ("sam-db import", [2, 1, 1, 0])
    assert process_id > 0
    [(brokers,)] = query(engine, "SELECT brokers FROM load_audit")
    assert json.loads(brokers) == {str(file): 2}


def test_poison_is_kept_whole_and_not_parsed(engine: Engine) -> None:
    poison, harmless = metric_message(metric_result(metricName="kills")), metric_message()

    loaded = load_now(engine, poison, harmless, poison=(poison.message_id,))

    assert loaded.dead_letters == {"poison": 1}
    assert [row["messageId"] for row in stored(engine, "metricOutput")] == [harmless.message_id]
    [letter] = list_dead_letters(engine)
    assert (letter.message_id, letter.record_number) == (poison.message_id, 0)
    assert (letter.reason, letter.error) == ("poison", POISON_TEXT)
    content = show_dead_letter(engine, letter.dead_letter_id)
    assert (content.headers, content.body) == (poison.headers, poison.body)


def test_poison_of_any_class_is_kept_even_a_check(engine: Engine) -> None:
    check, unknown = new_message(CHECK_CLASS, ""), new_message("nowhere", "a: b\nEOT\n")

    loaded = load_now(engine, check, unknown, poison=(check.message_id, unknown.message_id))

    assert (loaded.dead_letters, loaded.checks) == ({"poison": 2}, 0)


def test_poison_that_no_longer_kills_is_loaded_by_a_replay(engine: Engine) -> None:
    message = metric_message()
    load_now(engine, message, poison=(message.message_id,))
    [letter] = list_dead_letters(engine)

    [replayed] = replay_dead_letters(engine, [letter.dead_letter_id], lambda: NOW)

    assert replayed.state == "replayed"
    assert [row["messageId"] for row in stored(engine, "metricOutput")] == [message.message_id]
