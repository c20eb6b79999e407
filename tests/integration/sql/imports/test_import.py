"""Imports into either database: complete, repeated, and resumed."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.identity import operator_identity
from sam_pipeline.schema.login import login_name
from sam_pipeline.schema.messages.message import Message
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.records.classes import DOWNTIME, SERVICE_ENDPOINT, SITE_GROUP, MessageClass
from sam_pipeline.schema.records.input_file import InputFile
from sam_pipeline.schema.records.splitter import Position
from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.sql.database.engine import reading, writing
from sam_pipeline.sql.imports.checkpoint import NOT_RESUMABLE, Checkpoint, ImportTotals, size_of
from sam_pipeline.sql.imports.records import Import, limits_of_history, usable_view
from sam_pipeline.sql.imports.table import Imported, import_table, opened_table
from sam_pipeline.sql.loading.batch import Batch
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.letters.dead_letter import show_dead_letter
from sam_pipeline.sql.loading.load import decode_batches
from tests.support.builders import metric_result
from tests.support.database.letters import list_dead_letters
from tests.support.database.sql_rows import insert, name_too_long_for, query, stored

RECORDS = 800
BAD = 8
BATCH = 300


class Killed(Exception):
    """As if the process ended here."""


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sam_pipeline.sql.imports.records.BATCH_RECORDS", BATCH)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A file of RECORDS results, of which every hundredth is bad."""
    path = tmp_path / "history.txt"
    path.write_text("".join(map(_record, range(RECORDS))))
    return path


def _record(number: int) -> str:
    status = "FINE" if number % 100 == 99 else "OK"
    return write_wlcg(
        metric_result(
            hostName=f"ce{number:04}.example.org",
            timestamp=f"2009-02-{number % 28 + 1:02}T12:00:00Z",
            metricStatus=status,
            summaryData=f"number {number}",
        )
    )


def run(engine: Engine, *files: Path, **changes: Any) -> ImportTotals:
    job = job_of(engine, files[0].parent / "state", **changes)
    for file in files:
        job.run(str(file))
    job.end()
    return job.totals


def job_of(
    engine: Engine, state: Path, class_name: str = "metricOutput", restart: bool = False
) -> Import:
    limits = limits_of_history(datetime.now(UTC))
    return Import(engine, Catalogue(engine), class_name, limits, Progress(), state, restart)


def summaries(engine: Engine) -> list[str]:
    return [str(row["summaryData"]) for row in stored(engine, "metricOutput")]


def bad_numbers(engine: Engine) -> list[int]:
    letters = list_dead_letters(engine)
    bodies = [show_dead_letter(engine, letter.dead_letter_id).body.decode() for letter in letters]
    return sorted(int(body.split("summaryData: number ")[1].split("\n")[0]) for body in bodies)


def is_complete(engine: Engine) -> bool:
    """Whether every record of `history` is exactly one row or dead letter."""
    bad = [number for number in range(RECORDS) if number % 100 == 99]
    good = {f"number {number}" for number in range(RECORDS)} - {f"number {n}" for n in bad}
    rows = summaries(engine)
    return (set(rows), len(rows)) == (good, len(good)) and bad_numbers(engine) == bad


def run_until_killed(engine: Engine, *files: Path, batches: int = 2) -> None:
    """Import until the process ends, just before it would save checkpoint number `batches`."""
    save, number = Checkpoint.save, count(1)

    def counting(self: Checkpoint, *saved: Any) -> None:
        if next(number) == batches:
            raise Killed
        save(self, *saved)

    with pytest.raises(Killed), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "save", counting)
        run(engine, *files)


def test_every_record_becomes_a_row_or_a_dead_letter(engine: Engine, history: Path) -> None:
    totals = run(engine, history)

    assert (totals.records, totals.rows, totals.refused) == (RECORDS, RECORDS - BAD, BAD)
    assert totals.dead_letters == {"bad-status": BAD}
    assert is_complete(engine)


def test_a_dead_letter_names_file_and_line(engine: Engine, history: Path) -> None:
    run(engine, history)

    first = min(list_dead_letters(engine), key=lambda letter: letter.dead_letter_id)
    content = show_dead_letter(engine, first.dead_letter_id)
    line = int(content.headers["importLine"])
    lines = history.read_bytes().splitlines(keepends=True)
    assert content.headers["importFile"] == str(history)
    assert b"".join(lines[line - 1 :]).startswith(content.body)


def test_a_repeat_changes_nothing(engine: Engine, history: Path) -> None:
    run(engine, history)
    before = stored(engine, "metricOutput")

    totals = run(engine, history)

    assert (totals.records, totals.resumed, totals.dead_letters) == (RECORDS, 0, {})
    # Without ORDER BY the rows may come in another order after autovacuum.
    assert sorted(map(str, stored(engine, "metricOutput"))) == sorted(map(str, before))
    assert len(list_dead_letters(engine)) == BAD


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_an_interrupted_import_resumes_at_its_checkpoint(
    engine: Engine, history: Path, packed: bool
) -> None:
    if packed:
        history.write_bytes(gzip.compress(history.read_bytes()))
    run_until_killed(engine, history)

    totals = run(engine, history)

    stored = totals.rows + totals.duplicates  # the last batch was committed without a checkpoint
    assert (totals.records, stored, totals.refused) == (RECORDS, RECORDS - BAD, BAD)
    assert (totals.resumed, totals.duplicates > 0) == (BATCH, True)
    assert is_complete(engine)


def test_completed_files_are_not_imported_again(engine: Engine, history: Path) -> None:
    first = history.with_name("first.txt")
    first.write_text(_record(0))
    run_until_killed(engine, first, history, batches=3)

    totals = run(engine, first, history)

    assert totals.resumed == 1 + BATCH
    assert is_complete(engine)
    assert list(history.parent.glob("state/*")) == []


def _append(history: Path) -> None:
    with history.open("a") as file:
        file.write("\n")


def _touch(history: Path) -> None:
    os.utime(history, ns=(0, 0))


def _damage_state(history: Path) -> None:
    for path in (history.parent / "state").iterdir():
        path.write_text("{")


@pytest.mark.parametrize("change", [_append, _touch, _damage_state])
def test_a_checkpoint_of_a_changed_file_is_ignored(
    change: Callable[[Path], None], engine: Engine, history: Path
) -> None:
    run_until_killed(engine, history)
    change(history)

    assert run(engine, history).resumed == 0
    assert is_complete(engine)


def test_restart_ignores_the_checkpoint(engine: Engine, history: Path) -> None:
    run_until_killed(engine, history)

    assert run(engine, history, restart=True).resumed == 0
    assert is_complete(engine)


def test_a_checkpoint_of_a_recreated_database_is_ignored(own_engine: Engine, history: Path) -> None:
    view = usable_view(Catalogue(own_engine), "metricOutput").name
    with InputFile(str(history)) as file, reading(own_engine) as connection:
        old = Checkpoint(history.parent / "state", own_engine, view, file)
        old.save(Position(1, 1, 1), ImportTotals(1, 1), size_of(connection))
        before = old.load(connection)
    _make_view_again(own_engine)
    with InputFile(str(history)) as file, reading(own_engine) as connection:
        new = Checkpoint(history.parent / "state", own_engine, view, file)
        after = new.load(connection)

    assert before == (Position(1, 1, 1), ImportTotals(1, 1, resumed=1))
    assert after == (Position(), ImportTotals())


def test_an_import_that_cannot_identify_the_server_is_only_not_resumable(
    engine: Engine, history: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sam_pipeline.sql.imports.checkpoint._POSTGRESQL", text("SELECT hidden()"))

    run(engine, history)

    assert is_complete(engine)
    assert (NOT_RESUMABLE in caplog.text) == (engine.dialect.name == "postgresql")


def _make_view_again(engine: Engine) -> None:
    """A new view on PostgreSQL; on SQLite an older copy of the same file."""
    if engine.dialect.name == "sqlite":
        for path in Path(engine.get_execution_options()["sam_file"]).parent.glob("state/*"):
            document = json.loads(path.read_text())
            path.write_text(json.dumps({**document, "size": document["size"] + 1}))
        return
    with writing(engine) as connection:
        definition = connection.scalar(text("SELECT pg_get_viewdef('metricoutput'::regclass)"))
        connection.execute(text("DROP VIEW metricoutput CASCADE"))
        connection.execute(text(f"CREATE VIEW metricoutput AS {definition}"))


def test_json_with_values_of_any_kind_is_imported(engine: Engine, tmp_path: Path) -> None:
    records = [
        metric_result(hostName=name, detailsData='a\n"b"\tü €\nEOT\nx', siteName="'; SELECT 1")
        for name in ("a", "b")
    ]
    path = tmp_path / "records.json"
    path.write_text("\n".join(map(json.dumps, records)))

    run(engine, path)

    rows = stored(engine, "metricOutput")
    assert [row["detailsData"] for row in rows] == [records[0]["detailsData"]] * 2
    assert all(str(row["messageId"]).startswith("import-") for row in rows)
    operator = operator_identity(login_name())
    assert query(engine, "SELECT DISTINCT publisher FROM metricOutput") == [(operator,)]


def test_any_class_can_be_imported(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "groups.txt"
    path.write_text(
        "siteName: A\ngroupName: N\ngroupType: t\nvalidFrom: 2010-01-01T00:00:00Z\nEOT\n"
    )

    assert run(engine, path, class_name="siteGroup").rows == 1

    assert [row["siteName"] for row in stored(engine, "siteGroup")] == ["A"]


def test_a_class_that_breaks_makes_no_dead_letters(own_engine: Engine, history: Path) -> None:
    job = job_of(own_engine, history.parent / "state")
    with writing(own_engine) as connection:
        on = " ON metricOutput" if own_engine.dialect.name == "postgresql" else ""
        name = _trigger(own_engine)
        connection.execute(text(f"DROP TRIGGER {name}{on}"))

    with pytest.raises(ConfigError, match="repeat the command"):
        job.run(str(history))

    assert list_dead_letters(own_engine) == []


def _trigger(engine: Engine) -> str:
    if engine.dialect.name == "sqlite":
        return "metricOutput_insert"
    statement = (
        "SELECT tgname FROM pg_trigger WHERE tgrelid = 'metricoutput'::regclass"
        " AND tgtype & 68 = 68 AND NOT tgisinternal"
    )
    with reading(engine) as connection:
        return str(connection.scalar(text(statement)))


def table(path: Path, message_class: MessageClass, rows: Sequence[str]) -> Path:
    header = ",".join([*message_class.required, "siteName"][: rows[0].count(",") + 1])
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def import_csv_file(
    engine: Engine, path: Path, message_class: MessageClass, keep_going: bool = False
) -> Imported:
    with opened_table(str(path), message_class) as opened:
        return import_table(engine, Catalogue(engine), opened, keep_going)


GOOD = "EXAMPLE,ce{}.example.org,CE,2010-01-01T00:00:00Z"


def test_a_table_is_stored_and_a_repeat_changes_nothing(engine: Engine, tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", SERVICE_ENDPOINT, [GOOD.format(n) for n in range(2000)])

    first = import_csv_file(engine, path, SERVICE_ENDPOINT)
    rows = stored(engine, "serviceEndpoint")
    import_csv_file(engine, path, SERVICE_ENDPOINT)

    assert (first.lines, first.rows, first.bad) == (2000, 2000, [])
    assert len(rows) == 2000
    assert stored(engine, "serviceEndpoint") == rows


def downtimes(engine: Engine) -> list[str]:
    """Four lines, of which only the database refuses the second and the fourth."""
    long_name = name_too_long_for("site", engine)
    period = "2010-01-02T00:00:00Z,2010-01-03T00:00:00Z"
    return [f"{period},SCHEDULED,OUTAGE,{site}" for site in ("A", long_name, "C", long_name)]


def test_a_line_that_only_the_database_refuses_rolls_the_table_back(
    engine: Engine, tmp_path: Path
) -> None:
    path = table(tmp_path / "d.csv", DOWNTIME, downtimes(engine))

    imported = import_csv_file(engine, path, DOWNTIME)

    assert [bad.line for bad in imported.bad] == [3, 5]
    assert (imported.rows, stored(engine, "downtime"), list_dead_letters(engine)) == (0, [], [])


def test_keep_going_stores_the_other_lines(engine: Engine, tmp_path: Path) -> None:
    path = table(tmp_path / "d.csv", DOWNTIME, downtimes(engine))

    imported = import_csv_file(engine, path, DOWNTIME, keep_going=True)

    assert ([bad.line for bad in imported.bad], imported.rows) == ([3, 5], 2)
    assert sorted(str(row["siteName"]) for row in stored(engine, "downtime")) == ["A", "C"]
    assert list_dead_letters(engine) == []


def test_a_very_long_table_is_stored_in_batches(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sam_pipeline.sql.imports.table.ONE_TRANSACTION_LINES", 3)
    monkeypatch.setattr("sam_pipeline.sql.imports.table.BATCH_LINES", 2)
    lines = downtimes(engine)
    path = table(tmp_path / "d.csv", DOWNTIME, [lines[0], lines[2], *lines])

    imported = import_csv_file(engine, path, DOWNTIME)

    assert ([bad.line for bad in imported.bad], imported.rows) == ([5], 2)
    assert len(stored(engine, "downtime")) == 2


def test_values_of_a_table_are_stored_unchanged(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_bytes(
        b"\xef\xbb\xbfSITENAME,starttime,endTime,classification,severity,description,hostName\r\n"
        b'A,2010-01-02 00:00:00Z,1262476800,SCHEDULED,OUTAGE,"two\r\nlines, ""quoted"" '
        b"\xe2\x82\xac'; SELECT\",\r\n"
    )

    imported = import_csv_file(engine, path, DOWNTIME)

    [row] = stored(engine, "downtime")
    assert imported.bad == []
    assert row["startTime"] == "2010-01-02T00:00:00Z"
    assert row["endTime"] == "2010-01-03T00:00:00Z"
    assert row["description"] == 'two\nlines, "quoted" €\'; SELECT'
    assert "hostName" not in row


def test_a_table_and_an_insert_store_the_same_row(engine: Engine, tmp_path: Path) -> None:
    path = table(tmp_path / "g.csv", SITE_GROUP, ["EXAMPLE,North,federation,2010-01-01T00:00:00Z"])
    import_csv_file(engine, path, SITE_GROUP)
    by_table = [{**row, "messageId": ""} for row in stored(engine, "siteGroup")]

    group = {"siteName": "EXAMPLE", "groupName": "North", "groupType": "federation"}
    insert(engine, "siteGroup", {**group, "validFrom": "2010-01-01T00:00:00Z"})

    assert [{**row, "messageId": ""} for row in stored(engine, "siteGroup")] == by_table


MEASURED = """
import resource, sys
from sam_pipeline.sql.cli import main
code = main(["import", "records", "--json", *sys.argv[1:]])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, file=sys.stderr)
sys.exit(code)
"""


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Measured: 200 000 records (70 MB) and 20 000 records both need 68 MB."""
    url = f"sqlite:///{tmp_path}/sam.db"
    environment = {**os.environ, "SAM_DATABASE_URL": url, "STATE_DIRECTORY": str(tmp_path)}

    def memory_mb(records: int) -> int:
        path = tmp_path / f"{records}.txt.gz"
        with gzip.open(path, "wt") as file:
            file.writelines(map(_long, range(records)))
        command = [sys.executable, "-c", MEASURED, str(path)]
        process = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert process.returncode == 0, process.stderr
        answer = json.loads(process.stdout)
        assert answer["rows"] + answer["duplicates"] == records
        return int(process.stderr.splitlines()[-1])

    subprocess.run(
        [sys.executable, "-m", "sam_pipeline.sql", "upgrade"],
        env=environment,
        check=True,
        capture_output=True,
    )

    assert memory_mb(10_000) - memory_mb(3_000) < 10


def _long(number: int) -> str:
    return write_wlcg(metric_result(hostName=f"ce{number}", detailsData="x" * 2000))


def test_batches_are_limited_in_bytes_too(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sam_pipeline.sql.imports.records.BATCH_BYTES", 10_000)
    sizes: list[int] = []

    def counting(catalogue: Catalogue, messages: Sequence[Message], *more: Any) -> Iterator[Batch]:
        sizes.append(len(messages))
        return decode_batches(catalogue, messages, *more)

    monkeypatch.setattr("sam_pipeline.sql.loading.load.decode_batches", counting)
    path = tmp_path / "long.txt"
    path.write_text("".join(map(_long, range(20))))

    run(engine, path)

    assert sizes == [4, 4, 4, 4, 4]
