"""What operators do: the log of it, and downtimes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from sam_pipeline.schema.identity.identity import operator_identity
from sam_pipeline.schema.program.command import BAD_DATA, OK, USAGE
from sam_pipeline.schema.times import parse_time
from sam_pipeline.spark_jobs.inputs.announced import METRIC, Exclusion
from sam_pipeline.spark_jobs.runs import exclusions
from sam_pipeline.sql.cli import main
from sam_pipeline.sql.database.engine import write_transaction, writing
from sam_pipeline.sql.database.operations import (
    RecordedOperation,
    broken_links,
    login_name,
    operations,
    record_operation,
)
from sam_pipeline.sql.errors import DatabaseRefused, DowntimeRefused, NoSuchDowntime
from sam_pipeline.sql.loading.letters.dead_letter import (
    LetterFilter,
    drop_dead_letters,
    restore_dead_letters,
)
from sam_pipeline.sql.loading.letters.store import edit_dead_letter
from sam_pipeline.sql.loading.replay import replay_dead_letters
from sam_pipeline.sql.removal.prune import Bounds, prune
from sam_pipeline.sql.topology.downtime import (
    announce,
    announcement,
    cancel,
)
from sam_pipeline.sql.topology.view_rows import Row
from tests.support.builders import NOW, metric_message, metric_result
from tests.support.database.dialects import only_on
from tests.support.database.letters import load_now, only_letter
from tests.support.database.own_class import run
from tests.support.database.roles import acting_as
from tests.support.database.sam_db import url_of
from tests.support.database.sql_rows import (
    downtime,
    insert,
    query,
    stored,
)

ARGUMENTS = {"report": 'a "new" report', "reason": "Größe\n2\x00"}


def record(engine: Engine, command: str = "prune") -> None:
    with writing(engine) as connection:
        record_operation(connection, command, ARGUMENTS)


def chain(engine: Engine) -> list[RecordedOperation]:
    with acting_as("reader", engine) as reader:
        return list(operations(reader))


# The chain ------------------------------------------------------------------------------------


def test_an_operation_has_a_time_both_logins_and_its_arguments(engine: Engine) -> None:
    began = datetime.now(UTC).replace(microsecond=0)

    with acting_as("reporter", engine) as reporter:
        record(reporter, "run")

    [operation] = chain(engine)
    assert (operation.operation_id, operation.command) == (1, "run")
    assert json.loads(operation.arguments) == ARGUMENTS
    assert began <= parse_time(operation.happened_at) <= datetime.now(UTC)
    assert operation.os_login == login_name()
    on_sqlite = engine.dialect.name == "sqlite"
    assert operation.database_login == ("" if on_sqlite else "reporter_login")


def test_concurrent_operations_are_a_chain_without_gaps_even_after_a_rollback(
    engine: Engine,
) -> None:
    with pytest.raises(ZeroDivisionError), writing(engine) as connection:
        record_operation(connection, "seal", {})
        raise ZeroDivisionError

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(record, [engine] * 8, timeout=60))

    assert [operation.operation_id for operation in chain(engine)] == [*range(1, 9)]
    assert list(broken_links(chain(engine))) == []


OF_LOADER, OF_REPORTER = ("policy read", "dead-letter drop"), ("run", "exclusion add")


@only_on("postgresql")
@pytest.mark.parametrize(
    ("role", "own", "others"),
    [
        ("loader", OF_LOADER, (*OF_REPORTER, "seal", "prune", "anything")),
        ("reporter", OF_REPORTER, (*OF_LOADER, "seal", "revoke")),
    ],
)
def test_a_role_records_only_what_it_does(
    engine: Engine, role: str, own: Sequence[str], others: Sequence[str]
) -> None:
    with acting_as(role, engine) as own_engine:
        for command in own:
            record(own_engine, command)
        for command in others:
            with pytest.raises(DatabaseRefused):
                record(own_engine, command)

    assert [operation.command for operation in chain(engine)] == [*own]


@only_on("postgresql")
@pytest.mark.parametrize(
    "arguments", ['{"a": 1}', '{"a": {}}', "[]", "1", '{"a": ', f'{{"a": "{"x" * 66_000}"}}']
)
def test_arguments_that_are_not_a_few_texts_are_refused(engine: Engine, arguments: str) -> None:
    statement = text("SELECT record_operation('root', 'policy read', :arguments)")
    with acting_as("loader", engine) as loader:
        with pytest.raises(DBAPIError), write_transaction(loader) as connection:
            connection.execute(statement, {"arguments": arguments})
        long = dict.fromkeys("abcde", "\U0001f600" * 10_000)
        with writing(loader) as connection:
            record_operation(connection, "policy read", long)

    [operation] = chain(engine)
    assert "10000 characters" in json.loads(operation.arguments)["a"]


@pytest.mark.parametrize("arguments", ['{"a": 1, "b": {"c": null}}', "[" * 100_000, "", "null"])
def test_nothing_in_the_log_stops_its_reader(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: str,
) -> None:
    with writing(engine) as connection:
        row = "1, CURRENT_TIMESTAMP, 'x', 'x', 'forged', :arguments, '', ''"
        row = row if engine.dialect.name == "postgresql" else row.replace("CURRENT_TIMESTAMP", "0")
        bound = {"arguments": arguments}
        connection.execute(text(f"INSERT INTO operation VALUES ({row})"), bound)
    monkeypatch.setenv("SAM_DATABASE_URL", url_of(engine))

    for options in ([], ["--json"]):
        assert main(["audit", "list", *options]) == OK
        assert "forged" in capsys.readouterr().out
    assert main(["audit", "verify"]) == BAD_DATA


@pytest.mark.parametrize(
    "change", ["UPDATE operation SET command = 'x'", "DELETE FROM operation", "TRUNCATE operation"]
)
def test_not_even_the_owner_changes_operations(engine: Engine, change: str) -> None:
    record(engine)

    with pytest.raises(DBAPIError), write_transaction(engine) as connection:
        connection.execute(text(change))

    assert len(chain(engine)) == 1


def test_the_audit_command_shows_that_operations_were_changed_or_removed(
    own_engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SAM_DATABASE_URL", url_of(own_engine))
    for command in ("downtime add", "downtime cancel", "prune"):
        record(own_engine, command)

    def printed(*arguments: str, code: int = OK) -> str:
        assert main(["audit", *arguments]) == code
        return capsys.readouterr().out

    listed = json.loads(printed("list", "--json"))
    assert [entry["command"] for entry in listed] == ["downtime add", "downtime cancel", "prune"]
    assert listed[0]["arguments"] == ARGUMENTS
    assert "downtime" not in printed("list", "--limit", "1")
    digest = listed[-1]["digest"]
    printed("verify", "--expect", digest)
    with pytest.raises(SystemExit) as caught:
        main(["audit", "list", "--expect", "x"])
    assert caught.value.code == USAGE

    on_sqlite = own_engine.dialect.name == "sqlite"
    on = "" if on_sqlite else " ON operation"
    delete = ["DROP TRIGGER operation_delete"] if on_sqlite else []
    run(own_engine, f"DROP TRIGGER operation_change{on}", *delete)
    run(own_engine, "DELETE FROM operation WHERE operation_id = 3")
    printed("verify")
    printed("verify", "--expect", digest, code=BAD_DATA)
    run(own_engine, "UPDATE operation SET os_login = 'joe' WHERE operation_id = 2")
    assert printed("verify", code=BAD_DATA).startswith("operation 2: ")


# What is recorded -----------------------------------------------------------------------------


Recorded = Sequence[tuple[str, dict[str, str]]]
"""Commands, each with some of its arguments."""


def work_on_letters(engine: Engine) -> Recorded:
    load_now(engine, metric_message(metric_result(metricStatus="FINE")))
    letter = only_letter(engine).dead_letter_id
    selected = LetterFilter(ids=[letter], state=None)
    with acting_as("loader", engine) as loader:
        drop_dead_letters(loader, selected, NOW)
        drop_dead_letters(loader, selected, NOW)  # nothing is open any more
        restore_dead_letters(loader, selected, NOW)
        edited = edit_dead_letter(loader, letter, NOW, metric_message(metric_result()).body)
        list(replay_dead_letters(loader, [letter, edited], lambda: NOW))
    return [
        ("dead-letter drop", {"ids": str(letter), "letters": "1"}),
        ("dead-letter restore", {"ids": str(letter), "letters": "1"}),
        ("dead-letter edit", {"id": str(letter), "edited_as": str(edited)}),
        ("dead-letter replay", {"ids": str(edited)}),
    ]


def announce_and_cancel(engine: Engine) -> Recorded:
    announce(engine, rows(), NOW)
    cancel(engine, ["D1"], None, "wrong site", NOW)
    cancel(engine, ["D1"], None, "again", NOW)  # it is cancelled already
    return [
        ("downtime add", {"downtimeId": "D1", "siteName": "EXAMPLE-LCG2"}),
        ("downtime cancel", {"downtimeId": "D1", "endTime": "2026-11-20T08:00:00Z"}),
    ]


def exclude(engine: Engine) -> Recorded:
    exclusion = Exclusion(0, METRIC, "", "m", "A", "", "", 0, 3600, "broken probe", "jane")
    with acting_as("reporter", engine) as reporter:
        with writing(reporter) as connection:
            number = exclusions.add(connection, exclusion, 7200)
        with writing(reporter) as connection:
            exclusions.remove(connection, number, "joe", "repaired", 10800)
    return [
        ("exclusion add", {"metric_name": "m", "who": "jane", "end": "1970-01-01T01:00:00Z"}),
        ("exclusion remove", {"who": "joe", "reason": "repaired"}),
    ]


def prune_after_a_dry_run(engine: Engine) -> Recorded:
    bounds = Bounds(results=date(2026, 1, 1))
    prune(engine, bounds, dry_run=True)
    prune(engine, bounds)
    return [("prune", {"results_before": "2026-01-01"})]


@pytest.mark.parametrize(
    "act", [work_on_letters, announce_and_cancel, exclude, prune_after_a_dry_run]
)
def test_what_operators_change_is_recorded_with_its_values(
    engine: Engine, act: Callable[[Engine], Recorded]
) -> None:
    expected = act(engine)

    recorded = chain(engine)
    assert [entry.command for entry in recorded] == [command for command, _ in expected]
    for entry, (_, some) in zip(recorded, expected, strict=True):
        assert some.items() <= json.loads(entry.arguments).items()


# Downtimes ----------------------------------------------------------------------------------------


def rows(**changes: str) -> list[Row]:
    return announcement({**{k: str(v) for k, v in downtime().items()}, **changes}, NOW)


def counted(engine: Engine) -> list[tuple[str, ...]]:
    """The downtimes that reports read."""
    columns = "downtime_id, host_name, start_time, end_time"
    return query(engine, f"SELECT {columns} FROM report_downtime ORDER BY 2")


def test_a_downtime_is_announced_moved_ended_and_cancelled_even_within_a_second(
    engine: Engine,
) -> None:
    announce(engine, [*rows(description="power cut (jane)"), *rows(hostName="se01")], NOW)
    host, start, end = "ce01.example.org", "2026-11-20T08:00:00Z", "2026-11-20T10:00:00Z"
    assert counted(engine) == [("D1", host, start, end), ("D1", "se01", start, end)]
    operator = operator_identity(login_name())
    assert query(engine, "SELECT DISTINCT publisher FROM downtime") == [(operator,)]

    moved = {"startTime": "2026-11-17T23:59:59Z", "endTime": "2026-11-19T00:00:00Z"}
    [change] = announce(engine, rows(description="power cut (jane)", **moved), NOW).changes
    assert counted(engine)[0] == ("D1", host, *moved.values())
    assert change.days(NOW.date()) == {date(2026, 11, number) for number in (17, 18, 20)}

    announce(engine, rows(description="power cut (jane)"), NOW)
    cancel(engine, ["D1"], "2026-11-20T09:00:00Z", "ended (joe)", NOW)
    assert {row[3] for row in counted(engine)} == {"2026-11-20T09:00:00Z"}
    cancel(engine, ["D1"], None, "cancelled: wrong site (joe)", NOW)
    assert counted(engine) == []
    texts = [row["description"] for row in stored(engine, "downtime") if row["hostName"] == host]
    assert texts == ["power cut (jane); ended (joe); cancelled: wrong site (joe)"]
    assert cancel(engine, ["D1"], None, "cancelled (joe)", NOW).changes == []


def test_a_downtime_announced_in_the_future_can_be_changed(engine: Engine) -> None:
    insert(engine, "downtime", downtime(timestamp="2026-12-24T00:00:00Z"))

    cancel(engine, ["D1"], None, "cancelled (jane)", NOW)

    assert counted(engine) == []
    assert [row["timestamp"] for row in stored(engine, "downtime")] == ["2026-12-24T00:00:01Z"]


@pytest.mark.parametrize("end", ["2026-11-20T08:00:00Z", "2026-11-20T10:00:00Z"])
def test_an_end_outside_the_downtime_or_an_unknown_id_changes_nothing(
    engine: Engine, end: str
) -> None:
    announce(engine, rows(), NOW)
    long = {"startTime": "2026-11-19T00:00:00Z", "endTime": "2026-11-21T00:00:00Z"}
    announce(engine, rows(downtimeId="D2", **long), NOW)
    before = counted(engine)

    with pytest.raises(DowntimeRefused, match=f"D1 .*{end}"):
        cancel(engine, ["D2", "D1"], end, "ended (joe)", NOW)
    with pytest.raises(NoSuchDowntime, match="no downtime D9"):
        cancel(engine, ["D1", "D9"], None, "cancelled (joe)", NOW)

    assert counted(engine) == before
