"""Imports of history: after kills at any time every record is stored exactly once."""

from __future__ import annotations

import gzip
import os
import random
import signal
from pathlib import Path

import pytest

from sam_pipeline.schema.records.text import write_wlcg
from tests.services.postgres import PostgresServer, fresh_database
from tests.support.builders import metric_result
from tests.support.commands import Workplace, embedded
from tests.support.consumer.site import eventually
from tests.support.reports.stored import query

RECORDS = 20_000
BAD = {number for number in range(RECORDS) if number % 500 == 7}
KILLS = 4


@pytest.fixture(params=["sqlite", "postgresql"])
def workplace(request: pytest.FixtureRequest, tmp_path: Path) -> Workplace:
    if request.param == "sqlite":
        return embedded(tmp_path)
    server: PostgresServer = request.getfixturevalue("postgres")
    workplace = Workplace(
        tmp_path, broker=f"spool://{tmp_path}/spool", database=fresh_database(server)
    ).write_configuration()
    workplace.succeed("sam-db", "upgrade")
    return workplace


def test_killed_imports_resume_and_store_every_record_once(workplace: Workplace) -> None:
    half = RECORDS // 2
    text = "".join(map(_record, range(half)))
    workplace.write("old.txt", text)
    packed = workplace.directory / "new.txt.gz"
    packed.write_bytes(gzip.compress("".join(map(_record, range(half, RECORDS))).encode()))
    command = ("sam-db", "import", "records", "old.txt", "new.txt.gz", "--json")

    survived = [_kill_while_it_imports(workplace, command, number) for number in range(KILLS)]
    last = workplace.run(*command)

    assert last.code == 65, str(last)
    facts = last.json
    stored = facts["rows"] + facts["duplicates"]  # the last batch may have been repeated
    assert (facts["records"], stored) == (RECORDS, RECORDS - len(BAD))
    assert facts["refused"] == len(BAD)
    assert facts["resumed"] >= survived[-1] - 1000
    rows, dead = _rows(workplace), _dead_letters(workplace)
    assert (len(rows), len(dead)) == (RECORDS - len(BAD), len(BAD))
    assert set(rows) == set(range(RECORDS)) - BAD
    assert set(dead) == BAD


def test_a_repeated_import_changes_nothing(workplace: Workplace) -> None:
    workplace.write("history.txt", "".join(map(_record, range(1_500))))
    first = workplace.run("sam-db", "import", "records", "history.txt", "--json")

    repeated = workplace.run("sam-db", "import", "records", "history.txt", "--json")

    assert (first.code, repeated.code) == (65, 65)
    assert first.json["dead_letters"] == {"bad-status": 3}
    assert (first.json["rows"], first.json["duplicates"]) == (1_497, 0)
    assert repeated.json["dead_letters"] == {}
    assert (repeated.json["rows"], repeated.json["duplicates"]) == (0, 1_497)
    assert sorted(_rows(workplace)) == sorted(set(range(1_500)) - BAD)
    assert sorted(_dead_letters(workplace)) == [7, 507, 1007]


def test_an_unreachable_database_is_reported(tmp_path: Path) -> None:
    workplace = Workplace(
        tmp_path, broker=f"spool://{tmp_path}/spool", database="postgresql://sam@127.0.0.1:1/sam"
    ).write_configuration()
    workplace.write("history.txt", _record(0))

    answer = workplace.run("sam-db", "import", "records", "history.txt")

    assert answer.code == 69
    assert "127.0.0.1" in answer.err


def _kill_while_it_imports(workplace: Workplace, command: tuple[str, ...], number: int) -> int:
    """Kill the import in its kill's share of the records; return the number of stored records."""
    chance = random.Random(number)
    enough = RECORDS * (number + chance.random()) / (KILLS + 2)
    with workplace.running(*command) as process:
        eventually(lambda: _stored(workplace) > enough)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    return _stored(workplace)


def _record(number: int) -> str:
    return write_wlcg(
        metric_result(
            hostName=f"ce{number % 100}.example.org",
            timestamp=f"2011-03-{number // 1000 + 1:02}T{number // 100 % 10:02}:00:00Z",
            metricStatus="SPLENDID" if number in BAD else "OK",
            summaryData=f"number {number}",
        )
    )


def _stored(workplace: Workplace) -> int:
    statement = (
        "SELECT (SELECT count(*) FROM metricOutput) + (SELECT count(*) FROM dead_letter) AS n"
    )
    return int(query(workplace.database, statement)[0]["n"])


def _rows(workplace: Workplace) -> list[int]:
    rows = query(workplace.database, "SELECT summaryData AS summary FROM metricOutput")
    return [int(row["summary"].removeprefix("number ")) for row in rows]


def _dead_letters(workplace: Workplace) -> list[int]:
    rows = query(workplace.database, "SELECT body FROM dead_letter")
    bodies = [bytes(row["body"]).decode() for row in rows]
    return [int(body.split("summaryData: number ")[1].split("\n")[0]) for body in bodies]
