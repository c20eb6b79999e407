"""Imports into either database: complete, repeated, and resumed."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from sam_pipeline.schema.errors import ConfigError
from sam_pipeline.schema.identity.identity import operator_identity
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.records.classes import DOWNTIME, MessageClass
from sam_pipeline.schema.records.input_file import InputFile, Position
from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.sql.database.engine import reading
from sam_pipeline.sql.database.operations import login_name
from sam_pipeline.sql.imports.records import (
    Checkpoint,
    Import,
    ImportTotals,
    limits_of_history,
    size_of,
    usable_view,
)
from sam_pipeline.sql.imports.table import Imported, import_table, opened_table
from sam_pipeline.sql.loading.catalogue import Catalogue
from sam_pipeline.sql.loading.letters.dead_letter import show_dead_letter
from sam_pipeline.sql.loading.load import decode_batch
from tests.support.builders import metric_result
from tests.support.database.letters import list_dead_letters
from tests.support.database.own_class import drop_trigger
from tests.support.database.own_class import run as run_sql
from tests.support.database.sql_rows import name_too_long_for, query, stored
from tests.support.database.with_schema import with_schema

RECORDS, BATCH = 800, 300
BAD = set(range(99, RECORDS, 100))
RECORDS_MODULE = "sam_pipeline.sql.imports.records"


class Killed(Exception):
    """As if the process ended here."""


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{RECORDS_MODULE}.BATCH_RECORDS", BATCH)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A file of RECORDS results, of which every hundredth is bad."""
    path = tmp_path / "history.txt"
    path.write_text("".join(map(_record, range(RECORDS))))
    return path


def _record(number: int) -> str:
    return write_wlcg(
        metric_result(
            hostName=f"ce{number:04}.example.org",
            timestamp=f"2009-02-{number % 28 + 1:02}T12:00:00Z",
            metricStatus="FINE" if number in BAD else "OK",
            summaryData=f"number {number}",
        )
    )


def job_of(engine: Engine, file: Path, restart: bool = False) -> Import:
    limits, state = limits_of_history(datetime.now(UTC)), file.parent / "state"
    return Import(engine, Catalogue(engine), "metricOutput", limits, Progress(), state, restart)


def run(engine: Engine, file: Path, restart: bool = False) -> ImportTotals:
    job = job_of(engine, file, restart)
    job.run(str(file))
    job.end()
    return job.totals


def is_complete(engine: Engine) -> bool:
    """Whether every record of `history` is exactly one row or dead letter."""
    rows = sorted(str(row["summaryData"]) for row in stored(engine, "metricOutput"))
    letters = list_dead_letters(engine)
    bodies = [show_dead_letter(engine, letter.dead_letter_id).body.decode() for letter in letters]
    bad = [body.split("summaryData: ")[1].split("\n")[0] for body in bodies]
    good = {*range(RECORDS)} - BAD
    return (rows, sorted(bad)) == tuple(sorted(f"number {n}" for n in each) for each in (good, BAD))


def run_until_killed(engine: Engine, file: Path) -> None:
    """Import until the process ends, just before it would save its second checkpoint."""
    save, number = Checkpoint.save, count(1)

    def counting(self: Checkpoint, *saved: Any) -> None:
        if next(number) == 2:
            raise Killed
        save(self, *saved)

    with pytest.raises(Killed), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "save", counting)
        run(engine, file)


def test_a_record_of_several_flavours_hides_no_refused_one(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "two.txt"
    several = metric_result(serviceFlavour="CE,SRM", timestamp="2009-02-01T12:00:00Z")
    file.write_text(write_wlcg(several) + write_wlcg({**several, "metricStatus": "FINE"}))

    for new in (2, 0):
        totals = run(engine, file)
        counts = totals.counts
        assert (totals.records, counts.rows, counts.duplicates) == (2, new, 2 - new)
        assert totals.refused == 1


def test_every_record_becomes_a_row_or_a_dead_letter_once(engine: Engine, history: Path) -> None:
    totals = run(engine, history)

    good = RECORDS - len(BAD)
    assert (totals.records, totals.counts.rows, totals.refused) == (RECORDS, good, len(BAD))
    assert totals.counts.dead_letters == {"bad-status": len(BAD)}
    assert is_complete(engine)
    first = min(letter.dead_letter_id for letter in list_dead_letters(engine))
    content = show_dead_letter(engine, first)
    lines = history.read_bytes().splitlines(keepends=True)
    assert content.headers["importFile"] == str(history)
    line = int(content.headers["importLine"])
    assert b"".join(lines[line - 1 :]).startswith(content.body)

    operator = operator_identity(login_name())
    assert query(engine, "SELECT DISTINCT publisher FROM metricOutput") == [(operator,)]
    audited = "SELECT consumer, sum(rows), sum(dead_letters) FROM load_audit GROUP BY consumer"
    assert query(engine, audited) == [("sam-db import", good, len(BAD))]

    again = run(engine, history)

    assert (again.records, again.resumed, again.counts.dead_letters) == (RECORDS, 0, {})
    assert (again.counts.rows, again.counts.duplicates) == (0, good)
    assert is_complete(engine)


def _append(history: Path) -> None:
    with history.open("a") as file:
        file.write("\n")


def _damage_state(history: Path) -> None:
    for path in (history.parent / "state").iterdir():
        path.write_text("{")


CHANGES: Sequence[Callable[[Path], object]] = [
    _append,
    lambda history: os.utime(history, ns=(0, 0)),
    _damage_state,
    lambda history: None,
]


@pytest.mark.parametrize("change", CHANGES, ids=["append", "touch", "damage", "restart"])
def test_a_checkpoint_of_a_changed_file_is_ignored(
    change: Callable[[Path], object], engine: Engine, history: Path
) -> None:
    run_until_killed(engine, history)
    change(history)

    assert run(engine, history, restart=change is CHANGES[-1]).resumed == 0
    assert is_complete(engine)


def test_a_checkpoint_of_a_recreated_database_is_ignored(own_engine: Engine, history: Path) -> None:
    """A new view on PostgreSQL; on SQLite an older copy of the same file."""
    view = usable_view(Catalogue(own_engine), "metricOutput").name
    state = history.parent / "state"

    def loaded() -> tuple[Position, ImportTotals]:
        return checkpoint.load(connection)

    with InputFile(str(history)) as file, reading(own_engine) as connection:
        checkpoint = Checkpoint(state, own_engine, view, file)
        checkpoint.save(Position(1, 1, 1), ImportTotals(1, 1), size_of(connection))
        before = loaded()
    if own_engine.dialect.name == "sqlite":
        [path] = state.iterdir()
        document = json.loads(path.read_text())
        path.write_text(json.dumps({**document, "size": document["size"] + 1}))
    else:
        [(definition,)] = query(own_engine, "SELECT pg_get_viewdef('metricoutput'::regclass)")
        create = f"CREATE VIEW metricoutput AS {definition}"
        run_sql(own_engine, "DROP VIEW metricoutput CASCADE", create)
    with InputFile(str(history)) as file, reading(own_engine) as connection:
        checkpoint = Checkpoint(state, own_engine, view, file)
        after = loaded()

    assert before == (Position(1, 1, 1), ImportTotals(1, 1, resumed=1))
    assert after == (Position(), ImportTotals())


def test_a_class_that_breaks_makes_no_dead_letters(own_engine: Engine, history: Path) -> None:
    job = job_of(own_engine, history)
    drop_trigger(own_engine, "metricOutput")

    with pytest.raises(ConfigError, match="repeat the command"):
        job.run(str(history))

    assert list_dead_letters(own_engine) == []


def _long(number: int) -> str:
    return write_wlcg(metric_result(hostName=f"ce{number}", detailsData="x" * 2000))


def test_batches_are_limited_in_bytes_too(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{RECORDS_MODULE}.BATCH_BYTES", 10_000)
    sizes: list[int] = []

    def counting(catalogue: Catalogue, messages: Sequence[Any], *more: Any) -> Any:
        sizes.append(len(messages))
        return decode_batch(catalogue, messages, *more)

    monkeypatch.setattr("sam_pipeline.sql.loading.load.decode_batch", counting)
    path = tmp_path / "long.txt"
    path.write_text("".join(map(_long, range(20))))

    run(engine, path)

    assert sizes == [4, 4, 4, 4, 4]


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
    with_schema(url).dispose()
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

    assert memory_mb(6_000) < memory_mb(1_000) + 10


# Tables


def import_csv(
    engine: Engine, path: Path, kind: MessageClass, rows: Sequence[str], keep_going: bool = False
) -> Imported:
    header = ",".join([*kind.required, "siteName"][: rows[0].count(",") + 1])
    path.write_text("\n".join([header, *rows]) + "\n")
    with opened_table(str(path), kind) as opened:
        return import_table(engine, Catalogue(engine), opened, keep_going)


@pytest.mark.parametrize("keeps_going", [False, True])
def test_a_line_that_only_the_database_refuses_rolls_the_table_back_unless_it_keeps_going(
    engine: Engine, tmp_path: Path, keeps_going: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sam_pipeline.sql.imports.table.BATCH_LINES", 2)
    long_name, period = (
        name_too_long_for("site", engine),
        "2010-01-02T00:00:00Z,2010-01-03T00:00:00Z",
    )
    lines = [f"{period},SCHEDULED,OUTAGE,{site}" for site in ("A", long_name, "C", long_name)]

    imported = import_csv(engine, tmp_path / "d.csv", DOWNTIME, lines, keeps_going)

    rows = 2 if keeps_going else 0
    assert ([each.line for each in imported.bad], imported.rows) == ([3, 5], rows)
    assert sorted(row["siteName"] for row in stored(engine, "downtime")) == ["A", "C"][:rows]
    assert list_dead_letters(engine) == []
