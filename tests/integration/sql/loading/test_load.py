"""Loading a batch: rows into views, everything else into dead letters, all or nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.schema.messages.message import Message, new_message
from sam_pipeline.schema.records.classes import CHECK_CLASS
from sam_pipeline.sql.database.engine import make_engine, writing
from sam_pipeline.sql.database.version import upgrade
from sam_pipeline.sql.errors import DatabaseAway
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.letters.dead_letter import show_dead_letter
from sam_pipeline.sql.loading.load import Loaded, load
from tests.services.postgres import PostgresServer
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.database.letters import list_dead_letters
from tests.support.database.roles import acting_as
from tests.support.database.sql_rows import name_too_long_for, stored


def load_now(engine: Engine, *messages: Message) -> Loaded:
    with acting_as("loader", engine) as loader:
        return load(loader, Catalogue(loader), messages, NOW)


def hosts(engine: Engine) -> list[str]:
    return sorted(row["hostName"] for row in stored(engine, "metricOutput"))


def reasons(engine: Engine) -> list[tuple[int, str]]:
    return [(letter.record_number, letter.reason) for letter in list_dead_letters(engine)]


def results(*names: str) -> Message:
    return metric_message(*(metric_result(hostName=name) for name in names))


def execute(engine: Engine, statement: str) -> None:
    with writing(engine) as connection:
        connection.execute(text(statement))


def test_a_message_becomes_rows_with_its_id(engine: Engine) -> None:
    message = results("a.example.org", "b.example.org")

    loaded = load_now(engine, message)

    assert loaded == Loaded({"metricOutput": 2}, dead_letters={}, checks=0, ignored_keys={})
    assert {row["messageId"] for row in stored(engine, "metricOutput")} == {message.message_id}


def test_results_that_differ_under_one_message_id_are_all_stored(engine: Engine) -> None:
    records = [metric_result(), metric_result(timestamp="2026-11-20T12:05:00Z")]
    one, other = (metric_message(record, samMessageId="same") for record in records)

    load_now(engine, one, other, one)

    rows = stored(engine, "metricOutput")
    assert [row["messageId"] for row in rows] == ["same"] * 2
    assert {row["timestamp"] for row in rows} == {record["timestamp"] for record in records}


def test_copies_by_two_monitoring_hosts_are_two_rows_in_any_order(engine: Engine) -> None:
    """So excluding one of the hosts leaves the result of the other, be it better or worse."""
    sent = [
        metric_message(metric_result(metricStatus=status), nagios_host=host)
        for status in ("OK", "CRITICAL", "WARNING")
        for host in ("nagios1", "nagios2")
        if (status, host) != ("CRITICAL", "nagios2")
    ]

    load_now(engine, *sent)
    load_now(engine, *reversed(sent))

    rows = stored(engine, "metricOutput")
    assert sorted((row["monitoringHost"], row["metricStatus"]) for row in rows) == [
        ("nagios1", "CRITICAL"),
        ("nagios2", "WARNING"),
    ]


def test_all_values_arrive_as_they_were_sent(engine: Engine) -> None:
    sent = metric_result(
        detailsData="tab\there\nbackslash \\ and \\N and \\.\n\n'quotes' \"too\" 100 % ü €",
        performanceData="time=3s;30;60",
        summaryData="\\.",
    )
    message = metric_message(sent)

    load_now(engine, message)

    [row] = stored(engine, "metricOutput")
    assert row == {**sent, "monitoringHost": "wn17.example.org", "messageId": message.message_id}


def test_a_redelivered_batch_changes_nothing(engine: Engine) -> None:
    batch = [results("a.example.org"), metric_message(metric_result(metricStatus="FINE"))]
    load_now(engine, *batch)

    reloaded = load_now(engine, *batch, *batch)

    assert reloaded.dead_letters == {}
    assert hosts(engine) == ["a.example.org"]
    assert reasons(engine) == [(1, "bad-status")]


def test_a_bad_record_does_not_keep_its_neighbours_from_loading(engine: Engine) -> None:
    bad = metric_result(hostName="b.example.org", metricStatus="FINE")
    good = [metric_result(hostName=f"{name}.example.org") for name in "ac"]

    loaded = load_now(engine, metric_message(good[0], bad, good[1]))

    assert (loaded.rows, loaded.dead_letters) == (2, {"bad-status": 1})
    assert hosts(engine) == ["a.example.org", "c.example.org"]
    assert reasons(engine) == [(2, "bad-status")]


def test_only_the_record_that_the_database_refuses_is_a_dead_letter(engine: Engine) -> None:
    long_name = name_too_long_for("metric", engine)
    names = [f"host{number:03d}.example.org" for number in range(100)]
    records = [metric_result(hostName=name) for name in names]
    records[41] = metric_result(hostName=names[41], metricName=long_name)
    records[77] = metric_result(hostName=names[77], metricName=long_name)

    loaded = load_now(engine, metric_message(*records[:50]), metric_message(*records[50:]))

    assert loaded.rows == 98
    assert hosts(engine) == [name for name in names if name not in (names[41], names[77])]
    assert reasons(engine) == [(42, "refused-by-database"), (28, "refused-by-database")]
    [first, _] = list_dead_letters(engine)
    assert first.error.lower().startswith("metricoutput: ")


@pytest.mark.parametrize("value", ["nul \x00 inside", "lone \udc80 surrogate"])
def test_a_value_that_no_database_can_store_is_a_dead_letter(engine: Engine, value: str) -> None:
    bodies = [
        json.dumps(metric_result(hostName=name)) for name in ("a.example.org", "c.example.org")
    ]
    bodies.insert(1, json.dumps(metric_result(hostName="b.example.org", siteName=value)))
    message = new_message("metricOutput", f"[{','.join(bodies)}]", content_type="application/json")

    loaded = load_now(engine, message)

    assert hosts(engine) == ["a.example.org", "c.example.org"]
    assert sum(loaded.dead_letters.values()) == 1


def test_a_message_of_an_unknown_class_is_kept_whole(engine: Engine) -> None:
    name = 'no"such\\class; DROP TABLE host; ' + "x" * 10_000
    message = new_message(name, "key: value\nEOT\n", headers={"destination": "/topic/x"})

    loaded = load_now(engine, message, results("a.example.org"))

    assert (loaded.rows, loaded.dead_letters) == (1, {"unknown-class": 1})
    [letter] = list_dead_letters(engine)
    assert (letter.record_number, letter.message_class) == (0, name)


@pytest.mark.parametrize("name", ["host", "report_result", "metric_instance_name"])
def test_a_table_or_a_view_without_a_trigger_is_not_a_class(engine: Engine, name: str) -> None:
    assert load_now(engine, new_message(name, "name: x\nEOT\n")).dead_letters == {
        "unknown-class": 1
    }


def test_a_message_without_a_class_is_kept(engine: Engine) -> None:
    load_now(engine, Message({}, b"name: x\nEOT\n"))

    [letter] = list_dead_letters(engine)
    assert letter.reason == "unknown-class"
    assert "no class" in letter.error


def test_check_messages_are_counted_and_not_loaded(engine: Engine) -> None:
    loaded = load_now(engine, new_message(CHECK_CLASS, "hello"), new_message("SAM-check", ""))

    assert loaded == Loaded({}, dead_letters={}, checks=2, ignored_keys={})


def test_unknown_keys_are_counted_and_ignored(engine: Engine) -> None:
    records = [metric_result(colour="red"), metric_result(colour="blue", hostName="b.example.org")]

    loaded = load_now(engine, metric_message(*records))

    assert (loaded.rows, loaded.ignored_keys) == (2, {"colour": 2})


def test_an_empty_batch_loads_nothing(engine: Engine) -> None:
    assert load_now(engine) == Loaded({}, dead_letters={}, checks=0, ignored_keys={})


@pytest.mark.parametrize("class_name", ["METRICOUTPUT", "metricoutput", "MetricOutput"])
def test_class_names_are_compared_without_case(engine: Engine, class_name: str) -> None:
    body = metric_message().body.decode()

    assert load_now(engine, new_message(class_name, body)).rows == 1


BREAK: Mapping[str, Mapping[str, str]] = {
    "the trigger is gone": {
        "sqlite": "DROP TRIGGER metricOutput_insert",
        "postgresql": "DROP TRIGGER metricOutput_insert ON metricOutput",
    },
    "the view is gone": {
        "sqlite": "DROP VIEW metricOutput",
        "postgresql": "DROP VIEW metricOutput CASCADE",
    },
    "a table is gone": {
        "sqlite": "DROP TABLE metric_result",
        "postgresql": "ALTER TABLE metric_result RENAME TO elsewhere",
    },
}


@pytest.mark.parametrize("damage", BREAK)
@pytest.mark.parametrize("when", ["before", "after the catalogue was read"])
def test_messages_of_a_broken_class_are_parked_while_others_load(
    own_engine: Engine, damage: str, when: str
) -> None:
    group = new_message(
        "siteGroup",
        "siteName: S\ngroupName: G\ngroupType: region\nvalidFrom: 2026-11-01T00:00:00Z\nEOT\n",
    )
    message = metric_message(metric_result(), metric_result(metricStatus="FINE"))

    with acting_as("loader", own_engine) as loader:
        catalogue = Catalogue(loader)
        if when != "before":
            assert catalogue.find("metricOutput")
        execute(own_engine, BREAK[damage][own_engine.dialect.name])
        loaded = load(loader, catalogue, [message, group], NOW)

    assert (loaded.rows, loaded.dead_letters) == (1, {"class-broken": 1})
    assert reasons(own_engine) == [(0, "class-broken")]
    assert len(stored(own_engine, "siteGroup")) == 1


def test_a_sites_own_class_is_found_when_its_first_message_arrives(
    own_engine: Engine,
) -> None:
    message = new_message("note", "author: me\nwords: hello\ncolour: red\nEOT\n")

    with acting_as("loader", own_engine) as loader:
        catalogue = Catalogue(loader)
        before = load(loader, catalogue, [message], NOW)
        make_class_note(own_engine)
        loaded = load(loader, catalogue, [message], NOW)

    assert before.dead_letters == {"unknown-class": 1}

    assert (loaded.rows, loaded.ignored_keys) == (1, {"colour": 1})
    assert stored(own_engine, "note") == [{"author": "me", "words": "hello"}]


def make_class_note(engine: Engine) -> None:
    """A class without a column messageId."""
    execute(engine, "CREATE TABLE kept_note (author text, words text)")
    execute(engine, "CREATE VIEW note AS SELECT author, words FROM kept_note")
    into = "INSERT INTO kept_note (author, words) VALUES (NEW.author, NEW.words);"
    if engine.dialect.name == "sqlite":
        execute(engine, f"CREATE TRIGGER n INSTEAD OF INSERT ON note BEGIN {into} END")
        return
    execute(
        engine,
        "CREATE FUNCTION n() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS"
        f" $$ BEGIN {into} RETURN NEW; END $$",
    )
    execute(
        engine,
        "CREATE TRIGGER n INSTEAD OF INSERT ON note FOR EACH ROW EXECUTE FUNCTION n()",
    )
    execute(engine, "GRANT INSERT ON note TO sam_loader")


def test_a_result_that_is_too_old_is_a_dead_letter(engine: Engine) -> None:
    old = NOW - timedelta(days=4000)

    load_now(engine, metric_message(metric_result(timestamp=old.isoformat())))

    assert reasons(engine) == [(1, "too-old")]


def test_an_unreachable_database_is_reported_without_its_password(
    postgres: PostgresServer, postgres_url: str
) -> None:
    engine = make_engine(postgres_url.replace(f":{postgres.port}/", ":1/"))

    with pytest.raises(DatabaseAway) as caught:
        load_now(engine, results("a.example.org"))

    assert postgres.password not in str(caught.value)


def test_a_connection_lost_in_a_batch_stores_nothing(
    postgres: PostgresServer, postgres_url: str
) -> None:
    engine = make_engine(postgres_url)
    upgrade(engine)
    # The backend ends itself in the middle of the batch.
    execute(
        engine,
        """
        CREATE FUNCTION end_it() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
        BEGIN
            PERFORM pg_terminate_backend(pg_backend_pid());
            RETURN NEW;
        END $$
    """,
    )
    execute(
        engine,
        "CREATE TRIGGER end_it BEFORE INSERT ON metric_result"
        " FOR EACH ROW EXECUTE FUNCTION end_it()",
    )

    with pytest.raises(DatabaseAway):
        load_now(engine, results("a.example.org"))

    execute(engine, "DROP TRIGGER end_it ON metric_result")
    assert list_dead_letters(engine) == []
    assert load_now(engine, results("a.example.org")).rows == 1
    engine.dispose()


def test_a_read_only_database_counts_as_away(postgres_url: str) -> None:
    engine = make_engine(postgres_url)
    upgrade(engine)
    execute(engine, f"ALTER DATABASE {engine.url.database} SET default_transaction_read_only = on")
    engine.dispose()

    with pytest.raises(DatabaseAway):
        load_now(engine, results("a.example.org"))

    engine.dispose()


def test_a_deleted_sqlite_file_is_not_created_again(tmp_path: Path) -> None:
    file = tmp_path / "sam.db"
    engine = make_engine(f"sqlite:///{file}", create=True)
    upgrade(engine)
    engine.dispose()
    engine = make_engine(f"sqlite:///{file}")
    file.unlink()

    with pytest.raises(DatabaseAway):
        load_now(engine, results("a.example.org"))

    assert not file.exists()
    engine.dispose()


def test_nothing_is_committed_where_a_dead_letter_cannot_be_stored(own_engine: Engine) -> None:
    execute(own_engine, "ALTER TABLE dead_letter RENAME TO elsewhere")
    bad = metric_message(metric_result(metricStatus="FINE"))

    with pytest.raises(DatabaseAway):
        load_now(own_engine, results("a.example.org"), bad)

    assert hosts(own_engine) == []


def test_a_dead_letter_stores_any_headers_and_bytes(engine: Engine) -> None:
    headers = {
        "samMessageId": "i\x00d" * 2000,
        "odd": "\udc80 \x00",
        "messageClass": "no\x00\udc80",
    }

    loaded = load_now(engine, Message(headers, b"\x00\xff"))

    assert loaded.dead_letters == {"unknown-class": 1}
    [letter] = list_dead_letters(engine)
    assert show_dead_letter(engine, letter.dead_letter_id).body == b"\x00\xff"
    assert show_dead_letter(engine, letter.dead_letter_id).headers == headers
