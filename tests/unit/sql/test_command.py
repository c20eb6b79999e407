"""`sam-db` on an SQLite file: arguments, output and errors."""

from __future__ import annotations

import gzip
import json
import os
import re
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sam_pipeline.schema.program.command import (
    BAD_DATA,
    CANNOT_CREATE,
    CONFIG,
    INTERRUPTED,
    NO_INPUT,
    NO_PERMISSION,
    OK,
    UNAVAILABLE,
    USAGE,
)
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.records.classes import DOWNTIME, SITE_GROUP
from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.sql.database.version import wanted_version
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.records import NOT_RESUMABLE
from sam_pipeline.sql.imports.table import read_header
from tests.support.builders import metric_result
from tests.support.database.gocdb_files import document, service_endpoint
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
    assert "version 0001" in sam_db("version").out
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
    assert sam_db("class", "list").out.splitlines()[-1].endswith("no INSTEAD OF INSERT trigger")


def test_sql_prints_the_whole_schema_without_a_database(file: Path, sam_db: SamDb) -> None:
    printed = sam_db("sql")
    assert not file.exists()

    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(printed.out)
        connection.execute("PRAGMA journal_mode = WAL")
    assert sam_db("check").code == OK
    assert sam_db.document("upgrade")["applied"] == []


@pytest.mark.parametrize("command", ["version", "check", "class list", "upgrade"])
def test_an_unusable_database_is_one_clear_line(
    file: Path, sam_db: SamDb, empty_database: Path, command: str
) -> None:
    if command != "upgrade":
        missing = sam_db(*command.split())
        assert (missing.code, missing.out) == (CONFIG, "")
        assert missing.err.startswith(f"sam-db: error: {file}: no such database")
        assert not file.exists()
        file.touch()
        empty = sam_db(*command.split(), "--json")
        assert empty.code == CONFIG
        assert "has no schema" in empty.err + empty.out
    file.write_bytes(empty_database.read_bytes())
    execute(file, "UPDATE alembic_version SET version_num = '0815'")
    newer = sam_db(*command.split())
    assert newer.code == CONFIG
    assert "0815" in newer.err and wanted_version() in newer.err
    file.write_text("a letter to my aunt\n" * 100)
    other = sam_db(*command.split())
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
    file = write(sam_db, "x.xml", document(service_endpoint()))
    command = ("import", "gocdb", "--endpoints", file)
    at = ("--at", "2026-01-01T00:00Z")

    [row] = sam_db.document(*command, *at, "--dry-run")["rows"]
    missing = sam_db(*command, "no.xml")
    bad = sam_db(*command, "--groups", write(sam_db, "bad.xml", "<results>"))
    result = sam_db.document(*command, *at)

    assert (row["class"], row["record"]["validFrom"]) == ("serviceEndpoint", "2026-01-01T00:00:00Z")
    assert (missing.code, "no.xml: no such file" in missing.err) == (NO_INPUT, True)
    assert (bad.code, "line 1: the file ends here" in bad.err) == (BAD_DATA, True)
    assert (result["at"], result["dry_run"]) == ("2026-01-01T00:00:00Z", False)
    counts = {"read": 1, "new": 1, "changed": 0, "ended": 0, "unchanged": 0, "kept": 0}
    assert result["kinds"] == [{"kind": "serviceEndpoint", **counts}]


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("", "help COMMAND"),
        ("sql --roles", "SQLite has no roles"),
        ("sql --from 0000", "must be one of 0001"),
        ("prune --keep-results=60", "'60' is not an age"),
        *(
            (f"partition create --ahead={n}", "expected 1d to ")
            for n in ("-1d", "0d", "7", "367d", "x", "9" * 5000)
        ),
        ("archive write", "name the days"),
        ("archive verify --due --day today", "--due chooses the days"),
        ("archive list --to yesterday", "--to needs --from"),
        ("archive write --since today", "is after --to"),  # by default yesterday
        ("import records --age-limit -3 a.txt", "--age-limit"),
        ("import csv --class metricOutput a.csv", "--class"),
        ("import gocdb", "--url or files are required"),
        ("import gocdb --url https://x --at 2026-01-01T00:00Z", "--at is for files"),
        ("import gocdb --endpoints x --window 2026-01-01..2026-01-02", "--window needs"),
        ("import gocdb --endpoints x --at 2999-01-01T00:00Z", "is in the future"),
        ("import gocdb --endpoints x --since 2999-01-01T00:00Z", "is after the snapshot"),
        ("import gocdb --downtimes x --window November", "is not a window"),
        (f"{ADD} --end {EARLY}", "is not after"),
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
def with_result(database: Path, sam_db: SamDb) -> SamDb:
    execute(database, FIRST_RESULT)
    return sam_db


def test_add_prints_ids_days_that_are_due_and_a_row_for_each_flavour(with_result: SamDb) -> None:
    added = with_result(*POWER_CUT, *TIMES)
    early = ("--start", "2025-12-30T00:00Z", "--end", "2026-01-04T00:00Z")
    answer = with_result.document(
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
    expected |= {"classification": "SCHEDULED", "severity": "OUTAGE", "source": "hand"}
    assert rows[0] == rows[0] | expected | {"moved": False, "cancelled": False}


def test_a_downtime_with_a_known_id_is_ended_and_cancelled_once(with_result: SamDb) -> None:
    with_result.document(*POWER_CUT, *TIMES, "--id", "X1")

    early = "2026-01-06T12:00Z"
    ended = with_result.document("downtime", "end", "X1", "--at", early, "--who", "joe")
    outside = with_result("downtime", "end", "X1")
    cancelled = with_result.document("downtime", "cancel", "X1", "--who", "joe")
    again, unknown = (
        with_result("downtime", "cancel", "X1"),
        with_result("downtime", "cancel", "X9"),
    )

    assert ended["due_days"] == ["2026-01-05", "2026-01-06"]
    assert ended["downtimes"][0]["end_time"] == "2026-01-06T12:00:00Z"
    assert (outside.code, "can't be ended at" in outside.err) == (USAGE, True)
    assert cancelled["due_days"] == ["2026-01-05", "2026-01-06"]
    assert cancelled["downtimes"][0]["cancelled"] is True
    assert cancelled["downtimes"][0]["description"] == (
        "power cut (jane); ended (joe); cancelled (joe)"
    )
    assert (again.code, again.out, "already cancelled" in again.err) == (OK, "", True)
    assert (unknown.code, "no downtime X9" in unknown.err) == (NO_INPUT, True)


def test_list_shows_coming_downtimes_or_those_of_the_given_days(with_result: SamDb) -> None:
    soon = datetime.now(UTC) + timedelta(days=1)
    coming = ("--start", f"{soon:%FT%RZ}", "--end", f"{soon + timedelta(days=1):%FT%RZ}")
    for name, times in (("PAST", TIMES), ("NEVER", TIMES), ("COMING", coming)):
        with_result.document(*POWER_CUT, *times, "--id", name)
    with_result.document("downtime", "cancel", "NEVER")

    def listed(options: str) -> set[str]:
        rows = with_result.document("downtime", "list", *options.split())
        return {row["downtime_id"] for row in rows}

    assert listed("") == {"COMING"}
    assert listed("--all") == {"PAST", "NEVER", "COMING"}
    assert listed("--from 2026-01-06 --to 2026-01-06") == {"PAST"}
    assert listed("--from 2026-01-05 --to 2026-01-05 --all") == {"PAST", "NEVER"}
    assert listed("--from 2026-01-07") == listed("--site A") == {"COMING"}
    assert listed("--to 2026-01-04") == listed("--site B --all") == set()


# Imports ------------------------------------------------------------------------------------------

GROUPS = "siteName,groupName,groupType,validFrom\n"
GROUP = "A,North,federation,2026-11-01T00:00:00Z\n"
IMPORT, TABLE = ("import", "records"), ("import", "csv", "--class", "siteGroup")


@pytest.fixture
def db(database: Path, sam_db: SamDb) -> SamDb:
    """Commands on a database with a schema."""
    return sam_db


def rows(db: SamDb, view: str, columns: str = "*") -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(db.directory / "sam.db")) as connection:
        return connection.execute(f"SELECT {columns} FROM {view}").fetchall()


def counts(db: SamDb) -> tuple[int, int]:
    """The numbers of results and of dead letters."""
    return len(rows(db, "metricOutput")), len(rows(db, "dead_letter"))


def write(db: SamDb, name: str, text: str | bytes) -> str:
    (db.directory / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return name


def results(*hosts: str, **changes: str) -> str:
    return "".join(write_wlcg(metric_result(hostName=host, **changes)) for host in hosts)


BAD = results("bad", metricStatus="FINE")


def test_records_of_several_files_and_forms_become_rows(db: SamDb) -> None:
    text = write(db, "a.txt", results("a", "b", colour="blue") + BAD)
    packed = write(db, "b.gz", gzip.compress(json.dumps([metric_result()]).encode()))

    done = db(*IMPORT, "--json", text, packed, text)  # the repeated file counts once

    facts = done.json
    assert (done.code, facts["files"], facts["ignored_keys"]) == (
        *(BAD_DATA, ["a.txt", "b.gz"]),
        {"colour": 2},
    )
    assert (facts["records"], facts["rows"], facts["dead_letters"]) == (4, 3, {"bad-status": 1})
    assert db(*IMPORT, text).code == BAD_DATA  # and makes no second dead letter
    other = gzip.compress(f"{results('c')}\n{BAD}".encode())
    db(*IMPORT, write(db, "same.gz", other))  # nor does the same record elsewhere
    assert counts(db) == (4, 1)
    assert db(*IMPORT, "--class", "metricOutptu", text).code == USAGE
    assert counts(db) == (4, 1)


def test_a_dry_run_lists_bad_records_and_writes_nothing(db: SamDb) -> None:
    done = db(*IMPORT, "--dry-run", write(db, "a.txt", results("a") + BAD))

    problem, _ = done.out.splitlines()
    assert done.code == BAD_DATA
    assert problem.startswith("a.txt:11: bad-status: metricStatus 'FINE'")
    assert counts(db) == (0, 0)
    assert not (db.directory / "state").exists()


def test_standard_input_and_a_named_pipe_are_imported(db: SamDb) -> None:
    pipe = db.directory / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(results("a")))
    writer.start()

    assert db(*IMPORT, "pipe").code == OK
    writer.join()
    assert db(*IMPORT, "-", stdin=results("b")).code == OK
    assert db(*TABLE, "-", stdin=GROUPS + GROUP).code == OK

    assert counts(db) == (2, 0)
    assert len(rows(db, "siteGroup")) == 1


def test_an_interrupted_import_says_that_it_can_resume(
    db: SamDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    file = write(db, "a.txt", results("a"))
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "show", interrupt)
        interrupted = db(*IMPORT, file)

    assert interrupted.code == INTERRUPTED
    assert "interrupted: 1 record imported" in interrupted.err
    answer = db.document(*IMPORT, file)
    assert (answer["records"], answer["rows"], answer["resumed"]) == (1, 1, 1)


def test_files_that_cannot_be_read_have_exit_codes(
    db: SamDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = db(*IMPORT, write(db, "a.txt", results("a")), "b.txt")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    # root may read everything
    monkeypatch.setattr("sam_pipeline.schema.records.input_file.open", refuse, raising=False)
    denied, table = db(*IMPORT, "a.txt"), db(*TABLE, "a.csv")

    assert (missing.code, denied.code, table.code) == (NO_INPUT, NO_PERMISSION, NO_PERMISSION)
    assert counts(db) == (0, 0)


def test_a_truncated_gzip_is_reported_and_imported_up_to_its_end(db: SamDb) -> None:
    packed = gzip.compress(results(*(f"ce{number}" for number in range(500))).encode(), 1)

    done = db(*IMPORT, write(db, "a.gz", packed[: len(packed) // 2]), "--json")

    assert (done.code, len(done.json["problems"])) == (BAD_DATA, 1)
    stored, dead = counts(db)
    assert (0 < stored < 500, dead) == (True, 0)


def test_history_is_accepted_within_limits_and_the_future_is_not(db: SamDb) -> None:
    old = results("a", timestamp="2004-02-29T12:00:00Z")
    wrong = results("b", timestamp="1999-12-31T12:00:00Z")
    ahead = results("c", timestamp="2999-01-01T00:00:00Z")

    answer = db(*IMPORT, "--json", write(db, "a.txt", old + wrong + ahead)).json

    assert answer["rows"] == 1
    assert answer["dead_letters"] == {"too-old": 1, "in-the-future": 1}
    limited = db(*IMPORT, "--age-limit", "1000d", write(db, "b.txt", old))
    assert limited.code == BAD_DATA


def test_an_unusable_state_directory_or_database_is_reported(db: SamDb) -> None:
    file = write(db, "a.txt", results("a"))
    stateless = replace(db, environment={"STATE_DIRECTORY": "/dev/null/state"})
    away = replace(db, url="postgresql://sam@127.0.0.1:1/sam")

    imported, unreachable = stateless(*IMPORT, file), away(*IMPORT, file)

    assert (imported.code, NOT_RESUMABLE in imported.err) == (OK, True)
    assert (unreachable.code, "127.0.0.1" in unreachable.err) == (69, True)
    assert counts(db) == (1, 0)


def test_all_bad_lines_are_listed_and_only_keep_going_loads_the_others(db: SamDb) -> None:
    table = (
        f"{GROUPS}{GROUP}\nB,North,federation\n"
        'C,"no"rth,federation,2026-11-01T00:00:00Z\nD,North,federation,yesterday\n'
        "E,,federation,2026-11-01T00:00:00Z\n"
        'F,"a\nb",federation,2026-11-01T00:00:00Z\n'
    ).encode() + b"G,\xff,federation,2026-11-01T00:00:00Z\n"
    file = write(db, "g.csv", table)

    done = db(*TABLE, file, "--json")

    answer = done.json
    assert done.code == BAD_DATA
    assert [bad["line"] for bad in answer["bad"]] == [4, 5, 6, 7, 8, 10]
    assert (answer["lines"], answer["rows"], rows(db, "siteGroup")) == (7, 0, [])
    assert db(*TABLE, "--keep-going", file).code == BAD_DATA
    assert len(rows(db, "siteGroup")) == 1
    assert rows(db, "dead_letter") == []


@pytest.mark.parametrize(("delimiter", "sign"), [(",", ","), (";", ";"), ("tab", "\t")])
def test_a_table_becomes_rows(db: SamDb, delimiter: str, sign: str) -> None:
    header = GROUPS.replace("siteName", "\ufeffSITENAME")
    line = GROUP.replace("North", '"North ""upper"""')
    file = write(db, "g.csv", (header + line).replace(",", sign))

    done = db(*TABLE, "--delimiter", delimiter, file)

    assert (done.code, done.out) == (
        *(OK, "g.csv: 1 line: 1 new or changed, 0 unchanged, 0 left out\n"),
    )
    assert rows(db, "siteGroup", "siteName, groupName") == [("A", 'North "upper"')]


def test_all_problems_of_a_header_are_reported(db: SamDb) -> None:
    with pytest.raises(BadInput) as caught:
        read_header(["sitename", "group_name", "SITENAME", "x"], SITE_GROUP, "g.csv", ",")
    with pytest.raises(BadInput, match="see --delimiter"):
        read_header(["siteName;groupName"], SITE_GROUP, "g.csv", ",")

    text = str(caught.value)
    for problem in ("did you mean groupName?", "unknown column 'x'", "siteName is repeated"):
        assert problem in text
    assert "missing: groupName, groupType, validFrom" in text
    header = ["startTime", "endTime", "classification", "severity"]
    with pytest.raises(BadInput, match="missing: hostName or siteName"):
        read_header(header, DOWNTIME, "d.csv", ",")
    assert read_header([*header, "siteName"], DOWNTIME, "d.csv", ",")[-1] == "siteName"
    assert db(*TABLE, write(db, "g.csv", "")).code == BAD_DATA
