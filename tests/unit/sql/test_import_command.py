"""`sam-db import records` and `import csv` on an SQLite file."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace

import pytest

from sam_pipeline.schema.program.command import (
    BAD_DATA,
    INTERRUPTED,
    NO_INPUT,
    NO_PERMISSION,
    OK,
    USAGE,
)
from sam_pipeline.schema.program.progress import Progress
from sam_pipeline.schema.records.classes import DOWNTIME, SITE_GROUP
from sam_pipeline.schema.records.text import write_wlcg
from sam_pipeline.sql.errors import BadInput
from sam_pipeline.sql.imports.checkpoint import NOT_RESUMABLE
from sam_pipeline.sql.imports.table import read_header
from tests.support.builders import metric_result
from tests.support.database.sam_db import SamDb

GROUPS = "siteName,groupName,groupType,validFrom\n"
GROUP = "A,North,federation,2026-11-01T00:00:00Z\n"
IMPORT, TABLE = ("import", "records"), ("import", "csv", "--class", "siteGroup")

pytestmark = pytest.mark.usefixtures("database")


def rows(sam_db: SamDb, view: str, columns: str = "*") -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(sam_db.directory / "sam.db")) as connection:
        return connection.execute(f"SELECT {columns} FROM {view}").fetchall()


def counts(sam_db: SamDb) -> tuple[int, int]:
    """The numbers of results and of dead letters."""
    return len(rows(sam_db, "metricOutput")), len(rows(sam_db, "dead_letter"))


def write(sam_db: SamDb, name: str, text: str | bytes) -> str:
    (sam_db.directory / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return name


def results(*hosts: str, **changes: str) -> str:
    return "".join(write_wlcg(metric_result(hostName=host, **changes)) for host in hosts)


BAD = results("bad", metricStatus="FINE")


def test_records_of_several_files_and_forms_become_rows(sam_db: SamDb) -> None:
    text = write(sam_db, "a.txt", results("a", "b", colour="blue") + BAD)
    packed = write(sam_db, "b.gz", gzip.compress(json.dumps([metric_result()]).encode()))

    done = sam_db(*IMPORT, "--json", text, packed, text)  # the repeated file counts once

    facts = done.json
    assert (done.code, facts["files"], facts["ignored_keys"]) == (
        *(BAD_DATA, ["a.txt", "b.gz"]),
        {"colour": 2},
    )
    assert (facts["records"], facts["rows"], facts["dead_letters"]) == (4, 3, {"bad-status": 1})
    assert sam_db(*IMPORT, text).code == BAD_DATA  # and makes no second dead letter
    other = gzip.compress(f"{results('c')}\n{BAD}".encode())
    sam_db(*IMPORT, write(sam_db, "same.gz", other))  # nor does the same record elsewhere
    assert counts(sam_db) == (4, 1)
    assert sam_db(*IMPORT, "--class", "metricOutptu", text).code == USAGE
    assert counts(sam_db) == (4, 1)


def test_a_dry_run_lists_bad_records_and_writes_nothing(sam_db: SamDb) -> None:
    done = sam_db(*IMPORT, "--dry-run", write(sam_db, "a.txt", results("a") + BAD))

    problem, _ = done.out.splitlines()
    assert done.code == BAD_DATA
    assert problem.startswith("a.txt:11: bad-status: metricStatus 'FINE'")
    assert counts(sam_db) == (0, 0)
    assert not (sam_db.directory / "state").exists()


def test_standard_input_and_a_named_pipe_are_imported(sam_db: SamDb) -> None:
    pipe = sam_db.directory / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(results("a")))
    writer.start()

    assert sam_db(*IMPORT, "pipe").code == OK
    writer.join()
    assert sam_db(*IMPORT, "-", stdin=results("b")).code == OK
    assert sam_db(*TABLE, "-", stdin=GROUPS + GROUP).code == OK

    assert counts(sam_db) == (2, 0)
    assert len(rows(sam_db, "siteGroup")) == 1


def test_an_interrupted_import_says_that_it_can_resume(
    sam_db: SamDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    file = write(sam_db, "a.txt", results("a"))
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "show", interrupt)
        interrupted = sam_db(*IMPORT, file)

    assert interrupted.code == INTERRUPTED
    assert "interrupted: 1 record imported" in interrupted.err
    answer = sam_db.document(*IMPORT, file)
    assert (answer["records"], answer["rows"], answer["resumed"]) == (1, 1, 1)


def test_files_that_cannot_be_read_have_exit_codes(
    sam_db: SamDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = sam_db(*IMPORT, write(sam_db, "a.txt", results("a")), "b.txt")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    # root may read everything
    monkeypatch.setattr("sam_pipeline.schema.records.input_file.open", refuse, raising=False)
    denied, table = sam_db(*IMPORT, "a.txt"), sam_db(*TABLE, "a.csv")

    assert (missing.code, denied.code, table.code) == (NO_INPUT, NO_PERMISSION, NO_PERMISSION)
    assert counts(sam_db) == (0, 0)


def test_a_truncated_gzip_is_reported_and_imported_up_to_its_end(sam_db: SamDb) -> None:
    packed = gzip.compress(results(*(f"ce{number}" for number in range(500))).encode(), 1)

    done = sam_db(*IMPORT, write(sam_db, "a.gz", packed[: len(packed) // 2]), "--json")

    assert (done.code, len(done.json["problems"])) == (BAD_DATA, 1)
    stored, dead = counts(sam_db)
    assert (0 < stored < 500, dead) == (True, 0)


def test_history_is_accepted_within_limits_and_the_future_is_not(sam_db: SamDb) -> None:
    old = results("a", timestamp="2004-02-29T12:00:00Z")
    wrong = results("b", timestamp="1999-12-31T12:00:00Z")
    ahead = results("c", timestamp="2999-01-01T00:00:00Z")

    answer = sam_db(*IMPORT, "--json", write(sam_db, "a.txt", old + wrong + ahead)).json

    assert answer["rows"] == 1
    assert answer["dead_letters"] == {"too-old": 1, "in-the-future": 1}
    limited = sam_db(*IMPORT, "--age-limit", "1000", write(sam_db, "b.txt", old))
    assert limited.code == BAD_DATA


def test_an_unusable_state_directory_or_database_is_reported(sam_db: SamDb) -> None:
    file = write(sam_db, "a.txt", results("a"))
    stateless = replace(sam_db, environment={"STATE_DIRECTORY": "/dev/null/state"})
    away = replace(sam_db, url="postgresql://sam@127.0.0.1:1/sam")

    imported, unreachable = stateless(*IMPORT, file), away(*IMPORT, file)

    assert (imported.code, NOT_RESUMABLE in imported.err) == (OK, True)
    assert (unreachable.code, "127.0.0.1" in unreachable.err) == (69, True)
    assert counts(sam_db) == (1, 0)


def test_all_bad_lines_are_listed_and_only_keep_going_loads_the_others(sam_db: SamDb) -> None:
    table = (
        f"{GROUPS}{GROUP}\nB,North,federation\n"
        'C,"no"rth,federation,2026-11-01T00:00:00Z\nD,North,federation,yesterday\n'
        "E,,federation,2026-11-01T00:00:00Z\n"
        'F,"a\nb",federation,2026-11-01T00:00:00Z\n'
    ).encode() + b"G,\xff,federation,2026-11-01T00:00:00Z\n"
    file = write(sam_db, "g.csv", table)

    done = sam_db(*TABLE, file, "--json")

    answer = done.json
    assert done.code == BAD_DATA
    assert [bad["line"] for bad in answer["bad"]] == [4, 5, 6, 7, 8, 10]
    assert (answer["lines"], answer["rows"], rows(sam_db, "siteGroup")) == (7, 0, [])
    assert sam_db(*TABLE, "--keep-going", file).code == BAD_DATA
    assert len(rows(sam_db, "siteGroup")) == 1
    assert rows(sam_db, "dead_letter") == []


@pytest.mark.parametrize(("delimiter", "sign"), [(",", ","), (";", ";"), ("tab", "\t")])
def test_a_table_becomes_rows(sam_db: SamDb, delimiter: str, sign: str) -> None:
    header = GROUPS.replace("siteName", "\ufeffSITENAME")
    line = GROUP.replace("North", '"North ""upper"""')
    file = write(sam_db, "g.csv", (header + line).replace(",", sign))

    done = sam_db(*TABLE, "--delimiter", delimiter, file)

    assert (done.code, done.out) == (OK, "g.csv: 1 line: 1 row, 0 duplicates\n")
    assert rows(sam_db, "siteGroup", "siteName, groupName") == [("A", 'North "upper"')]


def test_all_problems_of_a_header_are_reported(sam_db: SamDb) -> None:
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
    assert sam_db(*TABLE, write(sam_db, "g.csv", "")).code == BAD_DATA
