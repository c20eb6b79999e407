"""`sam-db` on an SQLite file: arguments, output and errors."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sam_pipeline.schema.program.command import (
    BAD_DATA,
    CANNOT_CREATE,
    CONFIG,
    NO_INPUT,
    NO_PERMISSION,
    OK,
    UNAVAILABLE,
)
from sam_pipeline.sql.database.version import wanted_version
from tests.support.database.gocdb_files import document, service_endpoint, write
from tests.support.database.sam_db import SamDb

EARLY, LATE = "2026-01-05T22:00Z", "2026-01-07T00:00Z"
ADD = f"downtime add --site A --reason r --who jane --start {EARLY} --end {LATE}"


def execute(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def test_upgrade_creates_the_file_once(sam_db: SamDb) -> None:
    applied = {"database": sam_db.url, "version": wanted_version(), "applied": ["0001"]}
    assert sam_db.document("upgrade") == applied
    assert sam_db.document("upgrade") == {**applied, "applied": []}
    assert "already version 0001" in sam_db("upgrade").out
    assert "version 0001" in sam_db("current").out
    assert sam_db.document("check")["problems"] == []


def test_check_reports_every_problem_at_once_with_its_command(
    database: Path, sam_db: SamDb
) -> None:
    execute(database, "DROP TRIGGER siteGroup_insert", "DROP INDEX run_report_day")

    checked, as_json = sam_db("check"), sam_db("check", "--json")

    trigger = f"sqlite:///{database}: trigger siteGroup_insert is missing"
    assert (checked.code, as_json.code) == (CONFIG, CONFIG)
    assert checked.out.splitlines()[2:] == [trigger, "    sam-db repair"]
    index, other = as_json.json["problems"]
    assert other == {"problem": trigger, "repair": "sam-db repair"}
    assert index["repair"] is None  # tables are left as they are
    assert sam_db("classes").out.splitlines()[-1].endswith("no INSTEAD OF INSERT trigger")


def test_sql_prints_the_whole_schema_without_a_database(file: Path, sam_db: SamDb) -> None:
    printed = sam_db("sql")
    assert not file.exists()

    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(printed.out)
        connection.execute("PRAGMA journal_mode = WAL")
    assert sam_db("check").code == OK
    assert sam_db.document("upgrade")["applied"] == []


@pytest.mark.parametrize("command", ["current", "check", "classes", "upgrade"])
def test_an_unusable_database_is_one_clear_line(
    file: Path, sam_db: SamDb, empty_database: Path, command: str
) -> None:
    if command != "upgrade":
        missing = sam_db(command)
        assert (missing.code, missing.out) == (CONFIG, "")
        assert missing.err.startswith(f"sam-db: error: {file}: no such database")
        assert not file.exists()
        file.touch()
        empty = sam_db(command, "--json")
        assert empty.code == CONFIG
        assert "has no schema" in empty.err + empty.out
    file.write_bytes(empty_database.read_bytes())
    execute(file, "UPDATE alembic_version SET version_num = '0815'")
    newer = sam_db(command)
    assert newer.code == CONFIG
    assert "0815" in newer.err and wanted_version() in newer.err
    file.write_text("a letter to my aunt\n" * 100)
    other = sam_db(command)
    assert (other.code, other.err.count("\n")) == (CONFIG, 1)
    assert "file is not a database" in other.err
    assert file.read_text() == "a letter to my aunt\n" * 100


def test_where_the_database_cannot_be_made_written_or_reached_the_exit_code_says_so(
    database: Path, sam_db: SamDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = replace(sam_db, url=f"sqlite:///{database.parent}/absent/sam.db")("upgrade")
    server = replace(sam_db, url="postgresql+psycopg2://sam:secret@127.0.0.1:1/sam")("check")
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write everything
    refused = sam_db("check")

    assert absent.code == CANNOT_CREATE
    assert f"{database.parent}/absent does not exist" in absent.err
    assert server.code == UNAVAILABLE
    assert "127.0.0.1" in server.err and "secret" not in server.err
    assert refused.code == NO_PERMISSION
    assert str(database) in refused.err


def test_gocdb_has_counts_by_kind_and_a_dry_run_or_a_bad_file_changes_nothing(
    database: Path, sam_db: SamDb
) -> None:
    file = write(database.parent / "x.xml", document(service_endpoint()))
    command = ("import", "gocdb", "--endpoints", file)
    at = ("--at", "2026-01-01T00:00Z")

    [row] = sam_db.document(*command, *at, "--dry-run")["rows"]
    missing = sam_db(*command, "no.xml")
    bad = sam_db(*command, "--groups", write(database.parent / "bad.xml", "<results>"))
    result = sam_db.document(*command, *at)

    assert (row["class"], row["record"]["validFrom"]) == ("serviceEndpoint", "2026-01-01T00:00:00Z")
    assert (missing.code, "no.xml: no such file" in missing.err) == (NO_INPUT, True)
    assert (bad.code, "line 1: the file ends here" in bad.err) == (BAD_DATA, True)
    assert (result["at"], result["dry_run"]) == ("2026-01-01T00:00:00Z", False)
    counts = {"read": 1, "new": 1, "changed": 0, "ended": 0, "unchanged": 0, "kept": 0}
    assert result["kinds"] == [{"kind": "serviceEndpoint", **counts}]


def test_an_empty_sqlite_database_has_no_partitions_and_nothing_to_prune(
    database: Path, sam_db: SamDb
) -> None:
    assert sam_db.document("partitions") == []

    pruned = sam_db.document("prune", "--keep-results", "400d", "--keep-details", "60d")

    assert (pruned["results"]["rows"], pruned["audit"]["before"]) == (0, None)
    day = datetime.now(UTC).date() - timedelta(days=60)
    assert pruned["details"] == {"before": str(day), "rows": 0, "partitions": None, "bytes": None}


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("", "--help"),
        ("sql --roles", "SQLite has no roles"),
        ("sql --from 0000", "must be one of 0001"),
        ("prune", "--keep-results 400d"),
        ("prune --keep-results=60", "'60' is not an age"),
        *((f"partitions --ahead={n}", "expected 0 to 366") for n in ("-1", "367", "x", "9" * 5000)),
        ("import records --age-limit -3 a.txt", "--age-limit"),
        ("import csv --class metricOutput a.csv", "--class"),
        ("import csv --class siteGroup --delimiter :: a.csv", "--delimiter"),
        ("import gocdb", "--url or files are required"),
        ("import gocdb --url https://x --endpoints x", "--url or files are required"),
        ("import gocdb --url https://x --at 2026-01-01T00:00Z", "--at is for files"),
        ("import gocdb --endpoints x --window 2026-01-01..2026-01-02", "--window needs"),
        ("import gocdb --endpoints x --at 2999-01-01T00:00Z", "is in the future"),
        ("import gocdb --endpoints x --since 2999-01-01T00:00Z", "is after the snapshot"),
        ("import gocdb --downtimes x --window November", "is not a window"),
        (f"{ADD} --end {EARLY}", "is not after"),
        (f"{ADD} --start yesterday", "is not a time"),
        (f"{ADD} --host two/words", "is not a host name"),
        *((f"{ADD} --{key}=", f"--{key}: is empty") for key in ("id", "reason", "site")),
        ("downtime list --from 2026-01-02 --to 2026-01-01", "--to 2026-01-01 is before"),
    ],
)
def test_wrong_usage_is_reported_and_changes_nothing(
    database: Path, sam_db: SamDb, command: str, problem: str
) -> None:
    assert problem in sam_db.refusal(*command.split())
    assert sam_db.document("downtime", "list", "--all") == []


# Downtimes ----------------------------------------------------------------------------------------

POWER_CUT = ("downtime", "add", "--site", "A", "--reason", "power cut", "--who", "jane")
TIMES = ("--start", "2026-01-05T22:00Z", "--end", "2026-01-07T00:00Z")

# Reports begin with this day.
FIRST_RESULT = """
    INSERT INTO metricOutput (hostName, serviceFlavour, metricName, metricStatus, timestamp)
    VALUES ('ce01', 'CE', 'org.example.Ping', 'OK', '2026-01-02T00:00:00Z')
"""


@pytest.fixture
def first_result(database: Path) -> None:
    execute(database, FIRST_RESULT)


def test_add_prints_ids_days_that_are_due_and_a_row_for_each_flavour(
    first_result: None, sam_db: SamDb
) -> None:
    added = sam_db(*POWER_CUT, *TIMES)
    early = ("--start", "2025-12-30T00:00Z", "--end", "2026-01-04T00:00Z")
    answer = sam_db.document(
        *POWER_CUT, *early, "--host", "CE01.example.org", "--flavour", "CE,SRM"
    )

    downtime_id, due = added.out.splitlines()
    assert (added.code, due) == (OK, "due: 2026-01-05 2026-01-06")
    assert re.fullmatch(r"local-\d{8}-[0-9a-f]{8}", downtime_id)
    assert "site A is not in the topology" in added.err
    assert answer["due_days"] == ["2026-01-02", "2026-01-03"]
    rows = answer["downtimes"]
    assert [row["service_flavour"] for row in rows] == ["CE", "SRM"]
    expected = {"host_name": "ce01.example.org", "description": "power cut (jane)"}
    expected |= {"classification": "SCHEDULED", "severity": "OUTAGE", "source": "by hand"}
    assert rows[0] == rows[0] | expected | {"moved": False, "cancelled": False}


def test_cancel_ends_a_known_id_once(first_result: None, sam_db: SamDb) -> None:
    sam_db.document(*POWER_CUT, *TIMES, "--id", "X1")

    cancelled = sam_db.document("downtime", "cancel", "X1", "--who", "joe")
    again, unknown = sam_db("downtime", "cancel", "X1"), sam_db("downtime", "cancel", "X9")

    assert cancelled["due_days"] == ["2026-01-05", "2026-01-06"]
    assert cancelled["downtimes"][0]["cancelled"] is True
    assert cancelled["downtimes"][0]["description"] == "power cut (jane); cancelled (joe)"
    assert (again.code, again.out, "already cancelled" in again.err) == (OK, "", True)
    assert (unknown.code, "no downtime X9" in unknown.err) == (NO_INPUT, True)


def test_list_shows_coming_downtimes_or_those_of_the_given_days(
    first_result: None, sam_db: SamDb
) -> None:
    soon = datetime.now(UTC) + timedelta(days=1)
    coming = ("--start", f"{soon:%FT%RZ}", "--end", f"{soon + timedelta(days=1):%FT%RZ}")
    for name, times in (("PAST", TIMES), ("NEVER", TIMES), ("COMING", coming)):
        sam_db.document(*POWER_CUT, *times, "--id", name)
    sam_db.document("downtime", "cancel", "NEVER")

    def listed(options: str) -> set[str]:
        rows = sam_db.document("downtime", "list", *options.split())
        return {row["downtime_id"] for row in rows}

    assert listed("") == {"COMING"}
    assert listed("--all") == {"PAST", "NEVER", "COMING"}
    assert listed("--from 2026-01-06 --to 2026-01-06") == {"PAST"}
    assert listed("--from 2026-01-05 --to 2026-01-05 --all") == {"PAST", "NEVER"}
    assert listed("--from 2026-01-07") == listed("--site A") == {"COMING"}
    assert listed("--to 2026-01-04") == listed("--site B --all") == set()
